//! The same division among entities that weigh the same, stand even, and each want one order: the
//! work of one user. There are many of these divisions in a round, so rows lie side by side by
//! order, and what is the same for all of them is reckoned once.
//! [`Claims`](super::Claims) says what has to come of it.

use std::cmp::Reverse;

use crate::orders::Holes;

/// Memory for many divisions.
#[derive(Default)]
pub(crate) struct Alike {
    /// By order, the largest first, and by turn within an order.
    lots: Vec<Lot>,
    /// Orders that are wanted, from the largest down, and where their lots end.
    lanes: Vec<(u64, usize)>,
    turns: Vec<(u64, usize, usize)>,
}

struct Lot {
    turn: usize,
    order: u64,
    /// Still.
    want: u64,
    given: u64,
    takes_part: bool,
    /// Quanta, in one pass.
    deserved: u64,
    got: u64,
    /// Quanta that rounding left and that it was handed, over all passes.
    extras: u64,
}

impl Alike {
    /// Divides holes among these, who come in turn with an order and a number of processes; says
    /// what each got, by its turn. `level` is that of [`Manner`](super::Manner).
    pub fn divide(
        &mut self,
        claims: impl Iterator<Item = (u64, u64)>,
        mut holes: Holes,
        level: bool,
        mut tell: impl FnMut(usize, u64),
    ) {
        self.enter(claims);
        while self.lots.iter().any(|lot| lot.takes_part) && holes.quanta() > 0 {
            if !self.pass(&mut holes, level) {
                break;
            }
            let largest = holes.largest();
            for lot in &mut self.lots {
                lot.takes_part &= lot.want > 0 && lot.order <= largest;
            }
        }
        self.sweep(&mut holes);
        for lot in &self.lots {
            tell(lot.turn, lot.given);
        }
    }

    fn enter(&mut self, claims: impl Iterator<Item = (u64, u64)>) {
        self.lots.clear();
        // Everyone is in the first pass, also who wants nothing.
        self.lots
            .extend(claims.enumerate().map(|(turn, claim)| Lot {
                turn,
                order: claim.0,
                want: claim.1,
                given: 0,
                takes_part: true,
                deserved: 0,
                got: 0,
                extras: 0,
            }));
        self.lots.sort_by_key(|lot| Reverse(lot.order));
        self.lanes.clear();
        let mut end = 0;
        for alike in self.lots.chunk_by(|a, b| a.order == b.order) {
            end += alike.len();
            self.lanes.push((alike[0].order, end));
        }
    }

    /// True when it gave anything.
    fn pass(&mut self, holes: &mut Holes, level: bool) -> bool {
        let mut open = self.begin(holes.quanta(), level);
        let (mut first, mut anything, mut start) = (true, false, 0);
        for at in 0..self.lanes.len() {
            let (order, end) = self.lanes[at];
            let lane = start..end;
            start = end;
            if self.lots[lane.clone()]
                .iter()
                .all(|lot| lot.want + lot.given == 0)
            {
                continue;
            }
            // Who deserves nothing leaves the divisor before the first order somebody wants.
            if first && holes.largest() > order {
                open -= self.idle();
                first = false;
            }
            let fitting = holes.processes(order);
            if fitting == 0 {
                continue;
            }
            if open == 0 {
                break;
            }
            let quota = (fitting * order).div_ceil(open);
            let (mut taken, mut closed) = (0, 0);
            for lot in &mut self.lots[lane.clone()] {
                if !lot.takes_part {
                    continue;
                }
                let due = quota.min(lot.deserved);
                // Rounding up to one process keeps large work from starving.
                let count = (due / order).max(u64::from(due > 0));
                let count = count.min(lot.want).min(fitting - taken);
                (lot.given, lot.want) = (lot.given + count, lot.want - count);
                lot.got = count * order;
                taken += count;
                closed += u64::from(lot.deserved > 0 && lot.got >= lot.deserved);
            }
            anything |= taken > 0;
            holes.take(taken, order);
            if first {
                open -= self.idle();
            }
            first = false;
            open -= closed;
        }
        anything
    }

    /// Tells each what it deserves; returns how many take part.
    fn begin(&mut self, total: u64, level: bool) -> u64 {
        self.turns.clear();
        for (at, lot) in self
            .lots
            .iter()
            .enumerate()
            .filter(|(_, lot)| lot.takes_part)
        {
            let had = if level { lot.extras } else { 0 };
            self.turns.push((had, lot.turn, at));
        }
        let open = self.turns.len() as u64;
        for lot in &mut self.lots {
            lot.got = 0;
            lot.deserved = if lot.takes_part { total / open } else { 0 };
        }
        // What rounding left, a quantum each.
        let rest = usize::try_from(total % open).unwrap_or(usize::MAX);
        if rest < self.turns.len() {
            self.turns.select_nth_unstable(rest);
        }
        for (_, _, at) in self.turns.iter().take(rest) {
            let lot = &mut self.lots[*at];
            (lot.deserved, lot.extras) = (lot.deserved + 1, lot.extras + 1);
        }
        open
    }

    /// How many take part and deserve nothing.
    fn idle(&self) -> u64 {
        let idle = self.lots.iter();
        idle.filter(|lot| lot.takes_part && lot.deserved == 0)
            .count() as u64
    }

    /// What rounding left over goes one process at a time into holes of exactly its size.
    fn sweep(&mut self, holes: &mut Holes) {
        for lane in self.lots.chunk_by_mut(|a, b| a.order == b.order) {
            let mut gave = holes.has(lane[0].order);
            while gave {
                gave = false;
                for lot in lane.iter_mut() {
                    if lot.want > 0 && holes.remove(lot.order) {
                        (lot.given, lot.want) = (lot.given + 1, lot.want - 1);
                        gave = true;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        apportion::{Claims, Manner},
        snapshot::Standing,
    };

    proptest! {
        #[test]
        fn it_divides_as_claims_do(
            wants in prop::collection::vec((1..9_u64, 0..6_u64), 1..40),
            sizes in prop::collection::vec((1..20_u64, 1..9_u64), 0..8),
            level in any::<bool>(),
        ) {
            let mut holes = Holes::default();
            for (size, count) in sizes {
                holes.add(size, count);
            }
            let mut claims = Claims::default();
            for (order, want) in &wants {
                claims.enter(1, Standing::Even);
                claims.want(*order, *want);
            }
            claims.apportion(holes.clone(), Manner { level, rivals: false });
            let mut given = vec![0; wants.len()];
            let mut alike = Alike::default();
            for _ in 0..2 {
                alike.divide(wants.iter().copied(), holes.clone(), level, |turn, count| {
                    given[turn] = count;
                });
                prop_assert_eq!(&given, &claims.processes());
            }
        }
    }
}
