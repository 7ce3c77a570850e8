//! Leases and outcomes of the tasks of one job.
//!
//! A task is a number. It is in exactly one state: waiting, delayed, leased to one allocation, or
//! done. The first outcome is final. A delayed task waits for the time of its next attempt. A
//! cancelled task is done at once while it waits. A leased one is *cancelling* until its run ends.
//!
//! A reported success counts from any runner, because the work was done. A reported failure counts
//! only from the holder of the lease and for its current attempt, because a runner that lost its
//! lease may have been stopped by Hayward. Only counted failures use up attempts.

mod cancellation;
mod delays;
mod restore;

pub use cancellation::{CancelEffect, HeldTask, UnrunSpan};
use delays::DueTask;

pub use delays::DelayedTask;
pub use restore::OutcomeSums;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_vocabulary::AllocationId;

use crate::range_set::RangeSet;

/// A task leased to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    pub task: u64,
    /// Number of the attempt, counted from 1.
    pub attempt: u32,
}

/// How one run of a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunResult {
    Succeeded,
    Failed,
    /// A failure that another attempt would repeat, such as a reached time limit.
    FailedForGood,
    /// Hayward ended the run. It is not counted.
    Interrupted,
}

/// Effect of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportEffect {
    /// The task has its final outcome.
    FinalOutcome,
    /// The failed attempt was counted. The task waits for its next attempt.
    AttemptCounted,
    /// The task waits again. No attempt was counted.
    TaskReturned,
    /// The run ended after the task was cancelled. This is its final outcome.
    Cancelled,
    /// The report was a repetition, or came from a runner without the lease. The state is
    /// unchanged.
    Unchanged,
    /// The job has no such task.
    NoSuchTask,
}

/// The tasks of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTable {
    total: u64,
    max_attempts: u32,
    waiting: RangeSet,
    /// Time of the next attempt of each delayed task, in ms of the clock of the caller.
    delayed: BTreeMap<u64, u64>,
    /// The same tasks by time.
    due_order: BTreeSet<DueTask>,
    /// Attempt of each leased task, by holder. Holders without tasks are removed.
    leases: BTreeMap<AllocationId, BTreeMap<u64, u32>>,
    /// Number of leased tasks.
    leased: u64,
    done: RangeSet,
    /// Number of counted failures of each task without an outcome.
    failures: BTreeMap<u64, u32>,
    /// Number of tasks whose outcome is a failure.
    failed: u64,
    /// Number of tasks whose outcome is a cancellation.
    cancelled: u64,
    /// Leased tasks that were cancelled, with the name of the caller.
    cancelling: BTreeMap<u64, Arc<str>>,
    /// Outcomes without a run that are not stored yet.
    unstored: Vec<UnrunSpan>,
    /// Total running time of the runs that became outcomes, in µs.
    spent_us: u64,
}

impl TaskTable {
    pub fn new(total: u64, max_attempts: u32) -> Self {
        Self {
            total,
            max_attempts: max_attempts.max(1),
            waiting: RangeSet::below(total),
            delayed: BTreeMap::new(),
            due_order: BTreeSet::new(),
            leases: BTreeMap::new(),
            leased: 0,
            done: RangeSet::default(),
            failures: BTreeMap::new(),
            failed: 0,
            cancelled: 0,
            cancelling: BTreeMap::new(),
            unstored: Vec::new(),
            spent_us: 0,
        }
    }

    pub fn total(&self) -> u64 {
        self.total
    }
    pub fn waiting(&self) -> u64 {
        self.waiting.len()
    }
    pub fn leased(&self) -> u64 {
        self.leased
    }
    pub fn done(&self) -> u64 {
        self.done.len()
    }
    /// Returns the number of tasks that failed for good.
    pub fn failed(&self) -> u64 {
        self.failed
    }
    pub fn succeeded(&self) -> u64 {
        self.done.len() - self.failed - self.cancelled
    }
    /// Returns the number of tasks without an outcome.
    pub fn remaining(&self) -> u64 {
        self.total - self.done.len()
    }
    pub fn is_over(&self) -> bool {
        self.remaining() == 0
    }

    /// Returns a description of inconsistent counts, or `None`. Each task must be in exactly one
    /// state. The check uses the sets, not the counters (I5).
    pub fn find_inconsistency(&self) -> Option<String> {
        let leased_tasks = || self.leases.values().flat_map(BTreeMap::keys).copied();
        let (waiting, leased, done) = (
            count_in_spans(&self.waiting) + self.delayed(),
            leased_tasks().count(),
            count_in_spans(&self.done),
        );
        let leased = leased as u64;
        let (total, counted) = (self.total, waiting + leased + done);
        if counted != total {
            return Some(format!(
                "of {total} tasks {waiting} wait, {leased} are leased and {done} are done"
            ));
        }
        let unsuccessful = self.failed + self.cancelled;
        if leased != self.leased || unsuccessful > done {
            let counted_leases = self.leased;
            return Some(format!(
                "{leased} tasks are leased where {counted_leases} are counted; {unsuccessful} of \
                {done} failed or were cancelled"
            ));
        }
        let twice = |task: &u64| self.waiting.contains(*task) || self.done.contains(*task);
        let doubly_delayed = self.delayed.keys().copied().find(twice);
        let doubly_leased = leased_tasks().find(|task| self.delayed.contains_key(task));
        let doubly_leased = doubly_delayed.or(doubly_leased);
        let doubly_leased = doubly_leased.or_else(|| leased_tasks().find(twice));
        let duplicate = doubly_leased.or_else(|| find_common_number(&self.waiting, &self.done));
        duplicate.map(|task| format!("task {task} is in two places"))
    }

    /// Returns the mean milliseconds of tasks that succeeded or failed.
    pub fn mean_ms(&self) -> Option<u64> {
        (self.spent_us / 1000).checked_div(self.done.len() - self.cancelled)
    }

    /// Returns the tasks leased to an allocation, with their attempts.
    pub fn leases_of(&self, holder: &AllocationId) -> Option<&BTreeMap<u64, u32>> {
        self.leases.get(holder)
    }

    /// Returns the attempt of a leased task, else 1.
    pub fn attempt_of(&self, holder: &AllocationId, task: u64) -> u32 {
        let held = self.leases.get(holder);
        held.and_then(|held| held.get(&task)).copied().unwrap_or(1)
    }

    pub fn holders(&self) -> impl Iterator<Item = &AllocationId> {
        self.leases.keys()
    }

    /// Returns the number of the next attempt of a task.
    fn next_attempt(&self, task: u64) -> u32 {
        self.failures.get(&task).copied().unwrap_or(0) + 1
    }

    /// Leases waiting tasks, smallest numbers first.
    pub fn lease(&mut self, holder: &AllocationId, limit: usize) -> Vec<Leased> {
        let tasks = self.waiting.take_first(limit);
        let leased: Vec<Leased> = tasks
            .into_iter()
            .map(|task| Leased {
                task,
                attempt: self.next_attempt(task),
            })
            .collect();
        if !leased.is_empty() {
            self.leased += leased.len() as u64;
            let held = self.leases.entry(holder.clone()).or_default();
            held.extend(leased.iter().map(|it| (it.task, it.attempt)));
        }
        leased
    }

    /// Ends the lease of a task if the attempt matches. `None` matches every attempt.
    fn release(&mut self, holder: &AllocationId, task: u64, attempt: Option<u32>) -> bool {
        let Some(held) = self.leases.get_mut(holder) else {
            return false;
        };
        let matches = held
            .get(&task)
            .is_some_and(|current| attempt.is_none_or(|attempt| attempt == *current));
        if matches {
            held.remove(&task);
            self.leased -= 1;
            if held.is_empty() {
                self.leases.remove(holder);
            }
        }
        matches
    }

    /// Removes the task from its current state. Returns its holder, if it was leased.
    /// `likely_holder` is searched first.
    fn remove_from_any_state(
        &mut self,
        task: u64,
        likely_holder: &AllocationId,
    ) -> Option<AllocationId> {
        if self.release(likely_holder, task, None) {
            return Some(likely_holder.clone());
        }
        if self.waiting.remove(task) || self.take_delayed(task) {
            return None;
        }
        let holder = self
            .leases
            .iter()
            .find_map(|(holder, held)| held.contains_key(&task).then(|| holder.clone()))?;
        self.release(&holder, task, None);
        Some(holder)
    }

    /// Records the end of a run. Also returns another allocation that lost its lease of the task.
    pub fn finish(
        &mut self,
        holder: &AllocationId,
        lease: Leased,
        result: RunResult,
        duration_us: u64,
    ) -> (ReportEffect, Option<AllocationId>) {
        let Leased { task, attempt } = lease;
        if task >= self.total {
            return (ReportEffect::NoSuchTask, None);
        }
        if self.done.contains(task) {
            return (ReportEffect::Unchanged, None);
        }
        if result == RunResult::Succeeded {
            let other = self
                .remove_from_any_state(task, holder)
                .filter(|other| other != holder);
            self.record_outcome(task, duration_us);
            return (ReportEffect::FinalOutcome, other);
        }
        if !self.release(holder, task, Some(attempt)) {
            return (ReportEffect::Unchanged, None);
        }
        let failures = self.next_attempt(task);
        let is_last = failures >= self.max_attempts || result == RunResult::FailedForGood;
        if result != RunResult::Interrupted && is_last {
            self.record_outcome(task, duration_us);
            self.failed += 1;
            return (ReportEffect::FinalOutcome, None);
        }
        if self.cancelling.contains_key(&task) {
            self.record_outcome(task, 0);
            self.cancelled += 1;
            return (ReportEffect::Cancelled, None);
        }
        if result == RunResult::Interrupted {
            self.waiting.insert(task);
            return (ReportEffect::TaskReturned, None);
        }
        self.failures.insert(task, failures);
        self.waiting.insert(task);
        (ReportEffect::AttemptCounted, None)
    }

    fn record_outcome(&mut self, task: u64, duration_us: u64) {
        self.done.insert(task);
        self.failures.remove(&task);
        self.cancelling.remove(&task);
        self.spent_us = self.spent_us.saturating_add(duration_us);
    }

    /// Ends all leases of an allocation. Returns true if there were any.
    pub fn end_leases(&mut self, holder: &AllocationId) -> bool {
        let Some(held) = self.leases.remove(holder) else {
            return false;
        };
        self.leased -= held.len() as u64;
        for task in held.into_keys() {
            self.wait_again(task);
        }
        true
    }

    /// Makes leased tasks wait again that the holder did not start. Returns true if any of them was
    /// leased.
    pub fn return_tasks(&mut self, holder: &AllocationId, tasks: &[u64]) -> bool {
        let mut any_leased = false;
        for task in tasks {
            if self.release(holder, *task, None) {
                self.wait_again(*task);
                any_leased = true;
            }
        }
        any_leased
    }

    /// Makes leased tasks wait again that the holder does not know, because a response was lost.
    /// Returns true if there were any.
    pub fn retain_known(&mut self, holder: &AllocationId, known: &[u64]) -> bool {
        let Some(held) = self.leases.get(holder) else {
            return false;
        };
        let known: std::collections::BTreeSet<u64> = known.iter().copied().collect();
        let lost: Vec<u64> = held
            .keys()
            .filter(|task| !known.contains(task))
            .copied()
            .collect();
        self.return_tasks(holder, &lost)
    }
}

fn count_in_spans(ranges: &RangeSet) -> u64 {
    ranges.spans().map(|(start, end)| end - start).sum()
}

/// Returns a number that is in both sets.
fn find_common_number(first: &RangeSet, second: &RangeSet) -> Option<u64> {
    let mut second_spans = second.spans().peekable();
    for (start, end) in first.spans() {
        // Skips the spans of the second set that end before this span.
        while second_spans
            .next_if(|(_, other_end)| *other_end <= start)
            .is_some()
        {}
        if let Some((other_start, _)) = second_spans.peek()
            && *other_start < end
        {
            return Some(start.max(*other_start));
        }
    }
    None
}

#[cfg(test)]
mod tests;
