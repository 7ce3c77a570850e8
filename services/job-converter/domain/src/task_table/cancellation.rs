//! Cancellation of single tasks (TC-134).

use std::sync::Arc;

use hayward_vocabulary::AllocationId;

use super::TaskTable;

/// A leased task with its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTask {
    pub holder: AllocationId,
    pub task: u64,
    pub attempt: u32,
}

/// Tasks `start..end` that were cancelled and have no run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrunSpan {
    pub start: u64,
    pub end: u64,
    /// Name of the caller.
    pub by: Arc<str>,
}

/// Effect of a cancellation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CancelEffect {
    /// Number of tasks that waited. They are cancelled now.
    pub cancelled: u64,
    /// Number of tasks that already had an outcome.
    pub ended: u64,
    /// Leased tasks. Their runs have to be stopped.
    pub stopping: Vec<HeldTask>,
}

impl TaskTable {
    pub fn cancelled(&self) -> u64 {
        self.cancelled
    }

    /// Returns the caller that cancelled a leased task.
    pub fn cancelled_by(&self, task: u64) -> Option<&Arc<str>> {
        self.cancelling.get(&task)
    }

    /// Returns all leased tasks.
    pub fn held(&self) -> Vec<HeldTask> {
        self.held_within(0, self.total).collect()
    }

    /// Returns all cancelled tasks that are leased.
    pub fn cancelling(&self) -> Vec<HeldTask> {
        self.held_within(0, self.total)
            .filter(|held| self.cancelling.contains_key(&held.task))
            .collect()
    }

    /// Cancels the tasks `start..end` that have no outcome.
    pub fn cancel(&mut self, start: u64, end: u64, by: &Arc<str>) -> CancelEffect {
        let end = end.min(self.total);
        let ended = self.done.count_within(start, end);
        let mut cancelled = 0;
        for (start, end) in self.waiting.take_span(start, end) {
            cancelled += end - start;
            self.end_without_run(start, end, by);
        }
        let delayed = self.delayed.range(start..end.max(start));
        let delayed: Vec<u64> = delayed.map(|(task, _)| *task).collect();
        for task in delayed {
            self.take_delayed(task);
            cancelled += 1;
            self.end_without_run(task, task + 1, by);
        }
        let stopping: Vec<HeldTask> = self.held_within(start, end).collect();
        for held in &stopping {
            let caller = self.cancelling.entry(held.task);
            caller.or_insert_with(|| Arc::clone(by));
        }
        CancelEffect {
            cancelled,
            ended,
            stopping,
        }
    }

    /// Removes and returns the outcomes without a run that are not stored yet.
    pub fn take_unstored(&mut self) -> Vec<UnrunSpan> {
        std::mem::take(&mut self.unstored)
    }

    /// Makes a task wait that is no longer leased. A cancelled one ends.
    pub(super) fn wait_again(&mut self, task: u64) {
        match self.cancelling.remove(&task) {
            Some(by) => self.end_without_run(task, task + 1, &by),
            None => {
                self.waiting.insert(task);
            }
        }
    }

    fn end_without_run(&mut self, start: u64, end: u64, by: &Arc<str>) {
        self.done.insert_span(start, end);
        self.cancelled += end - start;
        self.failures.retain(|task, _| !(start..end).contains(task));
        self.unstored.push(UnrunSpan {
            start,
            end,
            by: Arc::clone(by),
        });
    }

    fn held_within(&self, start: u64, end: u64) -> impl Iterator<Item = HeldTask> {
        self.leases.iter().flat_map(move |(holder, held)| {
            let within = held.range(start..end.max(start));
            within.map(|(task, attempt)| HeldTask {
                holder: holder.clone(),
                task: *task,
                attempt: *attempt,
            })
        })
    }
}
