//! Decides how many tasks a task runner requests from job-converter: enough to stay busy until the
//! next response, and few enough to leave tasks for other runners.

/// Maximum number of tasks in one request.
pub const MAX_TASKS: u32 = 256;
/// Target amount of queued work per thread, in microseconds.
const TARGET_QUEUE_US: u64 = 300_000;

/// Sizes the task requests of one runner by the average duration of its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSizer {
    /// Number of tasks that run at once.
    threads: u32,
    /// Moving average of the duration of a task, in microseconds. `None` until a task has finished.
    mean_us: Option<u64>,
}

impl BatchSizer {
    pub fn new(threads: u32) -> Self {
        Self {
            threads: threads.clamp(1, MAX_TASKS),
            mean_us: None,
        }
    }

    pub fn threads(self) -> u32 {
        self.threads
    }

    /// Adds a finished task to the moving average, with weight 1/8.
    pub fn record(&mut self, duration_us: u64) {
        self.mean_us = Some(match self.mean_us {
            None => duration_us.max(1),
            Some(mean) => (mean - mean / 8).saturating_add(duration_us / 8).max(1),
        });
    }

    /// Returns the target number of waiting and running tasks.
    pub fn target_count(self) -> u32 {
        let per_thread = match self.mean_us {
            // The duration is unknown, so one task runs and one more waits.
            None => 2,
            Some(mean) => u32::try_from(TARGET_QUEUE_US / mean)
                .unwrap_or(MAX_TASKS)
                .clamp(1, MAX_TASKS),
        };
        per_thread
            .saturating_mul(self.threads)
            .clamp(self.threads, MAX_TASKS.max(self.threads))
    }

    /// Returns the number of tasks to request while `unfinished` tasks wait or run. It is 0 while
    /// more than half of the target is unfinished.
    pub fn request_count(self, unfinished: u32) -> u32 {
        let target = self.target_count();
        if unfinished > target / 2 {
            0
        } else {
            (target - unfinished).min(MAX_TASKS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_tasks_are_requested_in_batches_and_long_ones_singly() {
        let mut sizer = BatchSizer::new(1);
        assert_eq!(sizer.request_count(0), 2);
        for _ in 0..100 {
            sizer.record(1_000);
        }
        assert!(sizer.request_count(0) >= 200);
        assert_eq!(sizer.request_count(200), 0);
        for _ in 0..100 {
            sizer.record(60_000_000);
        }
        assert_eq!(sizer.request_count(0), 1);
        assert_eq!(sizer.request_count(1), 0);
    }

    proptest! {
        #[test]
        fn requests_keep_threads_busy_within_the_limit(
            threads in 0..600_u32, durations in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let mut sizer = BatchSizer::new(threads);
            for duration in durations {
                sizer.record(duration);
            }
            prop_assert!((1..=MAX_TASKS).contains(&sizer.request_count(0)));
            prop_assert!(sizer.target_count() >= threads.clamp(1, MAX_TASKS));
        }
    }
}
