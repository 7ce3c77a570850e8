//! Counted retries: decides after a failure whether and when a processor starts again.

/// Milliseconds added to the delay before the last retry, for clock differences.
pub const CLOCK_SKEW_MS: u64 = 1_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// Number of retries. Below 0, retries are unlimited and not counted.
    pub count: i32,
    /// Failures that are at least this many ms apart are not counted together.
    pub window_ms: u64,
    /// Delay before the last retry in ms.
    pub last_delay_ms: u64,
    /// Whether the service fails with the first processor that has no retries left.
    pub fail_service: bool,
}

impl Retries {
    pub const UNLIMITED: Self = Self {
        count: -1,
        window_ms: 0,
        last_delay_ms: 0,
        fail_service: false,
    };

    pub fn describe(&self) -> String {
        match self.count {
            0 => "it may not fail even once".to_owned(),
            count => format!(
                "it failed once more than {count} times, less than {} ms apart",
                self.window_ms
            ),
        }
    }
}

/// Counted failures of one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureRecord {
    /// Number of failures, each within the window after the one before.
    pub count: u32,
    /// Time of the last failure in ms of the wall clock, since it outlives a term.
    pub last_failure_ms: i64,
    /// Delay of the last retry in ms.
    pub last_delay_ms: u64,
}

impl FailureRecord {
    /// Returns the remaining delay of the last retry, for use after a restart.
    pub fn remaining_delay_ms(&self, now_ms: i64) -> u64 {
        let elapsed = u64::try_from(now_ms.saturating_sub(self.last_failure_ms)).unwrap_or(0);
        self.last_delay_ms.saturating_sub(elapsed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// The processor is retried without a record.
    Uncounted,
    /// The processor is retried after the delay in the record.
    Retry(FailureRecord),
    /// The processor is not retried. The record is unchanged.
    Exhausted,
}

/// Counts one more failure. `requests_node` means that the retry requests one node, not any.
pub fn count_failure(
    record: Option<&FailureRecord>,
    retries: &Retries,
    now_ms: i64,
    requests_node: bool,
) -> RetryDecision {
    // Unlimited retries keep no record.
    let Ok(limit) = u32::try_from(retries.count) else {
        return RetryDecision::Uncounted;
    };
    if limit == 0 {
        return RetryDecision::Exhausted;
    }
    // Only the gap to the previous failure counts.
    let count = match record {
        None => 1,
        Some(record) => {
            let delay = i64::try_from(record.last_delay_ms).unwrap_or(i64::MAX);
            let gap = now_ms.saturating_sub(record.last_failure_ms.saturating_add(delay));
            let window = i64::try_from(retries.window_ms).unwrap_or(i64::MAX);
            if gap >= window {
                1
            } else {
                record.count.saturating_add(1)
            }
        }
    };
    // All retries are used up.
    if count > limit {
        return RetryDecision::Exhausted;
    }
    // The last retry on the last node waits longer.
    let last_delay_ms = if count == limit && requests_node {
        retries.last_delay_ms.saturating_add(CLOCK_SKEW_MS)
    } else {
        0
    };
    RetryDecision::Retry(FailureRecord {
        count,
        last_failure_ms: now_ms,
        last_delay_ms,
    })
}
