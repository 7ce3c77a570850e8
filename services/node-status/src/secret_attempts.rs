//! Token bucket for wrong secrets. Valid secrets are refunded, so that the enrolment of a fleet is
//! not slowed down (S28).

use parking_lot::Mutex;

/// Capacity of the bucket, in attempts.
const MAX_ATTEMPTS: u64 = 50;
/// Milliseconds until one attempt is refilled.
const REFILL_MS: u64 = 200;

#[derive(Default)]
pub struct SecretAttempts(Mutex<Used>);

#[derive(Default)]
struct Used {
    attempts: u64,
    at_ms: u64,
}

impl SecretAttempts {
    /// Takes one attempt. Returns false if none is available.
    pub fn try_take(&self, now_ms: u64) -> bool {
        let mut used = self.0.lock();
        let refilled = now_ms.saturating_sub(used.at_ms) / REFILL_MS;
        used.attempts = used.attempts.saturating_sub(refilled);
        used.at_ms += refilled * REFILL_MS;
        let is_available = used.attempts < MAX_ATTEMPTS;
        used.attempts += u64::from(is_available);
        is_available
    }

    /// Returns the attempt of a valid secret.
    pub fn refund(&self) {
        let mut used = self.0.lock();
        used.attempts = used.attempts.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_run_out_and_are_refilled() {
        let attempts = SecretAttempts::default();
        for _ in 0..MAX_ATTEMPTS {
            assert!(attempts.try_take(1_000_000));
        }
        assert!(!attempts.try_take(1_000_000));
        assert!(attempts.try_take(1_000_000 + REFILL_MS));
        assert!(!attempts.try_take(1_000_000 + REFILL_MS));
        attempts.refund();
        assert!(attempts.try_take(1_000_000 + REFILL_MS));
    }
}
