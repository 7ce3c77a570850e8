//! Limits attempts with wrong secrets by a token bucket. Attempts with valid secrets are refunded,
//! so that the enrolment of a fleet is not slowed down (S28).

use parking_lot::Mutex;

/// Capacity of the bucket, in attempts.
const MAX_ATTEMPTS: u64 = 50;
/// Milliseconds until one attempt is refilled.
const REFILL_MS: u64 = 200;

#[derive(Default)]
pub struct SecretAttempts(Mutex<UsedAttempts>);

#[derive(Default)]
struct UsedAttempts {
    count: u64,
    /// Time up to which attempts were refilled, in milliseconds.
    refilled_until_ms: u64,
}

impl SecretAttempts {
    /// Takes one attempt. Returns false if none is available.
    pub fn try_take(&self, now_ms: u64) -> bool {
        let mut used = self.0.lock();
        let refilled = now_ms.saturating_sub(used.refilled_until_ms) / REFILL_MS;
        used.count = used.count.saturating_sub(refilled);
        used.refilled_until_ms += refilled * REFILL_MS;
        let is_available = used.count < MAX_ATTEMPTS;
        used.count += u64::from(is_available);
        is_available
    }

    /// Returns the attempt of a valid secret.
    pub fn refund(&self) {
        let mut used = self.0.lock();
        used.count = used.count.saturating_sub(1);
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
