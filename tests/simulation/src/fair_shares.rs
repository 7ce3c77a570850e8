//! Shares of the whole cluster as exact integers, and their fair division.
//!
//! The dominant share of a task is the largest part of the cluster that it takes in any dimension.
//! The total is the product of the capacities, so every such part is a whole number.

use std::collections::BTreeMap;

use crate::{cluster::Capacity, trace::TaskRequest};

/// An amount of the cluster, relative to [`ShareScale::total`].
pub type Share = u128;

/// Converts amounts of resources to shares of the cluster. Dimensions without capacity are ignored.
#[derive(Debug, Clone)]
pub struct ShareScale {
    capacity: Capacity,
    /// The share of the whole cluster.
    pub total: Share,
}

impl ShareScale {
    pub fn new(capacity: Capacity) -> Self {
        let amounts = [capacity.cpu_milli, capacity.memory_mib, capacity.gpu_milli];
        let total = amounts
            .into_iter()
            .filter(|amount| *amount > 0)
            .map(Share::from)
            .product();
        Self { capacity, total }
    }

    /// Returns the share of one task in its largest dimension.
    pub fn dominant_share(&self, request: &TaskRequest) -> Share {
        let dimensions = [
            (request.cpu_milli, self.capacity.cpu_milli),
            (request.memory_mib, self.capacity.memory_mib),
            (
                request.gpu_milli * request.gpu_count,
                self.capacity.gpu_milli,
            ),
        ];
        let with_capacity = dimensions.into_iter().filter(|(_, capacity)| *capacity > 0);
        let shares = with_capacity
            .map(|(amount, capacity)| Share::from(amount) * (self.total / Share::from(capacity)));
        // A task that requests nothing still has the minimum share.
        shares.max().unwrap_or(0).max(1)
    }
}

/// A participant in a division.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    pub weight: u64,
    pub demand: Share,
}

/// Divides by weighted max-min. Each claim gets at most its demand. The amount that satisfied
/// claims leave goes to the other claims by weight.
pub fn divide_by_max_min(amount: Share, claims: &[Claim]) -> Vec<Share> {
    let mut shares = vec![0; claims.len()];
    let mut by_demand: Vec<usize> = (0..claims.len()).collect();
    // Claims are ordered by demand per unit of weight, compared without division.
    by_demand.sort_by(|first, second| {
        let (first, second) = (&claims[*first], &claims[*second]);
        let scaled_demand = first.demand.saturating_mul(Share::from(second.weight));
        scaled_demand.cmp(&second.demand.saturating_mul(Share::from(first.weight)))
    });
    let mut remaining = amount;
    let mut remaining_weight: Share = claims.iter().map(|claim| Share::from(claim.weight)).sum();
    for index in by_demand {
        let claim = &claims[index];
        if remaining_weight == 0 {
            break;
        }
        let weight = Share::from(claim.weight);
        let share = (remaining * weight / remaining_weight).min(claim.demand);
        shares[index] = share;
        remaining -= share;
        remaining_weight -= weight;
    }
    shares
}

/// A participant in a division among classes and their members.
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
pub fn divide_by_class_and_member(amount: Share, members: &[Member]) -> Vec<Share> {
    let mut classes: BTreeMap<usize, (Claim, Vec<usize>)> = BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        let claim = Claim {
            weight: member.class_weight,
            demand: 0,
        };
        let (claim, member_indices) = classes.entry(member.class).or_insert((claim, Vec::new()));
        claim.demand += member.demand;
        member_indices.push(index);
    }
    let claims: Vec<Claim> = classes.values().map(|(claim, _)| *claim).collect();
    let class_shares = divide_by_max_min(amount, &claims);
    let mut shares = vec![0; members.len()];
    for ((_, member_indices), share) in classes.into_values().zip(class_shares) {
        let claims: Vec<Claim> = member_indices
            .iter()
            .map(|index| Claim {
                weight: 1,
                demand: members[*index].demand,
            })
            .collect();
        for (index, share) in member_indices
            .into_iter()
            .zip(divide_by_max_min(share, &claims))
        {
            shares[index] = share;
        }
    }
    shares
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
        divide_by_max_min(amount, &claims)
    }

    #[test]
    fn satisfied_claims_leave_the_remainder_to_the_others() {
        assert_eq!(divide(12, &[(1, 100), (1, 2), (1, 100)]), [5, 2, 5]);
        assert_eq!(divide(12, &[(1, 3), (1, 2), (1, 4)]), [3, 2, 4]);
        assert_eq!(divide(70, &[(200, 100), (100, 5), (50, 100)]), [52, 5, 13]);
        assert_eq!(divide(5, &[]), Vec::<Share>::new());
    }

    #[test]
    fn the_share_of_a_task_is_that_of_its_largest_dimension() {
        let scale = ShareScale::new(Capacity {
            cpu_milli: 1000,
            memory_mib: 100,
            gpu_milli: 0,
        });
        let request = |cpu_milli, memory_mib| TaskRequest {
            cpu_milli,
            memory_mib,
            ..TaskRequest::default()
        };
        assert_eq!(scale.dominant_share(&request(100, 0)) * 10, scale.total);
        assert_eq!(scale.dominant_share(&request(100, 50)) * 2, scale.total);
        assert_eq!(scale.dominant_share(&request(0, 0)), 1);
    }
}
