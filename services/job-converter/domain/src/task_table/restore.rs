//! Restores a table from stored rows. Outcomes come first, then failures and leases.

use std::sync::Arc;

use hayward_vocabulary::AllocationId;

use super::{Leased, TaskTable};

/// Sums over the outcomes of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomeSums {
    pub failed: u64,
    pub cancelled: u64,
    /// Running time of the runs that succeeded or failed, in µs.
    pub spent_us: u64,
}

impl TaskTable {
    /// Restores a range of outcomes. It must be called before leases and failures are restored.
    pub fn restore_done(&mut self, start: u64, end: u64) {
        self.done.insert_span(start, end);
        for task in start..end {
            self.waiting.remove(task);
        }
    }

    /// Restores the numbers of outcomes and the time spent.
    pub fn restore_sums(&mut self, sums: OutcomeSums) {
        self.failed = sums.failed;
        self.cancelled += sums.cancelled;
        self.spent_us = sums.spent_us;
    }

    /// Restores a range of tasks that were cancelled before they ran.
    pub fn restore_cancelled(&mut self, start: u64, end: u64) {
        self.restore_done(start, end);
        self.cancelled += end.saturating_sub(start);
    }

    /// Restores the cancellation of a task that was leased. It must be called after leases are
    /// restored.
    pub fn restore_cancelling(&mut self, task: u64, by: &Arc<str>) {
        if self.leases.values().any(|held| held.contains_key(&task)) {
            self.cancelling.insert(task, Arc::clone(by));
        }
    }

    /// Restores the counted failures of a task without an outcome.
    pub fn restore_failures(&mut self, task: u64, failures: u32) {
        if task < self.total && !self.done.contains(task) {
            self.failures.insert(task, failures);
        }
    }

    /// Restores a lease.
    pub fn restore_lease(&mut self, holder: &AllocationId, leased: &[Leased]) {
        for lease in leased {
            if self.waiting.remove(lease.task) {
                self.leases
                    .entry(holder.clone())
                    .or_default()
                    .insert(lease.task, lease.attempt);
                self.leased += 1;
            }
        }
    }
}
