//! How many tasks to ask for: enough that the next answer is there before the last task ends, and
//! not so many that a slow process hoards what others could run.

/// Most tasks in one request.
pub const MOST: u32 = 256;
/// Work to hold, in microseconds: some hundred milliseconds.
const HOLD_US: u64 = 300_000;

/// The pace of a task runner: how long tasks take there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    threads: u32,
    /// Mean of the last tasks; absent until one has finished.
    mean_us: Option<u64>,
}

impl Pace {
    pub fn new(threads: u32) -> Self {
        Self {
            threads: threads.clamp(1, MOST),
            mean_us: None,
        }
    }

    pub fn threads(self) -> u32 {
        self.threads
    }

    /// Learns from a finished task. The eighth part of each new one counts.
    pub fn learn(&mut self, duration_us: u64) {
        self.mean_us = Some(match self.mean_us {
            None => duration_us.max(1),
            Some(mean) => (mean - mean / 8).saturating_add(duration_us / 8).max(1),
        });
    }

    /// Tasks to hold, waiting and running together.
    pub fn hold(self) -> u32 {
        let each = match self.mean_us {
            // One to run and one to go on with, until more is known.
            None => 2,
            Some(mean) => u32::try_from(HOLD_US / mean).unwrap_or(MOST).clamp(1, MOST),
        };
        each.saturating_mul(self.threads)
            .clamp(self.threads, MOST.max(self.threads))
    }

    /// Tasks to ask for when `held` are waiting or running; 0 while more than half are there.
    pub fn want(self, held: u32) -> u32 {
        let most = self.hold();
        if held > most / 2 {
            0
        } else {
            (most - held).min(MOST)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_tasks_come_in_crowds_and_long_ones_singly() {
        let mut pace = Pace::new(1);
        assert_eq!(pace.want(0), 2);
        for _ in 0..100 {
            pace.learn(1_000);
        }
        assert!(pace.want(0) >= 200);
        assert_eq!(pace.want(200), 0);
        for _ in 0..100 {
            pace.learn(60_000_000);
        }
        assert_eq!(pace.want(0), 1);
        assert_eq!(pace.want(1), 0);
    }

    proptest! {
        #[test]
        fn never_idle_and_never_too_many(
            threads in 0..600_u32, tasks in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let mut pace = Pace::new(threads);
            for duration in tasks {
                pace.learn(duration);
            }
            prop_assert!((1..=MOST).contains(&pace.want(0)));
            prop_assert!(pace.hold() >= threads.clamp(1, MOST));
        }
    }
}
