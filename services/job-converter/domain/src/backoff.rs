//! Crash-loop backoff. When a process of some work ends without progress, the work is held back: no
//! new process starts during the hold. Each next hold is twice as long. A job is given up after too
//! many such ends in a row.
//!
//! Further ends during a hold are not counted, because they have the same cause. A thousand
//! processes that fail together on a bad program are one failure.

/// Backoff parameters of one kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// First hold in milliseconds. Each next hold is twice as long.
    pub first_ms: u64,
    /// Longest hold in milliseconds.
    pub longest_ms: u64,
    /// Number of failures in a row after which work is given up. 0 means never.
    pub max_failures: u32,
}

impl BackoffPolicy {
    pub const JOB: Self = Self {
        first_ms: 1_000,
        longest_ms: 60_000,
        max_failures: 10,
    };
    /// A service is never given up.
    pub const SERVICE: Self = Self {
        max_failures: 0,
        ..Self::JOB
    };
    /// Milliseconds after which a service process counts as healthy. The next failure then starts
    /// with the first hold.
    pub const HEALTHY_AFTER_MS: u64 = 60_000;
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    /// Number of counted ends without progress in a row.
    failures: u32,
    /// End of the last hold by the monotonic clock. `None` without failures.
    held_until_ms: Option<u64>,
}

impl Backoff {
    /// Restores the count after a restart. The hold starts again by the new monotonic clock.
    pub fn restored(failures: u32, now_ms: u64, policy: &BackoffPolicy) -> Self {
        let mut backoff = Self {
            failures,
            held_until_ms: None,
        };
        if failures > 0 {
            backoff.held_until_ms = Some(now_ms.saturating_add(backoff.hold_ms(policy)));
        }
        backoff
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    fn hold_ms(&self, policy: &BackoffPolicy) -> u64 {
        // The limit only avoids an overflow of the shift.
        let doublings = self.failures.saturating_sub(1).min(30);
        policy
            .first_ms
            .saturating_mul(1 << doublings)
            .min(policy.longest_ms)
    }

    /// Counts an end without progress. Returns true if a new hold begins.
    pub fn record_failure(&mut self, now_ms: u64, policy: &BackoffPolicy) -> bool {
        if self.is_held(now_ms) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.held_until_ms = Some(now_ms.saturating_add(self.hold_ms(policy)));
        true
    }

    /// Records progress. Returns true if failures were cleared.
    pub fn clear(&mut self) -> bool {
        let had_failures = self.failures > 0;
        *self = Self::default();
        had_failures
    }

    pub fn is_held(&self, now_ms: u64) -> bool {
        self.held_until_ms.is_some_and(|until| now_ms < until)
    }

    pub fn held_until_ms(&self) -> Option<u64> {
        self.held_until_ms
    }

    /// Returns true if the work must be given up.
    pub fn is_exhausted(&self, policy: &BackoffPolicy) -> bool {
        policy.max_failures > 0 && self.failures >= policy.max_failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_double_up_to_the_longest_and_a_job_is_given_up() {
        let (mut backoff, mut now_ms, mut hold_seconds) = (Backoff::default(), 0, Vec::new());
        while !backoff.is_exhausted(&BackoffPolicy::JOB) {
            assert!(backoff.record_failure(now_ms, &BackoffPolicy::JOB));
            assert!(
                !backoff.record_failure(now_ms, &BackoffPolicy::JOB),
                "failures at the same time count once"
            );
            let until_ms = backoff.held_until_ms().unwrap();
            hold_seconds.push((until_ms - now_ms) / 1000);
            now_ms = until_ms;
            assert!(!backoff.is_held(now_ms));
        }
        assert_eq!(hold_seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
    }

    #[test]
    fn progress_clears_failures_and_a_service_is_never_given_up() {
        let mut backoff = Backoff::default();
        for now_ms in (0..1_000_000).step_by(100_000) {
            backoff.record_failure(now_ms, &BackoffPolicy::SERVICE);
        }
        assert!(!backoff.is_exhausted(&BackoffPolicy::SERVICE));
        assert!(backoff.clear());
        assert!(!backoff.clear());
        assert!(!backoff.is_held(0));
    }

    #[test]
    fn a_restart_restores_the_count_and_holds_again() {
        let backoff = Backoff::restored(3, 50, &BackoffPolicy::JOB);
        assert_eq!(backoff.held_until_ms(), Some(50 + 4_000));
        assert!(!Backoff::restored(0, 50, &BackoffPolicy::JOB).is_held(50));
    }
}
