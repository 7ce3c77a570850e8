//! The task runners of one job, and how many tasks each of them gets.
//!
//! A runner is the process of one allocation. It has a number of slots, and each slot runs one task
//! at a time. Tasks beyond the idle slots are the reserve of the runner: they start as soon as a
//! slot becomes idle, without a request in between. The state is not stored. After a restart it
//! comes back with the next request of each runner.

use std::collections::BTreeMap;

use hayward_vocabulary::AllocationId;

/// Longest time that a reserved task may wait at a runner, in milliseconds (TC-4).
pub const RESERVE_HORIZON_MS: u64 = 250;
/// Maximum number of reserved tasks of one runner.
pub const MAX_RESERVE: u64 = 256;

/// Demand of one request of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseDemand {
    /// Number of tasks that the runner can run at once.
    pub slots: u64,
    /// Number of slots that run nothing now.
    pub idle: u64,
    /// Idle slots and the reserve that the runner wants.
    pub wanted: u64,
}

/// A task that runs, as its runner reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningTask {
    pub task: u64,
    /// Start of the run, in milliseconds of the clock of the caller.
    pub started_at_ms: i64,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct TaskRunner {
    slots: u64,
    /// Moving average of the duration of a run, in microseconds. `None` until a run has ended.
    mean_run_us: Option<u64>,
    /// True if the last request left a slot idle.
    has_idle_slot: bool,
    /// Number of the last request.
    last_request: u64,
    running: Vec<RunningTask>,
    /// True if the runner was asked to end, because nothing waits.
    released: bool,
}

/// All runners of one job.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TaskRunners {
    runners: BTreeMap<AllocationId, TaskRunner>,
    /// Sum of the slots of all runners.
    slots: u64,
    /// Number of runners with an idle slot.
    idle_runners: usize,
}

impl TaskRunners {
    /// Records a request. Returns false if the runner has already sent a later one, so this request
    /// may lease nothing: its response is lost. Requests without a number, 0, are never late.
    pub fn record_request(
        &mut self,
        allocation: &AllocationId,
        demand: LeaseDemand,
        request: u64,
    ) -> bool {
        let runner = self.runners.entry(allocation.clone()).or_default();
        if request != 0 && request < runner.last_request {
            return false;
        }
        runner.last_request = request;
        runner.released = false;
        self.slots = self.slots - runner.slots + demand.slots;
        runner.slots = demand.slots;
        true
    }

    /// Adds the duration of a run to the moving average, with weight 1/8.
    pub fn record_run(&mut self, allocation: &AllocationId, duration_us: u64) {
        if let Some(runner) = self.runners.get_mut(allocation) {
            runner.mean_run_us = Some(match runner.mean_run_us {
                None => duration_us.max(1),
                Some(mean) => (mean - mean / 8).saturating_add(duration_us / 8).max(1),
            });
        }
    }

    /// Replaces the running tasks of a runner. Returns whether their numbers changed.
    pub fn set_running(&mut self, allocation: &AllocationId, running: Vec<RunningTask>) -> bool {
        let Some(runner) = self.runners.get_mut(allocation) else {
            return false;
        };
        let numbers = |tasks: &[RunningTask]| tasks.iter().map(|it| it.task).collect::<Vec<_>>();
        let is_changed = numbers(&runner.running) != numbers(&running);
        // The first reported start stays, because later ones are recomputed from a duration.
        let old = std::mem::take(&mut runner.running);
        runner.running = running
            .into_iter()
            .map(|new| {
                let known = old.iter().find(|known| known.task == new.task);
                known.copied().unwrap_or(new)
            })
            .collect();
        is_changed
    }

    /// Returns the running tasks of a runner.
    pub fn running(&self, allocation: &AllocationId) -> &[RunningTask] {
        let runner = self.runners.get(allocation);
        runner.map_or(&[], |runner| &runner.running)
    }

    /// Returns how many of the waiting tasks a runner gets. Idle slots come first. A reserve is
    /// granted only where it starts soon, and only while no other runner has an idle slot (TC-3).
    ///
    /// `leased` is the number of tasks that the runner has already.
    pub fn lease_count(
        &self,
        allocation: &AllocationId,
        demand: LeaseDemand,
        leased: u64,
        waiting: u64,
    ) -> u64 {
        let for_idle = demand.idle.min(demand.wanted).min(waiting);
        let Some(runner) = self.runners.get(allocation) else {
            return for_idle;
        };
        let others_idle = self.idle_runners - usize::from(runner.has_idle_slot);
        let Some(mean_us) = runner.mean_run_us.filter(|_| others_idle == 0) else {
            return for_idle;
        };
        let horizon_us = RESERVE_HORIZON_MS * 1_000;
        if mean_us > horizon_us {
            return for_idle;
        }
        let started_soon = demand.slots.saturating_mul(horizon_us).div_ceil(mean_us);
        // The reserves shrink towards the end of the job, so that its last tasks are spread.
        let fair_part = (waiting - for_idle) / 2 / self.slots.max(1);
        let busy_slots = demand.slots.saturating_sub(demand.idle);
        let reserved = leased.saturating_sub(busy_slots);
        let reserve = started_soon
            .min(fair_part)
            .min(MAX_RESERVE)
            .saturating_sub(reserved);
        for_idle + reserve.min(demand.wanted - for_idle)
    }

    /// Records whether the response leaves a slot of the runner idle.
    pub fn record_response(&mut self, allocation: &AllocationId, has_idle_slot: bool) {
        if let Some(runner) = self.runners.get_mut(allocation) {
            self.idle_runners -= usize::from(runner.has_idle_slot);
            self.idle_runners += usize::from(has_idle_slot);
            runner.has_idle_slot = has_idle_slot;
        }
    }

    /// Records that an idle runner was asked to end (TC-8).
    pub fn release(&mut self, allocation: &AllocationId) {
        if let Some(runner) = self.runners.get_mut(allocation) {
            runner.released = true;
        }
    }

    /// Removes the runner of an allocation that has ended. Returns whether it was asked to end, so
    /// its end is no failure.
    pub fn remove(&mut self, allocation: &AllocationId) -> bool {
        let Some(runner) = self.runners.remove(allocation) else {
            return false;
        };
        self.slots -= runner.slots;
        self.idle_runners -= usize::from(runner.has_idle_slot);
        runner.released
    }
}

#[cfg(test)]
mod tests;
