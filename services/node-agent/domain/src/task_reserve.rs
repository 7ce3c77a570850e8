//! Decides how many tasks a task runner requests from job-converter: one for each idle slot, and a
//! reserve of short tasks, so that a slot does not wait for a request between two tasks.

/// Maximum number of slots, and of reserved tasks.
pub const MAX_TASKS: u32 = 256;
/// Longest time in milliseconds that a task may wait in the reserve. Older tasks are returned, so
/// that a long task delays no other task for longer (TC-4).
pub const RESERVE_HORIZON_MS: u64 = 250;

/// Sizes the task requests of one runner by the average duration of its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveSizer {
    /// Number of tasks that run at once.
    slots: u32,
    /// Moving average of the duration of a task, in microseconds. `None` until a task has finished.
    mean_us: Option<u64>,
}

impl ReserveSizer {
    pub fn new(slots: u32) -> Self {
        Self {
            slots: slots.clamp(1, MAX_TASKS),
            mean_us: None,
        }
    }

    pub fn slots(self) -> u32 {
        self.slots
    }

    /// Adds a finished task to the moving average, with weight 1/8.
    pub fn record(&mut self, duration_us: u64) {
        self.mean_us = Some(match self.mean_us {
            None => duration_us.max(1),
            Some(mean) => (mean - mean / 8).saturating_add(duration_us / 8).max(1),
        });
    }

    /// Returns the number of tasks that start within the horizon, while `long_running` tasks have
    /// run for longer than that. It is 0 while the duration of a task is unknown or longer than the
    /// horizon.
    pub fn target(self, long_running: u32) -> u32 {
        let horizon_us = RESERVE_HORIZON_MS * 1_000;
        let Some(mean_us) = self.mean_us.filter(|mean| *mean <= horizon_us) else {
            return 0;
        };
        let slots = self.slots.saturating_sub(long_running);
        let tasks = (u64::from(slots) * horizon_us).div_ceil(mean_us);
        u32::try_from(tasks).unwrap_or(MAX_TASKS).min(MAX_TASKS)
    }

    /// Returns the number of slots that run nothing while `unfinished` tasks wait or run.
    pub fn idle(self, unfinished: u32) -> u32 {
        self.slots.saturating_sub(unfinished)
    }

    /// Returns the number of tasks to request while `unfinished` tasks wait or run. While all slots
    /// are busy, it is 0 until half of the reserve has started. `long_running` is the number of
    /// tasks that have run for longer than the horizon.
    pub fn request_count(self, unfinished: u32, long_running: u32) -> u32 {
        let target = self.target(long_running);
        let idle = self.idle(unfinished);
        if idle > 0 {
            return idle + target;
        }
        let reserve = unfinished - self.slots;
        if reserve > target / 2 {
            0
        } else {
            target - reserve
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_tasks_are_requested_in_batches_and_long_ones_singly() {
        let mut sizer = ReserveSizer::new(1);
        assert_eq!(sizer.request_count(0, 0), 1, "the duration is unknown");
        assert_eq!(sizer.request_count(1, 0), 0);
        for _ in 0..100 {
            sizer.record(1_000);
        }
        assert!(sizer.request_count(0, 0) >= 200);
        assert_eq!(sizer.request_count(200, 0), 0);
        assert_eq!(
            sizer.request_count(1, 1),
            0,
            "the only slot is busy for long"
        );
        for _ in 0..100 {
            sizer.record(60_000_000);
        }
        assert_eq!(sizer.request_count(0, 0), 1);
        assert_eq!(sizer.request_count(1, 0), 0);
    }

    #[test]
    fn an_idle_slot_is_requested_for_while_the_others_are_busy() {
        let sizer = ReserveSizer::new(4);
        assert_eq!((sizer.idle(3), sizer.request_count(3, 0)), (1, 1));
        assert_eq!((sizer.idle(4), sizer.request_count(4, 0)), (0, 0));
    }

    proptest! {
        #[test]
        fn every_idle_slot_is_requested_for(
            slots in 0..600_u32,
            durations in prop::collection::vec(any::<u64>(), 0..50),
            unfinished in 0..1_000_u32,
        ) {
            let mut sizer = ReserveSizer::new(slots);
            for duration in durations {
                sizer.record(duration);
            }
            let count = sizer.request_count(unfinished, 0);
            prop_assert!(count >= sizer.idle(unfinished));
            prop_assert!(count <= sizer.idle(unfinished) + MAX_TASKS);
        }
    }
}
