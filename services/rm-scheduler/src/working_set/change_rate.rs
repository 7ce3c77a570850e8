//! Limits how often texts of external planners change. Each change is a row that is written and
//! published, and an external planner may put the time into each text (I25).

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;

/// Length of the window in which changes are counted.
const WINDOW_MS: u64 = 30_000;
/// Most changed texts of all work in one window.
const MOST: usize = 1_000;
/// Most changed texts of one piece of work in one window.
const MAX_PER_WORK: usize = 30;

#[derive(Default)]
pub struct ChangeRate {
    since_ms: u64,
    changed: usize,
    by_work: BTreeMap<WorkId, usize>,
    /// True if a change waits for the end of the window.
    waits: bool,
}

impl ChangeRate {
    /// Counts a change and returns true if the change is allowed now. Otherwise the change has to
    /// wait.
    pub fn may_change(&mut self, work: &WorkId, now_ms: u64) -> bool {
        if now_ms.saturating_sub(self.since_ms) >= WINDOW_MS {
            *self = Self {
                since_ms: now_ms,
                ..Self::default()
            };
        }
        let of_work = self.by_work.get(work).copied().unwrap_or(0);
        if self.changed >= MOST || of_work >= MAX_PER_WORK {
            self.waits = true;
            return false;
        }
        self.changed += 1;
        self.by_work.insert(work.clone(), of_work + 1);
        true
    }

    /// Returns the time at which waiting changes are allowed. Returns `None` if no change waits.
    pub fn due_ms(&self) -> Option<u64> {
        self.waits.then_some(self.since_ms + WINDOW_MS)
    }

    /// Returns true once when waiting changes are allowed.
    pub fn are_due(&mut self, now_ms: u64) -> bool {
        let due = self.due_ms().is_some_and(|at| at <= now_ms);
        self.waits &= !due;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(at: usize) -> WorkId {
        format!("job_{at}").parse().unwrap()
    }

    #[test]
    fn changes_of_one_piece_of_work_are_limited() {
        let mut words = ChangeRate::default();
        let changed = (0..1_000).filter(|at| words.may_change(&work(1), 40_000 + at));
        assert_eq!(changed.count(), MAX_PER_WORK);
        assert_eq!(words.due_ms(), Some(70_000));
        assert!(words.may_change(&work(2), 41_000), "others are heard");
        assert!(!words.are_due(69_999));
        assert!(words.are_due(70_000) && !words.are_due(70_000));
        assert!(words.may_change(&work(1), 70_000));
    }

    #[test]
    fn changes_of_all_work_together_are_limited() {
        let mut words = ChangeRate::default();
        let changed = (0..100_000).filter(|at| words.may_change(&work(*at), 50_000));
        assert_eq!(changed.count(), MOST);
        let changed = (0..100_000).filter(|at| words.may_change(&work(*at), 80_000));
        assert_eq!(changed.count(), MOST);
    }
}
