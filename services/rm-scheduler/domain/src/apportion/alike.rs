//! The same division among entities that weigh the same, stand even, and each want one order: the
//! work of one user. Many of them want the same, so they come in bands: entities who want as many
//! processes of one order and so far were given as many. A band is looked at once, and divided
//! where a turn decides: who is handed what rounding left, who is the last that finds room.
//! [`Claims`](super::Claims) says what has to come of it.

mod turn;

use std::{cmp::Reverse, ops::Range};

use crate::orders::Holes;
use turn::{Part, turn_at};

/// Entities alike, by their turns, which ascend and are nobody else's.
#[derive(Clone)]
pub(crate) struct Band<'t> {
    /// Says whose band it is to who asks.
    pub owner: usize,
    /// The place of its first in what the owner has.
    pub from: usize,
    pub turns: &'t [u32],
    pub order: u64,
    /// Still, by each.
    pub want: u64,
    pub given: u64,
    takes_part: bool,
    /// Quanta, in one pass.
    deserved: u64,
    /// Quanta that rounding left and that each was handed, over all passes.
    extras: u64,
    /// Processes each is to get next.
    next: u64,
}

impl<'t> Band<'t> {
    pub fn new(owner: usize, (from, turns): (usize, &'t [u32]), order: u64, want: u64) -> Self {
        Self {
            owner,
            from,
            turns,
            order,
            want,
            given: 0,
            // Everyone is in the first pass, also who wants nothing.
            takes_part: true,
            deserved: 0,
            extras: 0,
            next: 0,
        }
    }

    fn count(&self) -> u64 {
        self.turns.len() as u64
    }

    /// Leaves those before this place and returns the others, if there are some of both.
    fn divide(&mut self, place: usize) -> Option<Self> {
        if place == 0 || place == self.turns.len() {
            return None;
        }
        let mut rest = self.clone();
        (self.turns, rest.turns) = self.turns.split_at(place);
        rest.from += place;
        Some(rest)
    }

    fn give(&mut self, count: u64) {
        (self.given, self.want) = (self.given + count, self.want - count);
    }
}

/// How many have their turn before this one.
fn before(turns: &[u32], turn: u32) -> usize {
    turns.partition_point(|other| *other < turn)
}

/// Divides holes among these. `level` is that of [`Manner`](super::Manner). They come back with the
/// largest order first, those of one owner beside each other and by their turns.
pub(crate) fn divide<'t>(
    entering: impl ExactSizeIterator<Item = Band<'t>>,
    mut holes: Holes,
    level: bool,
) -> Vec<Band<'t>> {
    let mut bands = Bands::enter(entering);
    let mut open = bands.all.iter().map(Band::count).sum();
    while open > 0 {
        let total = holes.quanta();
        if total == 0 || !bands.pass((total, open), &mut holes, level) {
            break;
        }
        open = bands.retain_able(holes.largest());
    }
    let mut lane = bands.lane(0);
    while !lane.is_empty() {
        let end = bands.sweep(lane, &mut holes);
        lane = bands.lane(end);
    }
    bands.all
}

/// Those of one order stand beside each other: a lane.
struct Bands<'t> {
    /// The largest order first.
    all: Vec<Band<'t>>,
    /// Memory for looking for a turn.
    parts: Vec<Part<'t>>,
}

impl<'t> Bands<'t> {
    fn enter(entering: impl ExactSizeIterator<Item = Band<'t>>) -> Self {
        // Few of them are divided more than once.
        let mut all: Vec<Band> = Vec::with_capacity(3 * entering.len());
        all.extend(entering);
        all.sort_unstable_by_key(|band| (Reverse(band.order), band.owner, band.from));
        let parts = Vec::with_capacity(all.capacity());
        Self { all, parts }
    }

    /// The lane that begins here.
    fn lane(&self, from: usize) -> Range<usize> {
        let is_of_it = |band: &&Band| band.order == self.all[from].order;
        from..from + self.all[from..].iter().take_while(is_of_it).count()
    }

    /// Drops those that want nothing more, or nothing that still fits; returns how many stay.
    fn retain_able(&mut self, largest: u64) -> u64 {
        let mut open = 0;
        for band in &mut self.all {
            band.takes_part &= band.want > 0 && band.order <= largest;
            open += if band.takes_part { band.count() } else { 0 };
        }
        open
    }

    /// Goes by turn through bands of which each entity takes as much as `takes` says, until `most`
    /// does not suffice any more; all together take more. Bands are divided there, and `tell` is
    /// told which come before and which do not. Returns where the lane is from then on, the turn,
    /// and how much is taken before.
    fn part(
        &mut self,
        lane: Range<usize>,
        (takes, most): (impl Fn(&Band) -> u64, u64),
        tell: impl Fn(&mut Band, bool),
    ) -> (Range<usize>, u32, u64) {
        let Range { start, mut end } = lane;
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let bands = self.all[lane].iter().zip(start..);
        let bands = bands.map(|(band, at)| Part::new(at, band.turns, takes(band)));
        parts.extend(bands.filter(Part::takes_some));
        let (turn, before) = turn_at(&mut parts, most);
        // What is behind stays where it is until it was looked at.
        for part in parts.iter().rev() {
            let (at, place) = (part.band, part.place());
            let band = &mut self.all[at];
            let rest = band.divide(place);
            tell(band, place > 0);
            if let Some(mut rest) = rest {
                tell(&mut rest, false);
                self.all.insert(at + 1, rest);
                end += 1;
            }
        }
        self.parts = parts;
        (start..end, turn, before)
    }

    /// True when it gave anything.
    fn pass(&mut self, (total, all): (u64, u64), holes: &mut Holes, level: bool) -> bool {
        let each = total / all;
        self.begin((total % all, each), level);
        // Who takes part and deserves nothing; there are none where all deserve something.
        let idle = |bands: &Self| if each > 0 { 0 } else { bands.idle() };
        let mut open = all;
        let (mut first, mut anything) = (true, false);
        let mut lane = self.lane(0);
        while !lane.is_empty() {
            let (order, end) = (self.all[lane.start].order, lane.end);
            if self.all[lane.clone()]
                .iter()
                .all(|it| it.want + it.given == 0)
            {
                lane = self.lane(end);
                continue;
            }
            // Who deserves nothing leaves the divisor before the first order somebody wants.
            if first && holes.largest() > order {
                open -= idle(self);
                first = false;
            }
            let fitting = holes.processes(order);
            if fitting == 0 {
                lane = self.lane(end);
                continue;
            }
            if open == 0 {
                break;
            }
            let quota = (fitting * order).div_ceil(open);
            let served = self.serve(lane, (quota, each), fitting);
            anything |= served.taken > 0;
            holes.take(served.taken, order);
            if first {
                open -= idle(self);
            }
            first = false;
            open -= served.closed;
            lane = self.lane(served.end);
        }
        anything
    }

    /// Gives the entities of one order their quota, in turn, as far as it fits.
    fn serve(&mut self, lane: Range<usize>, (quota, each): (u64, u64), fitting: u64) -> Served {
        let order = self.all[lane.start].order;
        let processes = |deserved: u64| {
            let due = quota.min(deserved);
            // Rounding up to one process keeps large work from starving.
            (due / order).max(u64::from(due > 0))
        };
        // What rounding left gives nobody more than one quantum.
        let (least, most) = (processes(each), processes(each + 1));
        let mut all = 0_u128;
        for band in &mut self.all[lane.clone()] {
            let count = if band.deserved > each { most } else { least };
            band.next = if band.takes_part {
                count.min(band.want)
            } else {
                0
            };
            all += u128::from(band.count()) * u128::from(band.next);
        }
        let lane = if all > u128::from(fitting) {
            self.cut(lane, fitting)
        } else {
            lane
        };
        let (mut taken, mut closed, end) = (0, 0, lane.end);
        for band in self.all[lane].iter_mut().filter(|band| band.takes_part) {
            band.give(band.next);
            taken += band.count() * band.next;
            if band.deserved > 0 && band.next * band.order >= band.deserved {
                closed += band.count();
            }
        }
        Served { taken, closed, end }
    }

    /// Where not all fits: the first in turn get all of it, one may get a part, and the others
    /// nothing.
    fn cut(&mut self, lane: Range<usize>, fitting: u64) -> Range<usize> {
        let takes = |band: &Band| band.next;
        let (mut lane, turn, before) = self.part(lane, (takes, fitting), |band, is_before| {
            band.next = if is_before { band.next } else { 0 };
        });
        let part = fitting - before;
        let first = |band: &Band| band.turns.first() == Some(&turn);
        if part > 0
            && let Some(at) = self.all[lane.clone()].iter().position(first)
        {
            let at = lane.start + at;
            if let Some(rest) = self.all[at].divide(1) {
                self.all.insert(at + 1, rest);
                lane.end += 1;
            }
            self.all[at].next = part;
        }
        lane
    }

    /// Tells each what it deserves.
    fn begin(&mut self, (rest, each): (u64, u64), level: bool) {
        for band in &mut self.all {
            band.deserved = if band.takes_part { each } else { 0 };
        }
        self.hand_out(rest, each, level);
    }

    /// What rounding left, a quantum each beside what all have; who had the fewest of these comes
    /// first.
    fn hand_out(&mut self, mut rest: u64, all_have: u64, level: bool) {
        let had = |band: &Band| if level { band.extras } else { 0 };
        let waits = |band: &Band| band.takes_part && band.deserved == all_have;
        while rest > 0 {
            // The fewest that anybody had, and how many had no more.
            let (mut least, mut next) = (u64::MAX, 0);
            for band in self.all.iter().filter(|band| waits(band)) {
                if had(band) < least {
                    (least, next) = (had(band), 0);
                }
                next += if had(band) == least { band.count() } else { 0 };
            }
            if next == 0 {
                break;
            }
            let is_next = |band: &Band| waits(band) && had(band) == least;
            let hand = |band: &mut Band, gets: bool| {
                band.deserved += u64::from(gets);
                band.extras += u64::from(gets);
            };
            if next > rest {
                let takes = |band: &Band| u64::from(is_next(band));
                self.part(0..self.all.len(), (takes, rest), hand);
            } else {
                let next = self.all.iter_mut().filter(|band| is_next(band));
                next.for_each(|band| hand(band, true));
            }
            rest = rest.saturating_sub(next);
        }
    }

    /// How many take part and deserve nothing.
    fn idle(&self) -> u64 {
        let taking_part = self.all.iter().filter(|band| band.takes_part);
        let idle = taking_part.filter(|band| band.deserved == 0);
        idle.map(Band::count).sum()
    }

    /// What rounding left over goes one process at a time into holes of exactly its size; returns
    /// where the lane ends then.
    fn sweep(&mut self, mut lane: Range<usize>, holes: &mut Holes) -> usize {
        let order = self.all[lane.start].order;
        loop {
            let wants = |band: &Band| band.want > 0;
            let there = holes.count(order);
            let wanting = self.all[lane.clone()].iter().filter(|band| wants(band));
            let wanting: u64 = wanting.map(Band::count).sum();
            if wanting == 0 || there == 0 {
                return lane.end;
            }
            if there < wanting {
                let takes = |band: &Band| u64::from(wants(band));
                let give = |band: &mut Band, gets: bool| band.give(u64::from(gets));
                lane = self.part(lane, (takes, there), give).0;
            } else {
                let bands = self.all[lane.clone()].iter_mut();
                bands
                    .filter(|band| wants(band))
                    .for_each(|band| band.give(1));
            }
            holes.drop_holes(order, there.min(wanting));
        }
    }
}

/// What came of serving a lane.
struct Served {
    /// Processes that were given.
    taken: u64,
    /// How many got what they deserve.
    closed: u64,
    /// Where the lane ends then.
    end: usize,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        apportion::{Claims, Manner},
        snapshot::Standing,
    };

    proptest! {
        #[test]
        fn it_divides_as_claims_do(
            wants in prop::collection::vec((1..9_u64, 0..6_u64, 1..4_u32), 1..40),
            sizes in prop::collection::vec((1..20_u64, 1..9_u64), 0..8),
            level in any::<bool>(),
        ) {
            let mut holes = Holes::default();
            for (size, count) in sizes {
                holes.add(size, count);
            }
            let mut claims = Claims::default();
            // By what is wanted: turns, and who has them.
            let mut alike = BTreeMap::<(u64, u64), (Vec<u32>, Vec<usize>)>::new();
            let mut turn = 0;
            for (at, (order, want, gap)) in wants.iter().enumerate() {
                claims.enter(1, Standing::Even);
                claims.want(*order, *want);
                let (turns, work) = alike.entry((*order, *want)).or_default();
                turns.push(turn);
                work.push(at);
                turn += gap;
            }
            claims.apportion(holes.clone(), Manner { level, rivals: false });
            let bands = alike.iter().enumerate().map(|(owner, ((order, want), (turns, _)))| {
                Band::new(owner, (0, turns), *order, *want)
            });
            let who: Vec<&Vec<usize>> = alike.values().map(|(_, who)| who).collect();
            let mut given = vec![u64::MAX; wants.len()];
            for band in divide(bands, holes, level) {
                for at in &who[band.owner][band.from..band.from + band.turns.len()] {
                    given[*at] = band.given;
                }
            }
            prop_assert_eq!(given, claims.processes());
        }
    }
}
