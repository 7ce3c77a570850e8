//! Processes that need a successor before they leave, and the outcome of the search for it.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::Verdicts;
use hayward_vocabulary::{AllocationId, WorkId};

use crate::model::LeaveOrder;

#[derive(Debug, Default)]
pub(crate) struct SuccessorSearch {
    /// Orders to leave that wait for a successor in this round.
    pub(crate) waiting_orders: Vec<LeaveOrder>,
    /// Processes that also need a successor but are held back by the disruption limit of this work.
    pub(crate) limited: Vec<(AllocationId, WorkId)>,
    /// Processes without a successor, each with the round of the last attempt and the reason of its
    /// failure.
    pub(crate) failed_attempts: BTreeMap<AllocationId, (u64, String)>,
    /// Verdicts of work whose process stays where it is. They are published instead of the verdicts
    /// of the attempt.
    pub(crate) withheld_verdicts: Verdicts,
    /// Predecessors of the successors that were found in this round, by work.
    pub(crate) predecessors: BTreeMap<WorkId, AllocationId>,
}

impl SuccessorSearch {
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
