//! The same division among entities that weigh the same, stand even, and each want one order: the
//! work of one user. Many of them want the same, so they come in bands: entities who want as many
//! processes of one order and so far were given as many. A band is looked at once, and divided
//! where a turn decides: who is handed what rounding left, who is the last that finds room.
//! [`Claims`](super::Claims) says what has to come of it.

use std::{cmp::Reverse, ops::Range};

use super::scaled;
use crate::orders::Holes;

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

    /// Leaves those before this turn and returns the others.
    fn divide(&mut self, turn: u32) -> Option<Self> {
        let place = before(self.turns, turn);
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
    while bands.all.iter().any(|band| band.takes_part) && holes.quanta() > 0 {
        if !bands.pass(&mut holes, level) {
            break;
        }
        let largest = holes.largest();
        for band in &mut bands.all {
            band.takes_part &= band.want > 0 && band.order <= largest;
        }
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

    /// As [`turn_at`], where each entity of a band takes as much as `takes` says.
    fn turn_at(
        &mut self,
        lane: Range<usize>,
        takes: impl Fn(&Band) -> u64,
        most: u64,
    ) -> (u32, u64) {
        self.parts.clear();
        let parts = self.all[lane].iter().map(|band| Part {
            turns: band.turns,
            each: takes(band),
            before: 0,
        });
        self.parts.extend(parts.filter(|part| part.each > 0));
        turn_at(&mut self.parts, most)
    }

    /// Divides the bands that `which` names at a turn; returns where the lane is from then on.
    fn divide(
        &mut self,
        lane: Range<usize>,
        turn: u32,
        which: impl Fn(&Band) -> bool,
    ) -> Range<usize> {
        let Range { start, mut end } = lane;
        // What is behind stays where it is until it was looked at.
        for at in (start..end).rev() {
            if which(&self.all[at])
                && let Some(rest) = self.all[at].divide(turn)
            {
                self.all.insert(at + 1, rest);
                end += 1;
            }
        }
        start..end
    }

    /// True when it gave anything.
    fn pass(&mut self, holes: &mut Holes, level: bool) -> bool {
        let mut open = self.begin(holes.quanta(), level);
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
                open -= self.idle();
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
            let served = self.serve(lane, quota, fitting);
            anything |= served.taken > 0;
            holes.take(served.taken, order);
            if first {
                open -= self.idle();
            }
            first = false;
            open -= served.closed;
            lane = self.lane(served.end);
        }
        anything
    }

    /// Gives the entities of one order their quota, in turn, as far as it fits.
    fn serve(&mut self, lane: Range<usize>, quota: u64, fitting: u64) -> Served {
        let mut all = 0_u128;
        for band in &mut self.all[lane.clone()] {
            let due = quota.min(band.deserved);
            // Rounding up to one process keeps large work from starving.
            let count = (due / band.order).max(u64::from(due > 0)).min(band.want);
            band.next = if band.takes_part { count } else { 0 };
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
        let (turn, before) = self.turn_at(lane.clone(), |band| band.next, fitting);
        let gets = |band: &Band| band.next > 0;
        let lane = self.divide(lane, turn, gets);
        let lane = self.divide(lane, turn + 1, gets);
        for band in self.all[lane.clone()].iter_mut().filter(|band| gets(band)) {
            match band.turns[0] {
                first if first < turn => {}
                first if first == turn => band.next = fitting - before,
                _ => band.next = 0,
            }
        }
        lane
    }

    /// Tells each what it deserves; returns how many take part.
    fn begin(&mut self, total: u64, level: bool) -> u64 {
        let taking_part = self.all.iter().filter(|band| band.takes_part);
        let open: u64 = taking_part.map(Band::count).sum();
        let each = total / open;
        for band in &mut self.all {
            band.deserved = if band.takes_part { each } else { 0 };
        }
        self.hand_out(total % open, each, level);
        open
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
            let mut turn = u32::MAX;
            if next > rest {
                let all = 0..self.all.len();
                let takes = |band: &Band| u64::from(is_next(band));
                turn = self.turn_at(all.clone(), takes, rest).0;
                self.divide(all, turn, is_next);
            }
            for band in &mut self.all {
                if is_next(band) && band.turns[0] < turn {
                    (band.deserved, band.extras) = (band.deserved + 1, band.extras + 1);
                }
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
            let turn = if there < wanting {
                let takes = |band: &Band| u64::from(wants(band));
                let (turn, _) = self.turn_at(lane.clone(), takes, there);
                lane = self.divide(lane, turn, wants);
                turn
            } else {
                u32::MAX
            };
            for band in &mut self.all[lane.clone()] {
                if wants(band) && band.turns[0] < turn {
                    band.give(1);
                }
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

/// Turns of a band among which one is looked for.
struct Part<'t> {
    turns: &'t [u32],
    /// What each of them takes.
    each: u64,
    /// How many of them come before the turn at hand.
    before: usize,
}

impl Part<'_> {
    /// What so many of them take.
    fn take(&self, count: usize) -> u64 {
        self.each.saturating_mul(count as u64)
    }
}

/// The first in turn for whom `most` does not suffice any more, and how much is taken before. All
/// together take more than that.
fn turn_at(parts: &mut [Part], most: u64) -> (u32, u64) {
    let all = parts.iter().map(|part| part.take(part.turns.len()));
    let mut left = all.fold(0, u64::saturating_add);
    let (mut taken, mut halves) = (0, false);
    while let Some(longest) = parts.iter().max_by_key(|part| part.turns.len()) {
        // Turns are mostly spread evenly, so a guess by what is left hits or misses by little.
        // Where they are not, every other guess halves the longest part.
        let (turns, own) = (longest.turns, longest.each);
        let place = if halves {
            turns.len() / 2
        } else {
            let guess = scaled(turns.len() as u64, most - taken, left.max(1), false);
            usize::try_from(guess).unwrap_or(usize::MAX)
        };
        let Some(turn) = turns.get(place).or(turns.last()).copied() else {
            break;
        };
        let mut earlier = taken;
        for part in parts.iter_mut() {
            part.before = before(part.turns, turn);
            earlier = earlier.saturating_add(part.take(part.before));
        }
        let is_beyond = earlier > most;
        if !is_beyond && earlier.saturating_add(own) > most {
            return (turn, earlier);
        }
        for part in parts.iter_mut() {
            let (first, last) = part.turns.split_at(part.before);
            part.turns = match last {
                _ if is_beyond => first,
                [one, later @ ..] if *one == turn => later,
                later => later,
            };
        }
        if is_beyond {
            left = earlier - taken;
        } else {
            left = left.saturating_sub(earlier + own - taken);
            taken = earlier + own;
        }
        halves = !halves;
    }
    (u32::MAX, taken)
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
