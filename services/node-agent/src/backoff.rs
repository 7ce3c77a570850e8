//! Exponential backoff with jitter between the attempts of one loop.

use std::time::Duration;

/// Longest pause after the first failure, in milliseconds. It doubles with each failure.
const FIRST_MS: u64 = 200;
/// Longest pause after any failure, in milliseconds.
const MAX_MS: u64 = 5_000;

#[derive(Debug, Default)]
pub struct Backoff {
    /// Number of failures in a row.
    failures: u32,
}

impl Backoff {
    /// Records a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns true until the first [`wait`](Self::wait) since the last success. Only the first
    /// failure in a row is logged.
    pub fn is_first_failure(&self) -> bool {
        self.failures == 0
    }

    /// Counts a failure, and waits for half to all of the longest pause.
    pub async fn wait(&mut self) {
        let max_ms = (FIRST_MS << self.failures.min(10)).min(MAX_MS);
        self.failures = self.failures.saturating_add(1);
        let pause_ms = rand::random_range(max_ms / 2..=max_ms);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}
