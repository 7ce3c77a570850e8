//! Computes the demand of a piece of work. The numbers are coarse on purpose, so that the
//! publication does not change with each task.

/// Fields of a demand entry that change. All other fields are fixed at submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemandFields {
    pub max_processes: u64,
    /// Number of unfinished tasks, rounded up.
    pub remaining_tasks: u64,
    /// Mean time of a task in ms, rounded down. `None` before the first outcome.
    pub task_ms: Option<u64>,
}

/// Returns the current demand, or `None` if no tasks remain. While work is held back,
/// `held_processes` is the number of its live processes, and it requests no others.
/// `last_published_ms` is the mean that was published last. With it, a mean between two steps does
/// not alternate between them.
pub fn compute_demand(
    max_processes: u64,
    remaining: u64,
    mean_ms: Option<u64>,
    held_processes: Option<u64>,
    last_published_ms: Option<u64>,
) -> Option<DemandFields> {
    (remaining > 0).then(|| DemandFields {
        max_processes: held_processes.map_or(max_processes, |held| held.min(max_processes)),
        remaining_tasks: coarse_count(remaining),
        task_ms: mean_ms.map(|mean| steady_ms(mean, last_published_ms)),
    })
}

/// Rounds up to a number with two significant bits: 64, 96, 128, 192, 256, …. Counts below 64 are
/// not rounded.
pub fn coarse_count(count: u64) -> u64 {
    if count < 64 {
        return count;
    }
    let unit = 1_u64 << (count.ilog2() - 1);
    count.div_ceil(unit).saturating_mul(unit)
}

/// Returns the largest step that is not above `ms`. The steps are 1, 2, 3, 4, 6, 9, 13, …, each
/// half as large again.
pub fn coarse_ms(ms: u64) -> u64 {
    let mut step = 1_u64;
    while let Some(next) = step.checked_add((step / 2).max(1)) {
        if next > ms {
            break;
        }
        step = next;
    }
    step
}

/// Returns the last published step while the mean is within one step of it.
fn steady_ms(mean: u64, last_published_ms: Option<u64>) -> u64 {
    match last_published_ms {
        Some(step) if mean.saturating_mul(3) >= step.saturating_mul(2) && mean < step * 2 => step,
        _ => coarse_ms(mean),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_counts_are_exact_and_others_are_rounded_up() {
        assert_eq!(
            [0, 1, 63, 64, 65, 96, 97, 129].map(coarse_count),
            [0, 1, 63, 64, 96, 96, 128, 192]
        );
    }

    #[test]
    fn work_without_remaining_tasks_requests_nothing() {
        assert_eq!(compute_demand(4, 0, None, None, None), None);
        let held = compute_demand(4, 10, Some(70), Some(0), None).unwrap();
        assert_eq!((held.max_processes, held.remaining_tasks), (0, 10));
    }

    proptest! {
        #[test]
        fn a_job_of_a_million_tasks_rarely_changes_its_demand(total in 1..1_000_000_u64) {
            let steps: std::collections::BTreeSet<u64> =
                (0..=total).step_by((total / 5000).max(1) as usize).map(coarse_count).collect();
            // 64 exact counts, and two steps for each power of two up to a million.
            prop_assert!(steps.len() <= 64 + 2 * 20);
        }

        #[test]
        fn rounded_values_are_close_to_the_exact_ones(value in 1..u64::from(u32::MAX)) {
            let count = coarse_count(value);
            prop_assert!(count >= value && count <= value + value / 2);
            let ms = coarse_ms(value);
            prop_assert!(ms <= value && value < ms * 2);
        }

        #[test]
        fn a_mean_between_two_steps_does_not_alternate(value in 8..1_000_000_u64) {
            let published = steady_ms(value, None);
            prop_assert_eq!(steady_ms(value + value / 10, Some(published)), published);
            prop_assert_eq!(steady_ms(value - value / 10, Some(published)), published);
        }
    }
}
