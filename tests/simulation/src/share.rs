//! Shares of the whole cluster as exact integers, and their fair division.
//!
//! The weight of a task is the largest part of the cluster that it takes in any dimension. The
//! whole is the product of the capacities, so every such part is a whole number. A division without
//! remainder in real numbers has none here either.

use std::collections::BTreeMap;

use crate::{cluster::Capacity, trace::Need};

/// Parts of the cluster.
pub type Share = u128;

/// The capacity of the cluster in each dimension that counts.
#[derive(Debug, Clone)]
pub struct Whole {
    capacity: Capacity,
    pub parts: Share,
}

impl Whole {
    pub fn new(capacity: Capacity) -> Self {
        let amounts = [capacity.cpu_milli, capacity.memory_mib, capacity.gpu_milli];
        let parts = amounts
            .into_iter()
            .filter(|amount| *amount > 0)
            .map(Share::from)
            .product();
        Self { capacity, parts }
    }

    /// Returns the weight of one task, which is that of its largest dimension.
    pub fn weight(&self, need: &Need) -> Share {
        let dimensions = [
            (need.cpu_milli, self.capacity.cpu_milli),
            (need.memory_mib, self.capacity.memory_mib),
            (need.gpu_milli * need.gpu_count, self.capacity.gpu_milli),
        ];
        let known = dimensions.into_iter().filter(|(_, capacity)| *capacity > 0);
        let weights = known
            .map(|(amount, capacity)| Share::from(amount) * (self.parts / Share::from(capacity)));
        // A task that needs nothing still has the minimum weight.
        weights.max().unwrap_or(0).max(1)
    }
}

/// A participant in a division.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    pub weight: u64,
    pub demand: Share,
}

/// Divides by weighted max-min. Each result is at most the demand. The remainder goes to the others
/// by weight.
pub fn max_min(amount: Share, claims: &[Claim]) -> Vec<Share> {
    let mut given = vec![0; claims.len()];
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // Claims are ordered by demand per unit of weight, compared without division.
    order.sort_by(|a, b| {
        let (a, b) = (&claims[*a], &claims[*b]);
        let left = a.demand.saturating_mul(Share::from(b.weight));
        left.cmp(&b.demand.saturating_mul(Share::from(a.weight)))
    });
    let mut left = amount;
    let mut weights: Share = claims.iter().map(|claim| Share::from(claim.weight)).sum();
    for at in order {
        let claim = &claims[at];
        if weights == 0 {
            break;
        }
        let weight = Share::from(claim.weight);
        let part = (left * weight / weights).min(claim.demand);
        given[at] = part;
        left -= part;
        weights -= weight;
    }
    given
}

/// A participant in a division of two levels.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Class of the member. Classes divide first, by weight.
    pub class: usize,
    pub class_weight: u64,
    /// Demand of the member. Members of a class then divide equally.
    pub demand: Share,
}

/// Divides by weighted max-min among classes, then by equal max-min among the members of each
/// class.
pub fn two_levels(amount: Share, members: &[Member]) -> Vec<Share> {
    let mut classes: BTreeMap<usize, (Claim, Vec<usize>)> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        let claim = Claim {
            weight: member.class_weight,
            demand: 0,
        };
        let (claim, those) = classes.entry(member.class).or_insert((claim, Vec::new()));
        claim.demand += member.demand;
        those.push(at);
    }
    let claims: Vec<Claim> = classes.values().map(|(claim, _)| *claim).collect();
    let parts = max_min(amount, &claims);
    let mut given = vec![0; members.len()];
    for ((_, those), part) in classes.into_values().zip(parts) {
        let claims: Vec<Claim> = those
            .iter()
            .map(|at| Claim {
                weight: 1,
                demand: members[*at].demand,
            })
            .collect();
        for (at, share) in those.into_iter().zip(max_min(part, &claims)) {
            given[at] = share;
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divide(amount: Share, claims: &[(u64, Share)]) -> Vec<Share> {
        let claims: Vec<Claim> = claims
            .iter()
            .map(|(weight, demand)| Claim {
                weight: *weight,
                demand: *demand,
            })
            .collect();
        max_min(amount, &claims)
    }

    #[test]
    fn satisfied_claims_leave_the_rest_to_the_others() {
        assert_eq!(divide(12, &[(1, 100), (1, 2), (1, 100)]), [5, 2, 5]);
        assert_eq!(divide(12, &[(1, 3), (1, 2), (1, 4)]), [3, 2, 4]);
        assert_eq!(divide(70, &[(200, 100), (100, 5), (50, 100)]), [52, 5, 13]);
        assert_eq!(divide(5, &[]), Vec::<Share>::new());
    }

    #[test]
    fn a_task_weighs_its_largest_dimension() {
        let whole = Whole::new(Capacity {
            cpu_milli: 1000,
            memory_mib: 100,
            gpu_milli: 0,
        });
        let need = |cpu_milli, memory_mib| Need {
            cpu_milli,
            memory_mib,
            ..Need::default()
        };
        assert_eq!(whole.weight(&need(100, 0)) * 10, whole.parts);
        assert_eq!(whole.weight(&need(100, 50)) * 2, whole.parts);
        assert_eq!(whole.weight(&need(0, 0)), 1);
    }
}
