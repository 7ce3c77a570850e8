//! The search for successors of processes that are to leave only after their successor is reserved:
//! the processes of the present round, and failed attempts.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::Verdicts;
use hayward_vocabulary::{AllocationId, WorkId};

use crate::model::LeaveOrder;

#[derive(Debug, Default)]
pub(crate) struct SuccessorSearch {
    /// Orders to leave that are given if this round grants a successor.
    pub(crate) waiting_orders: Vec<LeaveOrder>,
    /// Processes that also need a successor, but are held back by a disruption limit. Each has the
    /// job or service with that limit.
    pub(crate) limited: Vec<(AllocationId, WorkId)>,
    /// Processes for which the last attempt found no successor. Each has the round and the reason
    /// of the failure.
    pub(crate) failed_attempts: BTreeMap<AllocationId, (u64, String)>,
    /// Verdicts of work whose process stays where it is. They are published instead of the verdicts
    /// of the attempt.
    pub(crate) withheld_verdicts: Verdicts,
    /// Predecessors whose successor was found in this round, by work.
    pub(crate) predecessors: BTreeMap<WorkId, AllocationId>,
}

impl SuccessorSearch {
    /// Clears the state of the last round.
    pub fn begin(&mut self) {
        self.waiting_orders.clear();
        self.limited.clear();
        self.predecessors.clear();
    }

    pub fn add(&mut self, order: LeaveOrder) {
        self.waiting_orders.push(order);
    }

    pub fn add_limited(&mut self, allocation: AllocationId, group: WorkId) {
        self.limited.push((allocation, group));
    }

    /// Returns the round of the last attempt for this process, or 0 if there was none.
    pub fn last_attempt(&self, allocation: &AllocationId) -> u64 {
        self.failed_attempts
            .get(allocation)
            .map_or(0, |(round, _)| *round)
    }

    pub fn failure_reason(&self, allocation: &AllocationId) -> Option<&str> {
        self.failed_attempts
            .get(allocation)
            .map(|(_, reason)| reason.as_str())
    }
}
