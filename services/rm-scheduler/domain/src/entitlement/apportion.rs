//! Divides holes among entities by weight: classes, then users, then work.
//!
//! Entities come sorted, and their order decides which get remainders. The table is consumed.
//! Arithmetic is exact: products that overflow are computed in 128 bits.

mod equal_weights;

pub(crate) use equal_weights::{Band, Member, divide};

use crate::{
    input::{settings::DivisionSettings, snapshot::Standing},
    state::{Amounts, hole_table::HoleTable},
};

/// Entities with their weights and demand, and the processes given to each.
#[derive(Default)]
pub(crate) struct Claims {
    weights: Vec<u64>,
    standings: Vec<Standing>,
    /// Demand by process size, ascending. Some sizes may have no demand.
    sizes: Vec<SizeClass>,
    pass: DivisionPass,
}

#[derive(Default)]
struct SizeClass {
    quanta: u64,
    /// Demand of the entities that want this size, in the order of entry.
    claims: Vec<Claim>,
}

struct Claim {
    entity: usize,
    /// Number of processes that are still wanted.
    want: u64,
    given: u64,
}

impl Claims {
    /// Removes all entities and keeps the capacity.
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
        self.want_at(position, quanta, count);
    }

    /// Adds all this demand to the last entity.
    pub fn add_all_demand(&mut self, wants: &Amounts) {
        let mut position = 0;
        for (quanta, count) in wants.iter() {
            while self
                .sizes
                .get(position)
                .is_some_and(|size_class| size_class.quanta < quanta)
            {
                position += 1;
            }
            self.want_at(position, quanta, count);
        }
    }

    /// Adds demand to the last entity. `position` is the index of the size, or of the place where
    /// it is inserted.
    fn want_at(&mut self, position: usize, quanta: u64, count: u64) {
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
            Some(claim) => claim.want = claim.want.saturating_add(count),
            None => claims.push(Claim {
                entity,
                want: count,
                given: 0,
            }),
        }
    }

    /// Returns the processes given to each entity by size, in the order of entry.
    pub fn given(&self) -> Vec<Amounts> {
        let each = self
            .weights
            .iter()
            .map(|_| Amounts::with_capacity(self.sizes.len()));
        let mut given: Vec<Amounts> = each.collect();
        self.each(|entity, quanta, count| given[entity].push(quanta, count));
        given
    }

    /// Returns the number of processes given to each entity, of any size.
    pub fn processes(&self) -> Vec<u64> {
        let mut given = vec![0; self.weights.len()];
        self.each(|entity, _, count| given[entity] += count);
        given
    }

    /// Reports all given processes, by size, then in the order of entry.
    fn each(&self, mut report: impl FnMut(usize, u64, u64)) {
        for size_class in &self.sizes {
            for claim in size_class.claims.iter().filter(|claim| claim.given > 0) {
                report(claim.entity, size_class.quanta, claim.given);
            }
        }
    }

    pub fn apportion(&mut self, mut holes: HoleTable, manner: DivisionSettings) {
        if self.all_fit(&holes) {
            for claim in self
                .sizes
                .iter_mut()
                .flat_map(|size_class| &mut size_class.claims)
            {
                (claim.given, claim.want) = (claim.want, 0);
            }
            return;
        }
        // All entities are in the first pass, even without demand.
        let mut state = std::mem::take(&mut self.pass);
        state.open_for(self.weights.len(), manner);
        while state.active.iter().any(|takes_part| *takes_part) && holes.total_quanta() > 0 {
            if !self.pass(&mut holes, &mut state) {
                break;
            }
            self.retain_able(&mut state, &holes);
        }
        self.pass = state;
        self.sweep(&mut holes);
    }

    /// Returns true if each wanted process has a hole of its own size. Then all demand is met.
    fn all_fit(&self, holes: &HoleTable) -> bool {
        let size_classes = self
            .sizes
            .iter()
            .filter(|size_class| !size_class.claims.is_empty());
        let wanted = size_classes.map(|size_class| {
            let sum = size_class.claims.iter().map(|claim| claim.want);
            (size_class.quanta, sum.fold(0, u64::saturating_add))
        });
        holes.equals_holes(wanted)
    }

    /// Drops entities whose demand is met or no longer fits.
    fn retain_able(&self, state: &mut DivisionPass, holes: &HoleTable) {
        let largest = holes.largest();
        state.able.fill(false);
        for size_class in self
            .sizes
            .iter()
            .take_while(|size_class| size_class.quanta <= largest)
        {
            for claim in size_class.claims.iter().filter(|claim| claim.want > 0) {
                state.able[claim.entity] = true;
            }
        }
        for (active, able) in state.active.iter_mut().zip(&state.able) {
            *active &= able;
        }
    }

    /// Gives each entity up to its deserved quanta, largest processes first. Returns true if it
    /// gave any process.
    fn pass(&mut self, holes: &mut HoleTable, state: &mut DivisionPass) -> bool {
        state.begin(holes.total_quanta(), &self.weights, &self.standings);
        let mut first = true;
        let mut anything = false;
        let size_classes = self.sizes.iter_mut().rev();
        for size_class in size_classes.filter(|size_class| !size_class.claims.is_empty()) {
            let quanta = size_class.quanta;
            // A hole size without demand has one effect: entities that deserve nothing leave the
            // divisor before the first size with demand.
            if first && holes.largest() > quanta {
                state.close_all(&self.weights);
                first = false;
            }
            let fitting = holes.count_processes(quanta);
            if fitting == 0 {
                continue;
            }
            if state.weight == 0 {
                break;
            }
            let weight = state.divisor(&size_class.claims, &self.weights);
            let mut taken = 0;
            // Neighbours mostly have equal weights, so the last quota is cached.
            let mut known = (0, 0);
            for claim in &mut size_class.claims {
                let at = claim.entity;
                if claim.want == 0 || !state.active[at] {
                    continue;
                }
                if known.0 != self.weights[at] {
                    let quota = scaled(fitting * quanta, self.weights[at], weight, true);
                    known = (self.weights[at], quota);
                }
                let due = known
                    .1
                    .min(state.deserved[at].saturating_sub(state.got[at]));
                // Each entity is rounded up to one process, so that large work does not starve. An
                // entity that is ahead is not rounded up.
                let least = u64::from(due > 0 && self.standings[at] != Standing::Ahead);
                let count = (due / quanta).max(least);
                let count = count.min(claim.want).min(fitting - taken);
                if count > 0 {
                    (claim.given, claim.want) = (claim.given + count, claim.want - count);
                    state.got[at] += count * quanta;
                    taken += count;
                    // After the first size with demand all entities are checked.
                    if !first {
                        state.close(at, &self.weights);
                    }
                }
            }
            anything |= taken > 0;
            holes.fill_exact_first(taken, quanta);
            if first {
                state.close_all(&self.weights);
            }
            first = false;
        }
        anything
    }

    /// Gives the remaining holes one process at a time to processes of exactly their size.
    fn sweep(&mut self, holes: &mut HoleTable) {
        if !self
            .sizes
            .iter()
            .any(|size_class| holes.contains(size_class.quanta))
        {
            return;
        }
        let mut claims: Vec<(usize, usize, usize)> = Vec::new();
        for (at, size_class) in self.sizes.iter().enumerate() {
            let wanting = size_class.claims.iter().enumerate();
            let wanting = wanting.filter(|(_, claim)| claim.want > 0);
            claims.extend(
                wanting.map(|(position, claim)| (claim.entity, self.sizes.len() - at, position)),
            );
        }
        // Claims are sorted by entity, largest processes first.
        claims.sort_unstable();
        let mut gave = true;
        while gave && holes.total_quanta() > 0 {
            gave = false;
            for (_, from_end, position) in &claims {
                let at = self.sizes.len() - from_end;
                let size_class = &mut self.sizes[at];
                let claim = &mut size_class.claims[*position];
                if claim.want > 0 && holes.remove(size_class.quanta) {
                    (claim.given, claim.want) = (claim.given + 1, claim.want - 1);
                    gave = true;
                }
            }
        }
    }
}

/// State of one pass over the sizes, largest first.
#[derive(Default)]
struct DivisionPass {
    /// True for entities that take part in the pass.
    active: Vec<bool>,
    able: Vec<bool>,
    /// Quanta that each entity deserves. 0 for entities that take no part.
    deserved: Vec<u64>,
    got: Vec<u64>,
    /// True for entities that take part and have less than they deserve.
    open: Vec<bool>,
    /// Sum of the weights of all open entities.
    weight: u64,
    /// Remainder quanta given to each entity, over all passes.
    extras: Vec<u64>,
    /// True for entities with demand for the current size or a larger one.
    as_large: Vec<bool>,
    /// Order in which remainders are given.
    order: Vec<(u64, Standing, usize)>,
    manner: DivisionSettings,
}

impl DivisionPass {
    fn open_for(&mut self, entities: usize, manner: DivisionSettings) {
        self.manner = manner;
        for flags in [&mut self.active, &mut self.able, &mut self.open] {
            flags.clear();
            flags.resize(entities, true);
        }
        for sums in [&mut self.deserved, &mut self.got, &mut self.extras] {
            sums.clear();
            sums.resize(entities, 0);
        }
        self.as_large.clear();
        self.as_large.resize(entities, false);
    }

    fn begin(&mut self, total: u64, weights: &[u64], standings: &[Standing]) {
        self.got.fill(0);
        self.as_large.fill(false);
        self.deserved.fill(0);
        self.open.clone_from(&self.active);
        let active = || (0..weights.len()).filter(|at| self.active[*at]);
        self.weight = active().map(|at| weights[at]).sum();
        let mut rest = total;
        let mut known = (0, 0);
        for (at, weight) in weights.iter().copied().enumerate() {
            if self.active[at] {
                if known.0 != weight {
                    known = (weight, scaled(total, weight, self.weight, false));
                }
                self.deserved[at] = known.1;
                rest -= self.deserved[at];
            }
        }
        self.give_remainder(rest, standings);
    }

    /// Gives the remainder, one quantum to each entity.
    fn give_remainder(&mut self, rest: u64, standings: &[Standing]) {
        if rest == 0 {
            return;
        }
        let had = |at: usize| {
            if self.manner.spread_remainders {
                self.extras[at]
            } else {
                0
            }
        };
        let active = (0..standings.len()).filter(|at| self.active[*at]);
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(active.map(|at| (had(at), standings[at], at)));
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        // Only the set of the first `rest` entities matters, not their order.
        if rest < order.len() {
            order.select_nth_unstable(rest);
        }
        for (_, _, at) in order.iter().take(rest).copied() {
            self.deserved[at] += 1;
            self.extras[at] += 1;
        }
        self.order = order;
    }

    /// Returns the sum of the weights among which the holes of a size are divided. Sizes come in
    /// descending order.
    fn divisor(&mut self, claims: &[Claim], weights: &[u64]) -> u64 {
        if !self.manner.holes_among_rivals {
            return self.weight;
        }
        for claim in claims.iter().filter(|claim| claim.want > 0) {
            self.as_large[claim.entity] = true;
        }
        let rivals = (0..weights.len()).filter(|at| self.open[*at] && self.as_large[*at]);
        rivals.map(|at| weights[at]).sum::<u64>().max(1)
    }

    /// Takes an entity that got what it deserves out of the divisor, once per pass (C-1).
    fn close(&mut self, at: usize, weights: &[u64]) {
        if self.open[at] && self.got[at] >= self.deserved[at] {
            self.open[at] = false;
            self.weight -= weights[at];
        }
    }

    fn close_all(&mut self, weights: &[u64]) {
        for at in 0..weights.len() {
            self.close(at, weights);
        }
    }
}

fn scaled(amount: u64, weight: u64, sum: u64, up: bool) -> u64 {
    // 128-bit division is ten times slower and hardly ever needed.
    if let Some(product) = amount.checked_mul(weight) {
        return if up {
            product.div_ceil(sum)
        } else {
            product / sum
        };
    }
    let product = u128::from(amount) * u128::from(weight);
    let sum = u128::from(sum);
    let quotient = if up {
        product.div_ceil(sum)
    } else {
        product / sum
    };
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: DivisionSettings = DivisionSettings {
        spread_remainders: false,
        holes_among_rivals: false,
    };

    fn run(sizes: &[u64], entities: &[(u64, u64, u64)]) -> Vec<u64> {
        run_with(RULES, sizes, entities)
    }

    fn run_with(manner: DivisionSettings, sizes: &[u64], entities: &[(u64, u64, u64)]) -> Vec<u64> {
        let mut holes = HoleTable::default();
        for size in sizes {
            holes.add(*size, 1);
        }
        let mut claims = Claims::default();
        for (weight, quanta, want) in entities {
            claims.add_entity(*weight, Standing::Even);
            claims.add_demand(*quanta, *want);
        }
        claims.apportion(holes, manner);
        claims.processes()
    }

    #[test]
    fn two_passes_divide_the_remainders() {
        assert_eq!(
            run(&[2, 2, 2, 2, 2, 2, 1, 1, 1], &[(1, 2, 99), (1, 1, 99)]),
            [4, 7]
        );
    }

    #[test]
    fn classes_divide_by_weight_with_remainders_in_sort_order() {
        assert_eq!(run(&[5; 4], &[(100, 2, 99), (100, 1, 99)]), [6, 8]);
        assert_eq!(
            run(&[1; 7], &[(100, 1, 99), (100, 1, 99), (100, 1, 99)]),
            [3, 2, 2]
        );
        assert_eq!(run(&[2; 5], &[(900, 1, 99), (100, 2, 99)]), [8, 1]);
    }

    #[test]
    fn a_satisfied_entity_leaves_the_divisor_once() {
        let given = run(&[4, 4, 4, 4], &[(1, 4, 99), (1, 1, 99)]);
        assert_eq!(given, [2, 8]);
    }

    #[test]
    fn each_entity_gets_one_remainder_before_any_gets_a_second() {
        // The first two entities want little. The quanta they leave are divided in further passes.
        let claims = [(1, 1, 1), (1, 1, 4), (1, 1, 99), (1, 1, 99), (1, 1, 99)];
        assert_eq!(run(&[29], &claims), [1, 4, 9, 8, 7]);
        let level = DivisionSettings {
            spread_remainders: true,
            ..RULES
        };
        assert_eq!(run_with(level, &[29], &claims), [1, 4, 8, 8, 8]);
    }

    #[test]
    fn large_processes_get_their_share_of_holes_that_others_cannot_use() {
        let holes: Vec<u64> = [vec![8; 32], vec![1; 944]].concat();
        let claims = [vec![(1, 8, 32)], vec![(1, 1, 999); 6]].concat();
        assert!(run(&holes, &claims)[0] < 15);
        let rivals = DivisionSettings {
            holes_among_rivals: true,
            ..RULES
        };
        // A seventh of 1200 quanta is 21 processes. Quanta left by rounding may go to the large
        // work as well.
        let large = run_with(rivals, &holes, &claims)[0];
        assert!((21..=24).contains(&large), "{large}");
    }
}
