//! Limits how often the text of a verdict from an external planner changes. Each change is written
//! and published, and an external planner may put the time of day into each text (I25).

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;

/// Length of the window in which changes are counted.
const WINDOW_MS: u64 = 30_000;
/// Maximum number of changed texts of all work in one window.
const MAX_CHANGES: usize = 1_000;
/// Maximum number of changed texts of one piece of work in one window.
const MAX_PER_WORK: usize = 30;

#[derive(Default)]
pub struct TextChangeLimit {
    /// Monotonic time of the begin of the window.
    window_start_ms: u64,
    /// Number of allowed changes in the window.
    change_count: usize,
    /// Number of allowed changes of each piece of work in the window.
    by_work: BTreeMap<WorkId, usize>,
    /// True if a change waits for the end of the window.
    has_waiting_change: bool,
}

impl TextChangeLimit {
    /// Counts a change and returns true if the change is allowed now. Otherwise the change waits
    /// for the next window.
    pub fn may_change(&mut self, work: &WorkId, now_ms: u64) -> bool {
        if now_ms.saturating_sub(self.window_start_ms) >= WINDOW_MS {
            *self = Self {
                window_start_ms: now_ms,
                ..Self::default()
            };
        }
        let work_changes = self.by_work.get(work).copied().unwrap_or(0);
        if self.change_count >= MAX_CHANGES || work_changes >= MAX_PER_WORK {
            self.has_waiting_change = true;
            return false;
        }
        self.change_count += 1;
        self.by_work.insert(work.clone(), work_changes + 1);
        true
    }

    /// Returns the time at which waiting changes are allowed. Returns `None` if no change waits.
    pub fn due_ms(&self) -> Option<u64> {
        self.has_waiting_change
            .then_some(self.window_start_ms + WINDOW_MS)
    }

    /// Returns true if waiting changes are allowed now, and stops waiting for them.
    pub fn take_due(&mut self, now_ms: u64) -> bool {
        let due = self.due_ms().is_some_and(|at| at <= now_ms);
        self.has_waiting_change &= !due;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(number: usize) -> WorkId {
        format!("job_{number}").parse().unwrap()
    }

    #[test]
    fn changes_of_one_piece_of_work_are_limited() {
        let window_start_ms = 40_000;
        let next_window_ms = window_start_ms + WINDOW_MS;
        let mut limit = TextChangeLimit::default();
        let changed = (0..1_000).filter(|ms| limit.may_change(&work(1), window_start_ms + ms));
        assert_eq!(changed.count(), MAX_PER_WORK);
        assert_eq!(limit.due_ms(), Some(next_window_ms));
        assert!(
            limit.may_change(&work(2), window_start_ms + 1_000),
            "the limit of other work is separate"
        );
        assert!(!limit.take_due(next_window_ms - 1));
        assert!(limit.take_due(next_window_ms));
        assert!(!limit.take_due(next_window_ms), "it is due once");
        assert!(limit.may_change(&work(1), next_window_ms));
    }

    #[test]
    fn changes_of_all_work_together_are_limited() {
        let mut limit = TextChangeLimit::default();
        let changed = (0..100_000).filter(|number| limit.may_change(&work(*number), 50_000));
        assert_eq!(changed.count(), MAX_CHANGES);
        let changed = (0..100_000).filter(|number| limit.may_change(&work(*number), 80_000));
        assert_eq!(changed.count(), MAX_CHANGES);
    }
}
