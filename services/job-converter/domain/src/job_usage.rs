//! Usage of all runs of a job: sums, and the distribution of memory and wall time.

use std::collections::BTreeMap;

/// Buckets for each doubling of an amount, so a quantile is at most 9 % too large.
const BUCKETS_PER_DOUBLING: f64 = 8.0;

/// Amounts that one run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAmounts {
    pub cpu_us: u64,
    pub wall_us: u64,
    pub memory_bytes: u64,
}

/// Usage of the counted runs of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobUsage {
    pub cpu_us: u64,
    pub wall_us: u64,
    pub memory: Distribution,
    pub wall: Distribution,
}

impl JobUsage {
    /// Returns the number of runs that were measured.
    pub fn runs(&self) -> u64 {
        self.memory.count()
    }

    pub fn record(&mut self, run: &RunAmounts) {
        self.cpu_us = self.cpu_us.saturating_add(run.cpu_us);
        self.wall_us = self.wall_us.saturating_add(run.wall_us);
        self.memory.record(run.memory_bytes);
        self.wall.record(run.wall_us);
    }
}

/// Distribution of an amount, in buckets of growing width.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    counts: BTreeMap<i32, u64>,
    max: u64,
}

impl Distribution {
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn record(&mut self, amount: u64) {
        self.restore(bucket(amount), 1, amount);
    }

    /// Adds `count` amounts of a bucket, of which the largest is `max`.
    pub fn restore(&mut self, bucket: i32, count: u64, max: u64) {
        *self.counts.entry(bucket).or_default() += count;
        self.max = self.max.max(max);
    }

    /// Returns an upper bound of the smallest amount that at least `percent` of all amounts do not
    /// exceed. It is never above the largest amount.
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in &self.counts {
            seen += count;
            if seen >= rank {
                return upper_bound(*bucket).min(self.max);
            }
        }
        self.max
    }
}

/// Returns the bucket of an amount. Rows are grouped by the same function in SQL.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a bucket is an approximation, and the logarithm of an amount is below 64"
)]
fn bucket(amount: u64) -> i32 {
    ((amount.max(1) as f64).log2() * BUCKETS_PER_DOUBLING).floor() as i32
}

/// Returns the largest amount of a bucket.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and powers are positive"
)]
fn upper_bound(bucket: i32) -> u64 {
    (f64::from(bucket + 1) / BUCKETS_PER_DOUBLING).exp2().ceil() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_close_and_never_above_the_largest() {
        let mut distribution = Distribution::default();
        assert_eq!((distribution.percentile(50), distribution.count()), (0, 0));
        for mebibytes in 1..=100_u64 {
            distribution.record(mebibytes << 20);
        }
        let median = distribution.percentile(50) >> 20;
        let tail = distribution.percentile(95) >> 20;
        assert!((50..=55).contains(&median), "{median}");
        assert!((95..=100).contains(&tail), "{tail}");
        assert_eq!(distribution.percentile(100), 100 << 20);
        assert_eq!(distribution.max(), 100 << 20);
    }

    #[test]
    fn usage_is_summed_over_runs() {
        let mut usage = JobUsage::default();
        for _ in 0..2 {
            usage.record(&RunAmounts {
                cpu_us: 3,
                wall_us: 10,
                memory_bytes: 0,
            });
        }
        assert_eq!((usage.runs(), usage.cpu_us, usage.wall_us), (2, 6, 20));
        assert_eq!(usage.memory.percentile(50), 0, "an amount of zero");
    }

    proptest! {
        #[test]
        fn a_percentile_is_between_the_amount_and_the_next_bucket(
            amounts in prop::collection::vec(1..u64::MAX >> 12, 1..50),
            percent in 1..=100_u64,
        ) {
            let mut distribution = Distribution::default();
            for amount in &amounts {
                distribution.record(*amount);
            }
            let mut sorted = amounts.clone();
            sorted.sort_unstable();
            let rank = (sorted.len() as u64 * percent).div_ceil(100).max(1);
            let exact = sorted[usize::try_from(rank).unwrap() - 1];
            let found = distribution.percentile(percent);
            prop_assert!(found >= exact.min(distribution.max()), "{found} {exact}");
            prop_assert!(found <= exact + exact / 10 + 1, "{found} {exact}");
        }
    }
}
