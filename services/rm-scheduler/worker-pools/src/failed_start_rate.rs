//! Rate of failed starts within a minute.

use std::collections::VecDeque;

const MINUTE_MS: u64 = 60_000;

/// Times of failed starts in the last minute, in monotonic milliseconds, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedStartRate(VecDeque<u64>);

impl FailedStartRate {
    /// Records a failed start. Returns true if there are more than `limit` within the last minute.
    pub fn record(&mut self, now_ms: u64, limit: u64) -> bool {
        while self
            .0
            .front()
            .is_some_and(|time| time + MINUTE_MS <= now_ms)
        {
            self.0.pop_front();
        }
        self.0.push_back(now_ms);
        // One time more than the limit is enough to find an excess, so older times are dropped.
        let capacity = usize::try_from(limit)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        while self.0.len() > capacity {
            self.0.pop_front();
        }
        self.0.len() == capacity
    }
}
