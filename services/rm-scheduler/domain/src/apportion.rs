//! The one routine that divides holes among entities: classes, then users, then jobs.
//!
//! Entities come sorted; the sort decides who gets remainders. The table is consumed. Arithmetic is
//! exact; products are taken in 128 bits.

use std::collections::BTreeMap;

use crate::{orders::Holes, snapshot::Standing};

/// Processes per order.
pub(crate) type Amounts = BTreeMap<u64, u64>;

pub(crate) struct Entity {
    pub weight: u64,
    pub want: Amounts,
    pub given: Amounts,
    standing: Standing,
    /// Quanta that rounding left and that it was handed, over all passes.
    extras: u64,
}

impl Entity {
    pub fn new(weight: u64, want: Amounts) -> Self {
        Self {
            weight: weight.max(1),
            want,
            given: Amounts::new(),
            standing: Standing::Even,
            extras: 0,
        }
    }

    /// Who is behind is served first with what rounding leaves, who is ahead last (W-4).
    pub fn owed(mut self, standing: Standing) -> Self {
        self.standing = standing;
        self
    }

    fn give(&mut self, order: u64, count: u64) {
        *self.given.entry(order).or_default() += count;
        if let Some(want) = self.want.get_mut(&order) {
            *want -= count;
        }
    }

    fn wants(&self, order: u64) -> u64 {
        self.want.get(&order).copied().unwrap_or(0)
    }
}

/// The holes a grant is for the next level down.
pub(crate) fn as_holes(given: &Amounts) -> Holes {
    let mut holes = Holes::default();
    for (order, count) in given {
        holes.add(*order, *count);
    }
    holes
}

pub(crate) fn quanta(given: &Amounts) -> u64 {
    given.iter().map(|(order, count)| order * count).sum()
}

/// With `level`, nobody is handed a second quantum that rounding left before all others had one
/// (W-4). Otherwise the first of the sort can gain one in each pass, and the last none.
pub(crate) fn apportion(mut holes: Holes, entities: &mut [Entity], level: bool) {
    let mut wanting: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, entity) in entities.iter().enumerate() {
        for (order, _) in entity.want.iter().filter(|(_, count)| **count > 0) {
            wanting.entry(*order).or_default().push(at);
        }
    }
    // Everyone is in the first pass, also who wants nothing.
    let mut active: Vec<usize> = (0..entities.len()).collect();
    while !active.is_empty() && holes.quanta() > 0 {
        let state = Pass::new(holes.quanta(), entities, &active, level);
        if !pass(&mut holes, entities, state, (&active, &wanting)) {
            break;
        }
        retain_able(&mut active, entities, &holes);
    }
    sweep(&mut holes, entities);
}

/// Drops entities that want nothing more, or nothing that still fits.
fn retain_able(active: &mut Vec<usize>, entities: &[Entity], holes: &Holes) {
    let largest = holes.largest();
    active.retain(|at| {
        entities[*at]
            .want
            .iter()
            .any(|(order, count)| *count > 0 && *order <= largest)
    });
}

/// The state of one pass over the orders, largest first.
struct Pass {
    /// Quanta, by entity; 0 for those that take no part.
    deserved: Vec<u64>,
    got: Vec<u64>,
    /// Takes part, and has not got what it deserves yet.
    open: Vec<bool>,
    /// Sum of the weights of all entities that are open.
    weight: u64,
}

impl Pass {
    fn new(total: u64, entities: &mut [Entity], active: &[usize], level: bool) -> Self {
        let weight: u64 = active.iter().map(|at| entities[*at].weight).sum();
        let mut pass = Self {
            deserved: vec![0; entities.len()],
            got: vec![0; entities.len()],
            open: vec![false; entities.len()],
            weight,
        };
        let mut rest = total;
        for at in active {
            let due = scaled(total, entities[*at].weight, weight, false);
            pass.deserved[*at] = due;
            pass.open[*at] = true;
            rest -= due;
        }
        let turn = |at: &usize| {
            let entity = &entities[*at];
            (if level { entity.extras } else { 0 }, entity.standing)
        };
        let mut turns = active.to_vec();
        // Stable: among equals the sort of the entities decides.
        turns.sort_by_key(turn);
        for at in turns
            .into_iter()
            .take(usize::try_from(rest).unwrap_or(usize::MAX))
        {
            pass.deserved[at] += 1;
            entities[at].extras += 1;
        }
        pass
    }

    /// Takes the satisfied out of the divisor, each once per pass [C-1].
    fn close(&mut self, among: &[usize], entities: &[Entity]) {
        for at in among {
            if self.open[*at] && self.got[*at] >= self.deserved[*at] {
                self.open[*at] = false;
                self.weight -= entities[*at].weight;
            }
        }
    }
}

fn scaled(amount: u64, weight: u64, sum: u64, up: bool) -> u64 {
    let product = u128::from(amount) * u128::from(weight);
    let sum = u128::from(sum);
    let quotient = if up {
        product.div_ceil(sum)
    } else {
        product / sum
    };
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

/// True when it gave anything.
fn pass(
    holes: &mut Holes,
    entities: &mut [Entity],
    mut state: Pass,
    (active, wanting): (&[usize], &BTreeMap<u64, Vec<usize>>),
) -> bool {
    let mut takes_part = vec![false; entities.len()];
    for at in active {
        takes_part[*at] = true;
    }
    let mut first = true;
    let mut anything = false;
    for (order, those) in wanting.iter().rev() {
        // An order nobody wants changes nothing but this: who deserves nothing leaves the divisor
        // before the first order somebody wants.
        if first && holes.largest() > *order {
            state.close(active, entities);
            first = false;
        }
        let fitting = holes.processes(*order);
        if fitting == 0 {
            continue;
        }
        if state.weight == 0 {
            break;
        }
        let mut taken = 0;
        for at in those.iter().filter(|at| takes_part[**at]) {
            let entity = &mut entities[*at];
            let quota = scaled(fitting * order, entity.weight, state.weight, true);
            let due = quota.min(state.deserved[*at].saturating_sub(state.got[*at]));
            // Rounding up to one process keeps large work from starving. Who had too much
            // that way waits until the others had theirs (W-6).
            let least = u64::from(due > 0 && entity.standing != Standing::Ahead);
            let count = (due / order).max(least);
            let count = count.min(entity.wants(*order)).min(fitting - taken);
            if count > 0 {
                entity.give(*order, count);
                state.got[*at] += count * order;
                taken += count;
            }
        }
        anything |= taken > 0;
        holes.take(taken, *order);
        state.close(if first { active } else { those }, entities);
        first = false;
    }
    anything
}

/// What rounding left over goes one process at a time into holes of exactly its size.
fn sweep(holes: &mut Holes, entities: &mut [Entity]) {
    let mut gave = true;
    while gave && holes.quanta() > 0 {
        gave = false;
        for entity in entities.iter_mut() {
            let orders: Vec<u64> = entity
                .want
                .iter()
                .rev()
                .filter(|(_, c)| **c > 0)
                .map(|(o, _)| *o)
                .collect();
            for order in orders {
                if holes.remove(order) {
                    entity.give(order, 1);
                    gave = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(sizes: &[u64], entities: &[(u64, u64, u64)]) -> Vec<u64> {
        run_with(false, sizes, entities)
    }

    fn run_with(level: bool, sizes: &[u64], entities: &[(u64, u64, u64)]) -> Vec<u64> {
        let mut holes = Holes::default();
        for size in sizes {
            holes.add(*size, 1);
        }
        let mut list: Vec<Entity> = entities
            .iter()
            .map(|(weight, order, want)| Entity::new(*weight, Amounts::from([(*order, *want)])))
            .collect();
        apportion(holes, &mut list, level);
        list.iter()
            .map(|entity| entity.given.values().sum())
            .collect()
    }

    #[test]
    fn x15_two_passes_divide_the_residues() {
        assert_eq!(
            run(&[2, 2, 2, 2, 2, 2, 1, 1, 1], &[(1, 2, 99), (1, 1, 99)]),
            [4, 7]
        );
    }

    #[test]
    fn x7_x8_x9_classes_by_weight_with_remainders_in_sort_order() {
        assert_eq!(run(&[5; 4], &[(100, 2, 99), (100, 1, 99)]), [6, 8]);
        assert_eq!(
            run(&[1; 7], &[(100, 1, 99), (100, 1, 99), (100, 1, 99)]),
            [3, 2, 2]
        );
        assert_eq!(run(&[2; 5], &[(900, 1, 99), (100, 2, 99)]), [8, 1]);
    }

    #[test]
    fn c_1_a_satisfied_entity_leaves_the_divisor_once() {
        let given = run(&[4, 4, 4, 4], &[(1, 4, 99), (1, 1, 99)]);
        assert_eq!(given, [2, 8]);
    }

    #[test]
    fn w_4_one_remainder_each_before_anybody_has_a_second() {
        // The first two want little, and what they leave is divided in passes of its own.
        let claims = [(1, 1, 1), (1, 1, 4), (1, 1, 99), (1, 1, 99), (1, 1, 99)];
        assert_eq!(run_with(false, &[29], &claims), [1, 4, 9, 8, 7]);
        assert_eq!(run_with(true, &[29], &claims), [1, 4, 8, 8, 8]);
    }
}
