//! Priority of a job by the recent usage of its user. The formula is 10000 · 2^(−U_u/U·N) + 1000 ·
//! min(age ÷ 7 d, 1), where usage halves every 7 days. It is computed in fixed point, so that the
//! result is the same on every computer.

use std::cmp::Reverse;

use crate::{case::Case, trace::Job};

const HALF_LIFE_S: u64 = 7 * 86_400;
const FAIR: u128 = 10_000;
const AGE: u128 = 1_000;
/// Binary places of all fixed-point numbers in this file.
const PLACES: u32 = 48;
const ONE: u128 = 1 << PLACES;

pub(super) struct Priorities {
    /// The factors 2^(−1/2), 2^(−1/4), … in fixed point.
    roots: Vec<u128>,
    /// Decayed usage by user, in thousandths of a core-second.
    used: Vec<u128>,
    /// Current usage by user, in thousandths of a core.
    rate: Vec<u64>,
    users: u128,
    now: u64,
}

impl Priorities {
    pub fn new(case: &Case) -> Self {
        let mut present = vec![false; case.workload.users.len()];
        for job in &case.jobs {
            present[job.user] = true;
        }
        let roots = std::iter::successors(Some((ONE << PLACES >> 1).isqrt()), |root| {
            Some((root << PLACES).isqrt())
        });
        Self {
            roots: roots.take(PLACES as usize).collect(),
            used: vec![0; present.len()],
            rate: vec![0; present.len()],
            users: present.iter().filter(|present| **present).count() as u128,
            now: 0,
        }
    }

    /// Returns 2^(−exponent) in fixed point.
    fn half_power(&self, exponent: u128) -> u128 {
        let halvings = u32::try_from(exponent >> PLACES).unwrap_or(u32::MAX);
        if halvings > PLACES {
            return 0;
        }
        let mut power = ONE >> halvings;
        for (place, root) in (1_u32..).zip(&self.roots) {
            if exponent >> (PLACES - place) & 1 == 1 {
                power = (power * root) >> PLACES;
            }
        }
        power
    }

    pub fn advance(&mut self, now: u64) {
        let passed = now - self.now;
        self.now = now;
        if passed == 0 {
            return;
        }
        let exponent = (u128::from(passed) << PLACES) / u128::from(HALF_LIFE_S);
        let factor = self.half_power(exponent);
        for (used, rate) in self.used.iter_mut().zip(&self.rate) {
            // The product would overflow only after 10^15 core-seconds.
            let decayed = ((*used >> 16) * (factor >> 16)) >> (PLACES - 32);
            *used = decayed + ((u128::from(*rate) * u128::from(passed)) << 16);
        }
    }

    pub fn started(&mut self, job: &Job) {
        self.rate[job.user] += job.need.cpu_milli * job.tasks;
    }

    pub fn stopped(&mut self, job: &Job) {
        self.rate[job.user] -= job.need.cpu_milli * job.tasks;
    }

    /// Sorts the queue by priority, highest first. Equal priorities are ordered by submission.
    pub fn sort(&self, queue: &mut [usize], case: &Case, now: u64) {
        let sum: u128 = self.used.iter().sum::<u128>().max(1);
        let fair: Vec<u128> = self
            .used
            .iter()
            .map(|used| self.half_power(((used << 24) / sum * self.users) << (PLACES - 24)))
            .collect();
        queue.sort_by_key(|job| {
            let age = (now - case.submit_s(*job)).min(HALF_LIFE_S);
            let aged = AGE * u128::from(age) * ONE / u128::from(HALF_LIFE_S);
            (Reverse(FAIR * fair[case.jobs[*job].user] + aged), *job)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Workload;

    #[test]
    fn half_powers_are_exact_enough() {
        let workload = Workload::default();
        let priorities = Priorities::new(&Case::rigid(&workload, &[]));
        assert_eq!(priorities.half_power(0), ONE);
        assert_eq!(priorities.half_power(3 * ONE), ONE / 8);
        // 2^(−0.5)² = 1/2
        let root = priorities.half_power(ONE / 2);
        assert!((ONE / 2).abs_diff((root * root) >> PLACES) < 16);
        assert_eq!(priorities.half_power(100 * ONE), 0);
    }
}
