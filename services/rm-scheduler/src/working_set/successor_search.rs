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
    /// Processes for which the last attempt found no successor.
    pub(crate) failed_attempts: BTreeMap<AllocationId, FailedAttempt>,
    /// Verdicts of failed attempts. Each one is withheld while the attempts for its work fail, and
    /// published afterwards unless the plan has a newer verdict on the work.
    pub(crate) withheld_verdicts: Verdicts,
    /// Predecessors whose successor was found in this round, by work.
    pub(crate) predecessors: BTreeMap<WorkId, AllocationId>,
}

/// An attempt that found no successor.
#[derive(Debug)]
pub(crate) struct FailedAttempt {
    pub(crate) round: u64,
    pub(crate) reason: String,
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
            .map_or(0, |attempt| attempt.round)
    }

    pub fn failure_reason(&self, allocation: &AllocationId) -> Option<&str> {
        self.failed_attempts
            .get(allocation)
            .map(|attempt| attempt.reason.as_str())
    }
}
