//! How many successes complete a job (TC-133).

/// Numbers of tasks of a job that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedTasks {
    pub succeeded: u64,
    /// Number of tasks that were cancelled one by one. They do not count.
    pub cancelled: u64,
    pub total: u64,
}

impl EndedTasks {
    /// Returns whether at least this part of the tasks succeeded, in percent.
    pub fn reach(self, success_percent: u32) -> bool {
        let counted = u128::from(self.total.saturating_sub(self.cancelled));
        u128::from(self.succeeded) * 100 >= counted * u128::from(success_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_required_part_is_exact_and_cancelled_tasks_do_not_count() {
        for (succeeded, cancelled, total, percent, is_reached) in [
            (90, 0, 100, 90, true),
            (89, 0, 100, 90, false),
            (2, 0, 3, 66, true),
            (2, 0, 3, 67, false),
            (81, 10, 100, 90, true),
            (80, 10, 100, 90, false),
            (99, 0, 100, 100, false),
            (u64::MAX, 0, u64::MAX, 100, true),
        ] {
            let ended = EndedTasks {
                succeeded,
                cancelled,
                total,
            };
            assert_eq!(ended.reach(percent), is_reached, "{ended:?} {percent}");
        }
    }
}
