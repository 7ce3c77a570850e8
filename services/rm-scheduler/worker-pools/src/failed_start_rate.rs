//! The rate of failed starts (15.2).

use std::collections::VecDeque;

const MINUTE_MS: u64 = 60_000;

/// Marks of the last minute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meter(VecDeque<u64>);

impl Meter {
    /// Marks a failed start; true when there are more than `limit` in this minute.
    pub fn mark(&mut self, now_ms: u64, limit: u64) -> bool {
        while self.0.front().is_some_and(|at| at + MINUTE_MS <= now_ms) {
            self.0.pop_front();
        }
        self.0.push_back(now_ms);
        // One more than the limit says all there is to know.
        let most = usize::try_from(limit)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        while self.0.len() > most {
            self.0.pop_front();
        }
        self.0.len() == most
    }
}
