//! How many wrong secrets are listened to (S28). Right ones cost nothing, so a fleet that enrols
//! at once is not slowed down, and guessing is hopeless at any speed anyway.

use parking_lot::Mutex;

/// Wrong secrets in a row before patience ends.
const MOST: u64 = 50;
/// Milliseconds in which one more is earned.
const EARNED_MS: u64 = 200;

#[derive(Default)]
pub struct Patience(Mutex<Spent>);

#[derive(Default)]
struct Spent {
    tries: u64,
    at_ms: u64,
}

impl Patience {
    /// Takes one try; false when there is none left.
    pub fn spend(&self, now_ms: u64) -> bool {
        let mut spent = self.0.lock();
        let earned = now_ms.saturating_sub(spent.at_ms) / EARNED_MS;
        spent.tries = spent.tries.saturating_sub(earned);
        spent.at_ms += earned * EARNED_MS;
        let left = spent.tries < MOST;
        spent.tries += u64::from(left);
        left
    }

    /// The try was a good one.
    pub fn give_back(&self) {
        let mut spent = self.0.lock();
        spent.tries = spent.tries.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_and_comes_back() {
        let patience = Patience::default();
        for _ in 0..MOST {
            assert!(patience.spend(1_000_000));
        }
        assert!(!patience.spend(1_000_000));
        assert!(patience.spend(1_000_000 + EARNED_MS));
        assert!(!patience.spend(1_000_000 + EARNED_MS));
        patience.give_back();
        assert!(patience.spend(1_000_000 + EARNED_MS));
    }
}
