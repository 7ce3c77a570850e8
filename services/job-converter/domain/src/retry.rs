//! Which failures of a task are tried again (TC-126).

use std::collections::BTreeSet;

/// Cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureCause {
    Exited,
    Signalled,
    CannotStart,
    OutOfMemory,
    TimeLimit,
    /// A cause that jobs cannot choose. It is always tried again.
    Unknown,
}

/// A failure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub cause: FailureCause,
    pub exit_code: Option<i32>,
}

/// Failures that are tried again while attempts are left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    pub causes: BTreeSet<FailureCause>,
    /// Exit codes that are tried again. Empty means all.
    pub exit_codes: BTreeSet<i32>,
    /// Exit codes that are never tried again.
    pub never_exit_codes: BTreeSet<i32>,
    /// Milliseconds before the second attempt. It doubles with each further one.
    pub delay_ms: u64,
    pub max_delay_ms: u64,
}

impl Default for RetryPolicy {
    /// Out of memory and the time limit would be reached again, so they are left out.
    fn default() -> Self {
        use FailureCause::{CannotStart, Exited, Signalled};
        Self {
            causes: [Exited, Signalled, CannotStart].into(),
            exit_codes: BTreeSet::new(),
            never_exit_codes: BTreeSet::new(),
            delay_ms: 0,
            max_delay_ms: 60_000,
        }
    }
}

impl RetryPolicy {
    /// Returns the milliseconds before the next attempt of a task after this many failures. They
    /// differ by up to 10 % between tasks, so that failures at one time are not repeated at one
    /// time.
    pub fn delay_ms(&self, task: u64, failures: u32) -> u64 {
        let doublings = failures.saturating_sub(1).min(32);
        let delay = self
            .delay_ms
            .saturating_mul(1 << doublings)
            .min(self.max_delay_ms);
        let thousandths = 900 + task.wrapping_mul(2_654_435_761) % 201;
        delay.saturating_mul(thousandths) / 1_000
    }

    /// Returns whether a failure is tried again.
    pub fn is_tried_again(&self, failure: Failure) -> bool {
        match (failure.cause, failure.exit_code) {
            (FailureCause::Unknown, _) => true,
            (cause, _) if !self.causes.contains(&cause) => false,
            (FailureCause::Exited, Some(code)) => {
                let is_named = self.exit_codes.is_empty() || self.exit_codes.contains(&code);
                is_named && !self.never_exit_codes.contains(&code)
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAUSES: [FailureCause; 5] = [
        FailureCause::Exited,
        FailureCause::Signalled,
        FailureCause::CannotStart,
        FailureCause::OutOfMemory,
        FailureCause::TimeLimit,
    ];

    fn exited(code: i32) -> Failure {
        Failure {
            cause: FailureCause::Exited,
            exit_code: Some(code),
        }
    }

    #[test]
    fn only_named_exit_codes_are_tried_again_and_never_wins() {
        let policy = RetryPolicy {
            exit_codes: [2, 75].into(),
            never_exit_codes: [2].into(),
            ..RetryPolicy::default()
        };
        let tried_again = [1, 2, 75].map(|code| policy.is_tried_again(exited(code)));
        assert_eq!(tried_again, [false, false, true]);
    }

    #[test]
    fn a_reached_limit_is_tried_again_only_if_it_is_named() {
        let failure = |cause| Failure {
            cause,
            exit_code: None,
        };
        let limit = failure(FailureCause::TimeLimit);
        assert!(!RetryPolicy::default().is_tried_again(limit));
        let policy = RetryPolicy {
            causes: [FailureCause::TimeLimit].into(),
            ..RetryPolicy::default()
        };
        assert!(policy.is_tried_again(limit));
        assert!(!policy.is_tried_again(failure(FailureCause::Signalled)));
        assert!(policy.is_tried_again(failure(FailureCause::Unknown)));
    }

    proptest! {
        /// The delay doubles up to its maximum, and tasks differ by 10 % at most.
        #[test]
        fn a_delay_stays_within_ten_percent(
            delay_ms in 0..10_000_u64, max_delay_ms in 0..100_000_u64, task: u64,
            failures in 1..200_u32,
        ) {
            let policy = RetryPolicy { delay_ms, max_delay_ms, ..RetryPolicy::default() };
            let doubled = u128::from(delay_ms) << (failures - 1).min(60);
            let exact = u64::try_from(doubled.min(u128::from(max_delay_ms))).unwrap();
            let delay = policy.delay_ms(task, failures);
            prop_assert!((exact * 9 / 10..=exact * 11 / 10).contains(&delay), "{delay}, {exact}");
        }

        /// Exit codes decide about exits only, and what is never tried again wins.
        #[test]
        fn a_policy_obeys_its_lists(
            causes in prop::collection::btree_set(prop::sample::select(&CAUSES[..]), 0..5),
            exit_codes in prop::collection::btree_set(1..6_i32, 0..4),
            never_exit_codes in prop::collection::btree_set(1..6_i32, 0..4),
            cause in prop::sample::select(&CAUSES[..]), code in 1..6_i32,
        ) {
            let policy = RetryPolicy {
                causes, exit_codes, never_exit_codes, ..RetryPolicy::default()
            };
            let is_exit = cause == FailureCause::Exited;
            let failure = Failure { cause, exit_code: is_exit.then_some(code) };
            let is_tried_again = policy.is_tried_again(failure);
            prop_assert!(!is_tried_again || policy.causes.contains(&cause));
            prop_assert!(!is_exit || !is_tried_again || !policy.never_exit_codes.contains(&code));
            if !is_exit {
                prop_assert_eq!(is_tried_again, policy.causes.contains(&cause));
            }
        }
    }
}
