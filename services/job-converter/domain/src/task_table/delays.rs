//! Tasks that wait for the time of their next attempt (TC-127).

use super::TaskTable;

/// A task that waits for the time of its next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayedTask {
    pub task: u64,
    /// Number of the next attempt.
    pub attempt: u32,
    /// Time of the next attempt, in ms of the clock of the caller.
    pub due_ms: u64,
}

/// A delayed task, in the order of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueTask {
    due_ms: u64,
    task: u64,
}

impl TaskTable {
    /// Returns the number of delayed tasks.
    pub fn delayed(&self) -> u64 {
        self.delayed.len() as u64
    }

    /// Returns the number of tasks that are delayed beyond a time.
    pub fn delayed_beyond(&self, at_ms: u64) -> u64 {
        let due = self.due_order.iter();
        let due = due.take_while(|due| due.due_ms <= at_ms).count();
        self.delayed() - due as u64
    }

    /// Returns the time of the next attempt of any delayed task.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due_order.first().map(|due| due.due_ms)
    }

    /// Returns the delayed tasks from a number on.
    pub fn delayed_from(&self, first_task: u64) -> impl Iterator<Item = DelayedTask> {
        self.delayed
            .range(first_task..)
            .map(|(task, due_ms)| DelayedTask {
                task: *task,
                attempt: self.next_attempt(*task),
                due_ms: *due_ms,
            })
    }

    /// Delays a waiting task.
    pub fn delay(&mut self, task: u64, due_ms: u64) {
        if self.waiting.remove(task) {
            self.delayed.insert(task, due_ms);
            self.due_order.insert(DueTask { due_ms, task });
        }
    }

    /// Makes the tasks wait that are due. Returns their number.
    pub fn release_due(&mut self, now_ms: u64) -> u64 {
        let mut released = 0;
        while let Some(DueTask { due_ms, task }) = self.due_order.first().copied()
            && due_ms <= now_ms
        {
            self.take_delayed(task);
            self.waiting.insert(task);
            released += 1;
        }
        released
    }

    /// Removes a delayed task. Returns false if it is not delayed.
    pub(super) fn take_delayed(&mut self, task: u64) -> bool {
        let Some(due_ms) = self.delayed.remove(&task) else {
            return false;
        };
        self.due_order.remove(&DueTask { due_ms, task });
        true
    }
}
