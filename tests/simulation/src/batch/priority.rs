//! Priority of a job by the recent usage of its user.
//!
//! The formula is 10000 · 2^(−U_u/U·N) + 1000 · min(age ÷ 7 d, 1), where usage halves every 7 days.
//! U_u is the usage of the user, U of all users, and N the number of users. It is computed in fixed
//! point, so that the result is the same on every computer.

use std::cmp::Reverse;

use crate::{case::Case, trace::Job};

const HALF_LIFE_S: u64 = 7 * 86_400;
const FAIRNESS_WEIGHT: u128 = 10_000;
const AGE_WEIGHT: u128 = 1_000;
/// Binary places of the fixed-point factors and exponents in this file.
const FRACTION_BITS: u32 = 48;
/// Binary places of the stored usage.
const USAGE_FRACTION_BITS: u32 = 16;
const ONE: u128 = 1 << FRACTION_BITS;

/// Usage of all users, from which priorities are computed.
pub(super) struct Priorities {
    /// The factors 2^(−1/2), 2^(−1/4), … in fixed point.
    half_roots: Vec<u128>,
    /// Decayed usage by user, in thousandths of a core-second, with [`USAGE_FRACTION_BITS`].
    usage: Vec<u128>,
    /// CPU of the running jobs by user, in thousandths of a core.
    rate: Vec<u64>,
    /// Number of users with jobs in the trace.
    active_users: u128,
    now: u64,
}

impl Priorities {
    pub fn new(case: &Case) -> Self {
        let mut has_jobs = vec![false; case.workload.users.len()];
        for job in &case.jobs {
            has_jobs[job.user] = true;
        }
        let half_roots =
            std::iter::successors(Some((ONE << FRACTION_BITS >> 1).isqrt()), |half_root| {
                Some((half_root << FRACTION_BITS).isqrt())
            });
        Self {
            half_roots: half_roots.take(FRACTION_BITS as usize).collect(),
            usage: vec![0; has_jobs.len()],
            rate: vec![0; has_jobs.len()],
            active_users: has_jobs.iter().filter(|has_jobs| **has_jobs).count() as u128,
            now: 0,
        }
    }

    /// Returns 2^(−exponent) in fixed point.
    fn half_power(&self, exponent: u128) -> u128 {
        let halvings = u32::try_from(exponent >> FRACTION_BITS).unwrap_or(u32::MAX);
        if halvings > FRACTION_BITS {
            return 0;
        }
        // Each bit after the binary point multiplies by its root of one half.
        let mut power = ONE >> halvings;
        for (bit, half_root) in (1_u32..).zip(&self.half_roots) {
            if exponent >> (FRACTION_BITS - bit) & 1 == 1 {
                power = (power * half_root) >> FRACTION_BITS;
            }
        }
        power
    }

    /// Decays all usage up to `now`, and adds the usage of the running jobs.
    pub fn advance(&mut self, now: u64) {
        let elapsed_s = now - self.now;
        self.now = now;
        if elapsed_s == 0 {
            return;
        }
        let exponent = (u128::from(elapsed_s) << FRACTION_BITS) / u128::from(HALF_LIFE_S);
        let factor = self.half_power(exponent);
        for (usage, rate) in self.usage.iter_mut().zip(&self.rate) {
            // Both factors are shortened by 16 bits, so that the product overflows only after 10^15
            // core-seconds.
            let decayed = ((*usage >> 16) * (factor >> 16)) >> (FRACTION_BITS - 32);
            *usage = decayed + ((u128::from(*rate) * u128::from(elapsed_s)) << USAGE_FRACTION_BITS);
        }
    }

    pub fn record_start(&mut self, job: &Job) {
        self.rate[job.user] += job.request.cpu_milli * job.tasks;
    }

    pub fn record_stop(&mut self, job: &Job) {
        self.rate[job.user] -= job.request.cpu_milli * job.tasks;
    }

    /// Sorts the queue by priority, highest first. Equal priorities are ordered by submission.
    pub fn sort(&self, queue: &mut [usize], case: &Case, now: u64) {
        let total_usage: u128 = self.usage.iter().sum::<u128>().max(1);
        // The quotient has only 24 binary places, so that the shifted usage does not overflow.
        let fairness_factors: Vec<u128> = self
            .usage
            .iter()
            .map(|usage| {
                self.half_power(
                    ((usage << 24) / total_usage * self.active_users) << (FRACTION_BITS - 24),
                )
            })
            .collect();
        queue.sort_by_key(|job| {
            let age = (now - case.submit_s(*job)).min(HALF_LIFE_S);
            let age_term = AGE_WEIGHT * u128::from(age) * ONE / u128::from(HALF_LIFE_S);
            (
                Reverse(FAIRNESS_WEIGHT * fairness_factors[case.jobs[*job].user] + age_term),
                *job,
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Workload;

    #[test]
    fn powers_of_one_half_are_accurate() {
        let workload = Workload::default();
        let priorities = Priorities::new(&Case::rigid(&workload, &[]));
        assert_eq!(priorities.half_power(0), ONE);
        assert_eq!(priorities.half_power(3 * ONE), ONE / 8);
        // 2^(−0.5)² = 1/2
        let half_root = priorities.half_power(ONE / 2);
        assert!((ONE / 2).abs_diff((half_root * half_root) >> FRACTION_BITS) < 16);
        assert_eq!(priorities.half_power(100 * ONE), 0);
    }
}
