//! Divides holes among entities by weight. The entities of one division are classes, the
//! users of one class, or the work of one user.
//!
//! A division makes passes until the demand is met or nothing fits. In each pass an entity deserves
//! a part of the quanta that are left, in proportion to its weight. A pass goes over the process
//! sizes, largest first. At each size it divides the holes among the entities that still have less
//! than they deserve. These entities are open.
//!
//! Entities come sorted, and their order decides which of them get the remainders of rounding.
//! Arithmetic is exact: products that overflow are computed in 128 bits.

mod equal_weights;

pub(crate) use equal_weights::{EntityBatch, Member, divide};

use std::cmp::Reverse;

use crate::{
    input::{settings::DivisionSettings, snapshot::Standing},
    state::{ProcessCounts, hole_table::HoleTable},
};

/// Entities with their weights and demand, and the processes granted to each.
#[derive(Default)]
pub(crate) struct Claims {
    weights: Vec<u64>,
    standings: Vec<Standing>,
    /// Demand by process size, ascending. Some sizes may have no demand.
    sizes: Vec<SizeClass>,
    /// State of a division, retained for its capacity.
    scratch: DivisionState,
}

#[derive(Default)]
struct SizeClass {
    quanta: u64,
    /// Demand of the entities that want this size, in the order in which they were added.
    claims: Vec<Claim>,
}

struct Claim {
    entity: usize,
    /// Number of processes that are still wanted.
    wanted: u64,
    /// Number of processes that were granted.
    granted: u64,
}

impl Claims {
    /// Removes all entities. The vectors keep their capacity.
    pub fn clear(&mut self) {
        self.weights.clear();
        self.standings.clear();
        for size_class in &mut self.sizes {
            size_class.claims.clear();
        }
    }

    /// Adds an entity. Remainders go first to entities that are behind, and last to those that are
    /// ahead (W-4).
    pub fn add_entity(&mut self, weight: u64, standing: Standing) {
        self.weights.push(weight.max(1));
        self.standings.push(standing);
    }

    /// Adds demand for `count` processes of `quanta` each to the last entity.
    pub fn add_demand(&mut self, quanta: u64, count: u64) {
        let position = self
            .sizes
            .partition_point(|size_class| size_class.quanta < quanta);
        self.insert_demand(position, quanta, count);
    }

    /// Adds demand of several sizes to the last entity.
    pub fn add_all_demand(&mut self, demand: &ProcessCounts) {
        let mut position = 0;
        for (quanta, count) in demand.iter() {
            while self
                .sizes
                .get(position)
                .is_some_and(|size_class| size_class.quanta < quanta)
            {
                position += 1;
            }
            self.insert_demand(position, quanta, count);
        }
    }

    /// Adds demand to the last entity. `position` is the index of the size in `sizes`. If the size
    /// is new, it is inserted at this index.
    fn insert_demand(&mut self, position: usize, quanta: u64, count: u64) {
        let entity = self.weights.len() - 1;
        if self
            .sizes
            .get(position)
            .is_none_or(|size_class| size_class.quanta != quanta)
        {
            let claims = Vec::new();
            self.sizes.insert(position, SizeClass { quanta, claims });
        }
        if count == 0 {
            return;
        }
        let claims = &mut self.sizes[position].claims;
        match claims.last_mut().filter(|claim| claim.entity == entity) {
            Some(claim) => claim.wanted = claim.wanted.saturating_add(count),
            None => claims.push(Claim {
                entity,
                wanted: count,
                granted: 0,
            }),
        }
    }

    /// Returns the processes granted to each entity by size. Entities are in the order of addition.
    pub fn grants(&self) -> Vec<ProcessCounts> {
        let empty = self
            .weights
            .iter()
            .map(|_| ProcessCounts::with_capacity(self.sizes.len()));
        let mut grants: Vec<ProcessCounts> = empty.collect();
        self.for_each_grant(|entity, quanta, count| grants[entity].push(quanta, count));
        grants
    }

    /// Returns the number of processes granted to each entity, of any size.
    pub fn granted_processes(&self) -> Vec<u64> {
        let mut granted = vec![0; self.weights.len()];
        self.for_each_grant(|entity, _, count| granted[entity] += count);
        granted
    }

    /// Reports all granted processes by size, then by entity: the entity, the quanta and the count.
    fn for_each_grant(&self, mut report: impl FnMut(usize, u64, u64)) {
        for size_class in &self.sizes {
            for claim in size_class.claims.iter().filter(|claim| claim.granted > 0) {
                report(claim.entity, size_class.quanta, claim.granted);
            }
        }
    }

    /// Divides the holes among the entities.
    pub fn apportion(&mut self, mut holes: HoleTable, settings: DivisionSettings) {
        if self.all_fit(&holes) {
            for claim in self
                .sizes
                .iter_mut()
                .flat_map(|size_class| &mut size_class.claims)
            {
                (claim.granted, claim.wanted) = (claim.wanted, 0);
            }
            return;
        }
        // All entities are in the first pass, even without demand.
        let mut division = std::mem::take(&mut self.scratch);
        division.reset(self.weights.len(), settings);
        while division.active.iter().any(|active| *active) && holes.total_quanta() > 0 {
            if !self.run_pass(&mut holes, &mut division) {
                break;
            }
            self.retain_active(&mut division, &holes);
        }
        self.scratch = division;
        self.fill_exact_holes(&mut holes);
    }

    /// Returns true if each wanted process has a hole of its own size. Then all demand is met.
    fn all_fit(&self, holes: &HoleTable) -> bool {
        let size_classes = self
            .sizes
            .iter()
            .filter(|size_class| !size_class.claims.is_empty());
        let wanted = size_classes.map(|size_class| {
            let sum = size_class.claims.iter().map(|claim| claim.wanted);
            (size_class.quanta, sum.fold(0, u64::saturating_add))
        });
        holes.equals_holes(wanted)
    }

    /// Drops entities whose demand is met or no longer fits.
    fn retain_active(&self, division: &mut DivisionState, holes: &HoleTable) {
        let largest = holes.largest();
        division.still_fits.fill(false);
        for size_class in self
            .sizes
            .iter()
            .take_while(|size_class| size_class.quanta <= largest)
        {
            for claim in size_class.claims.iter().filter(|claim| claim.wanted > 0) {
                division.still_fits[claim.entity] = true;
            }
        }
        for (active, still_fits) in division.active.iter_mut().zip(&division.still_fits) {
            *active &= still_fits;
        }
    }

    /// Grants each entity up to its deserved quanta, largest processes first. Returns true if it
    /// granted any process.
    fn run_pass(&mut self, holes: &mut HoleTable, division: &mut DivisionState) -> bool {
        division.begin_pass(holes.total_quanta(), &self.weights, &self.standings);
        let mut before_first_size = true;
        let mut granted_any = false;
        let size_classes = self.sizes.iter_mut().rev();
        for size_class in size_classes.filter(|size_class| !size_class.claims.is_empty()) {
            let quanta = size_class.quanta;
            // A hole size without demand has one effect: entities that deserve nothing leave the
            // divisor before the first size with demand.
            if before_first_size && holes.largest() > quanta {
                division.close_all(&self.weights);
                before_first_size = false;
            }
            let fitting = holes.count_processes(quanta);
            if fitting == 0 {
                continue;
            }
            if division.open_weight == 0 {
                break;
            }
            let divisor = division.divisor(&size_class.claims, &self.weights);
            let mut granted_count = 0;
            // Adjacent entities mostly have equal weights, so the last quota is cached.
            let (mut cached_weight, mut cached_quota) = (0, 0);
            for claim in &mut size_class.claims {
                let entity = claim.entity;
                if claim.wanted == 0 || !division.active[entity] {
                    continue;
                }
                if cached_weight != self.weights[entity] {
                    let quota = scale_amount(fitting * quanta, self.weights[entity], divisor, true);
                    (cached_weight, cached_quota) = (self.weights[entity], quota);
                }
                let quota = cached_quota
                    .min(division.deserved[entity].saturating_sub(division.received[entity]));
                // A quota below one process is rounded up, so that large work does not starve. The
                // quota of an entity that is ahead is not rounded up.
                let minimum = u64::from(quota > 0 && self.standings[entity] != Standing::Ahead);
                let count = (quota / quanta).max(minimum);
                let count = count.min(claim.wanted).min(fitting - granted_count);
                if count > 0 {
                    (claim.granted, claim.wanted) = (claim.granted + count, claim.wanted - count);
                    division.received[entity] += count * quanta;
                    granted_count += count;
                    // After the first size with demand all entities are checked.
                    if !before_first_size {
                        division.close(entity, &self.weights);
                    }
                }
            }
            granted_any |= granted_count > 0;
            holes.fill_exact_first(granted_count, quanta);
            if before_first_size {
                division.close_all(&self.weights);
            }
            before_first_size = false;
        }
        granted_any
    }

    /// Grants the remaining holes to demand of exactly their size. Each entity gets one process at
    /// a time.
    fn fill_exact_holes(&mut self, holes: &mut HoleTable) {
        if !self
            .sizes
            .iter()
            .any(|size_class| holes.contains(size_class.quanta))
        {
            return;
        }
        // Entity, index of the size, and index of the claim in that size.
        let mut claims: Vec<(usize, Reverse<usize>, usize)> = Vec::new();
        for (size_index, size_class) in self.sizes.iter().enumerate() {
            let with_demand = size_class.claims.iter().enumerate();
            let with_demand = with_demand.filter(|(_, claim)| claim.wanted > 0);
            claims.extend(
                with_demand
                    .map(|(claim_index, claim)| (claim.entity, Reverse(size_index), claim_index)),
            );
        }
        // Claims are sorted by entity, largest processes first.
        claims.sort_unstable();
        let mut granted_any = true;
        while granted_any && holes.total_quanta() > 0 {
            granted_any = false;
            for (_, Reverse(size_index), claim_index) in &claims {
                let size_class = &mut self.sizes[*size_index];
                let claim = &mut size_class.claims[*claim_index];
                if claim.wanted > 0 && holes.remove(size_class.quanta) {
                    (claim.granted, claim.wanted) = (claim.granted + 1, claim.wanted - 1);
                    granted_any = true;
                }
            }
        }
    }
}

/// State of a division. One pass goes over all sizes, largest first.
#[derive(Default)]
struct DivisionState {
    /// True for entities that take part in the pass.
    active: Vec<bool>,
    /// True for entities with demand that still fits a hole.
    still_fits: Vec<bool>,
    /// Quanta that each entity deserves. 0 for entities that take no part.
    deserved: Vec<u64>,
    /// Quanta that each entity received in this pass.
    received: Vec<u64>,
    /// True for entities that take part and have less than they deserve.
    open: Vec<bool>,
    /// Sum of the weights of all open entities.
    open_weight: u64,
    /// Remainder quanta granted to each entity, over all passes.
    remainder_quanta: Vec<u64>,
    /// True for entities with demand for the current size or a larger one.
    wants_size_or_larger: Vec<bool>,
    /// Order in which entities receive remainders: remainder quanta so far, standing, entity.
    remainder_order: Vec<(u64, Standing, usize)>,
    settings: DivisionSettings,
}

impl DivisionState {
    fn reset(&mut self, entities: usize, settings: DivisionSettings) {
        self.settings = settings;
        for flags in [&mut self.active, &mut self.still_fits, &mut self.open] {
            flags.clear();
            flags.resize(entities, true);
        }
        for sums in [
            &mut self.deserved,
            &mut self.received,
            &mut self.remainder_quanta,
        ] {
            sums.clear();
            sums.resize(entities, 0);
        }
        self.wants_size_or_larger.clear();
        self.wants_size_or_larger.resize(entities, false);
    }

    /// Computes what each active entity deserves of `total` quanta.
    fn begin_pass(&mut self, total: u64, weights: &[u64], standings: &[Standing]) {
        self.received.fill(0);
        self.wants_size_or_larger.fill(false);
        self.deserved.fill(0);
        self.open.clone_from(&self.active);
        let active = || (0..weights.len()).filter(|entity| self.active[*entity]);
        self.open_weight = active().map(|entity| weights[entity]).sum();
        let mut remainder = total;
        let (mut cached_weight, mut cached_share) = (0, 0);
        for (entity, weight) in weights.iter().copied().enumerate() {
            if self.active[entity] {
                if cached_weight != weight {
                    cached_weight = weight;
                    cached_share = scale_amount(total, weight, self.open_weight, false);
                }
                self.deserved[entity] = cached_share;
                remainder -= self.deserved[entity];
            }
        }
        self.distribute_remainder(remainder, standings);
    }

    /// Adds one quantum of the remainder to each of the first entities, until it is used up.
    fn distribute_remainder(&mut self, remainder: u64, standings: &[Standing]) {
        if remainder == 0 {
            return;
        }
        let previous = |entity: usize| {
            if self.settings.spread_remainders {
                self.remainder_quanta[entity]
            } else {
                0
            }
        };
        let active = (0..standings.len()).filter(|entity| self.active[*entity]);
        let mut remainder_order = std::mem::take(&mut self.remainder_order);
        remainder_order.clear();
        remainder_order.extend(active.map(|entity| (previous(entity), standings[entity], entity)));
        let remainder = usize::try_from(remainder).unwrap_or(usize::MAX);
        // Only the set of the first `remainder` entities matters, not their order.
        if remainder < remainder_order.len() {
            remainder_order.select_nth_unstable(remainder);
        }
        for (_, _, entity) in remainder_order.iter().take(remainder).copied() {
            self.deserved[entity] += 1;
            self.remainder_quanta[entity] += 1;
        }
        self.remainder_order = remainder_order;
    }

    /// Returns the sum of the weights among which the holes of a size are divided. The calls of one
    /// pass are in descending order of size.
    fn divisor(&mut self, claims: &[Claim], weights: &[u64]) -> u64 {
        if !self.settings.holes_among_rivals {
            return self.open_weight;
        }
        for claim in claims.iter().filter(|claim| claim.wanted > 0) {
            self.wants_size_or_larger[claim.entity] = true;
        }
        let rivals = (0..weights.len())
            .filter(|entity| self.open[*entity] && self.wants_size_or_larger[*entity]);
        rivals.map(|entity| weights[entity]).sum::<u64>().max(1)
    }

    /// If the entity received what it deserves, closes it and subtracts its weight from the
    /// divisor. This happens once per pass (C-1).
    fn close(&mut self, entity: usize, weights: &[u64]) {
        if self.open[entity] && self.received[entity] >= self.deserved[entity] {
            self.open[entity] = false;
            self.open_weight -= weights[entity];
        }
    }

    fn close_all(&mut self, weights: &[u64]) {
        for entity in 0..weights.len() {
            self.close(entity, weights);
        }
    }
}

/// Returns `amount * weight / sum`.
fn scale_amount(amount: u64, weight: u64, sum: u64, round_up: bool) -> u64 {
    // 128-bit division is ten times slower and hardly ever needed.
    if let Some(product) = amount.checked_mul(weight) {
        return if round_up {
            product.div_ceil(sum)
        } else {
            product / sum
        };
    }
    let product = u128::from(amount) * u128::from(weight);
    let sum = u128::from(sum);
    let quotient = if round_up {
        product.div_ceil(sum)
    } else {
        product / sum
    };
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
