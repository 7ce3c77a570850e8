//! Pauses between attempts: longer each time, never the same for all agents of a fleet.

use std::time::Duration;

const FIRST_MS: u64 = 200;
const MOST_MS: u64 = 5_000;

#[derive(Debug, Default)]
pub struct Pause {
    failures: u32,
}

impl Pause {
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// True for the first failure in a row: the one worth a line in the log.
    pub fn is_new(&self) -> bool {
        self.failures == 0
    }

    pub async fn wait(&mut self) {
        let most = (FIRST_MS << self.failures.min(10)).min(MOST_MS);
        self.failures = self.failures.saturating_add(1);
        let pause = rand::random_range(most / 2..=most);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}
