//! The same division among entities that weigh the same, stand even, and each want one order: the
//! work of one user. Many of them want the same, so they come in bands: entities who want as many
//! processes of one order and so far were given as many. A band is looked at once, and divided
//! where a turn decides: who deserves a process more than others, who is the last that finds room.
//! [`Claims`](super::Claims) says what has to come of it.

mod band;
mod remainder;
mod search;

use std::{cmp::Reverse, ops::Range};

use crate::entitlement::hole_table::Holes;
use band::before;
pub(crate) use band::{Band, Member};
use remainder::Extras;
use search::{Part, turn_at};

/// Divides holes among these. `level` is that of [`Manner`](crate::input::settings::Manner). They come back with the
/// largest order first, those of one owner beside each other and by their turns.
pub(crate) fn divide<'t>(
    entering: impl ExactSizeIterator<Item = Band<'t>>,
    mut holes: Holes,
    level: bool,
) -> Vec<Band<'t>> {
    let mut bands = Bands::enter(entering, level);
    let mut open = bands.lanes.iter().map(|lane| lane.open).sum();
    while open > 0 {
        let total = holes.quanta();
        if total == 0 || !bands.pass((total, open), &mut holes) {
            break;
        }
        open = bands.retain_able(holes.largest());
    }
    for at in 0..bands.lanes.len() {
        bands.sweep(at, &mut holes);
    }
    bands.all
}

struct Bands<'t> {
    /// The largest order first.
    all: Vec<Band<'t>>,
    lanes: Vec<Lane>,
    extras: Extras,
    /// Memory for looking for a turn.
    parts: Vec<Part<'t>>,
}

/// Bands of one order, beside each other.
struct Lane {
    order: u64,
    start: usize,
    end: usize,
    /// Does or did anybody want anything?
    is_wanted: bool,
    /// How many take part.
    open: u64,
}

impl Lane {
    fn bands(&self) -> Range<usize> {
        self.start..self.end
    }
}

impl<'t> Bands<'t> {
    fn enter(entering: impl ExactSizeIterator<Item = Band<'t>>, level: bool) -> Self {
        // Few of them are divided.
        let mut all: Vec<Band> = Vec::with_capacity(2 * entering.len());
        all.extend(entering);
        all.sort_unstable_by_key(|band| (Reverse(band.order), band.owner, band.from));
        let mut lanes: Vec<Lane> = Vec::with_capacity(all.len());
        for (at, band) in all.iter().enumerate() {
            if lanes.last().is_none_or(|lane| lane.order != band.order) {
                lanes.push(Lane {
                    order: band.order,
                    start: at,
                    end: at,
                    is_wanted: false,
                    open: 0,
                });
            }
            if let Some(lane) = lanes.last_mut() {
                lane.end = at + 1;
                lane.is_wanted |= band.want > 0;
                lane.open += band.count();
            }
        }
        Self {
            parts: Vec::new(),
            extras: Extras::new(level),
            all,
            lanes,
        }
    }

    fn lane(&self, at: usize) -> &[Band<'t>] {
        &self.all[self.lanes[at].bands()]
    }

    fn lane_mut(&mut self, at: usize) -> &mut [Band<'t>] {
        &mut self.all[self.lanes[at].bands()]
    }

    /// Drops those that want nothing more, or nothing that still fits; returns how many stay.
    fn retain_able(&mut self, largest: u64) -> u64 {
        let (mut open, passes) = (0, self.extras.passes());
        for lane in self.lanes.iter_mut().filter(|lane| lane.open > 0) {
            lane.open = 0;
            for band in &mut self.all[lane.bands()] {
                if band.want == 0 || band.order > largest {
                    band.until = band.until.min(passes);
                } else {
                    lane.open += band.count();
                }
            }
            open += lane.open;
        }
        open
    }

    /// Goes by turn through bands of a lane of which each entity takes as much as `takes` says,
    /// until `most` does not suffice any more; all together take more. Returns that turn and how
    /// much is taken before.
    fn turn(&mut self, at: usize, takes: impl Fn(&Band) -> u64, most: u64) -> (u32, u64) {
        self.parts.clear();
        let bands = self.all[self.lanes[at].bands()].iter();
        self.parts.reserve(bands.len());
        let parts = bands.map(|band| Part::new(band.members, takes(band)));
        self.parts.extend(parts.filter(Part::takes_some));
        turn_at(&mut self.parts, most)
    }

    /// Divides bands of a lane that are concerned before each of these turns, of which the last
    /// comes first.
    fn part(&mut self, lane: usize, concerned: impl Fn(&Band) -> bool, turns: &[u32]) {
        let before_all = self.all.len();
        // What is behind stays where it is until it was looked at.
        for at in self.lanes[lane].bands().rev() {
            for turn in turns {
                let band = &mut self.all[at];
                if !concerned(band) {
                    break;
                }
                if let Some(rest) = band.divide(before(band.members, *turn)) {
                    self.all.insert(at + 1, rest);
                }
            }
        }
        let more = self.all.len() - before_all;
        self.lanes[lane].end += more;
        for later in &mut self.lanes[lane + 1..] {
            (later.start, later.end) = (later.start + more, later.end + more);
        }
    }

    /// True when it gave anything.
    fn pass(&mut self, (total, all): (u64, u64), holes: &mut Holes) -> bool {
        let (each, rest) = (total / all, total % all);
        self.extras.begin(rest);
        // Who takes part and deserves nothing.
        let mut idle = if each > 0 { 0 } else { all - rest };
        let (mut open, mut anything) = (all, false);
        // Nobody asks what comes after the last that take part.
        let last = self.lanes.iter().rposition(|lane| lane.open > 0);
        let end = last.map_or(0, |last| last + 1);
        for at in 0..end {
            let lane = &self.lanes[at];
            let (order, largest) = (lane.order, holes.largest());
            if !lane.is_wanted || order > largest {
                continue;
            }
            // Who deserves nothing leaves the divisor before the first order somebody wants.
            if largest > order {
                open -= std::mem::take(&mut idle);
            }
            if open == 0 {
                break;
            }
            if lane.open > 0 {
                let fitting = holes.processes(order);
                let quota = (fitting * order).div_ceil(open);
                let taken = self.serve(at, (quota, each), fitting);
                anything |= taken > 0;
                holes.take(taken, order);
                if at + 1 < end {
                    open -= self.closed(at, each);
                }
            }
            open -= std::mem::take(&mut idle);
        }
        anything
    }

    /// Gives the entities of one order their quota, in turn, as far as it fits. Returns how many
    /// processes that are.
    fn serve(&mut self, at: usize, (quota, each): (u64, u64), fitting: u64) -> u64 {
        let order = self.lanes[at].order;
        let processes = |deserved: u64| {
            let due = quota.min(deserved);
            // Rounding up to one process keeps large work from starving.
            (due / order).max(u64::from(due > 0))
        };
        let least = processes(each);
        // What rounding left gives nobody more than one quantum, and mostly no process more.
        let offered = if quota > each && self.extras.are_some() {
            self.hand_out(at, least, processes(each + 1))
        } else {
            self.offer(at, |_| least)
        };
        if offered > fitting {
            self.cut(at, fitting);
        }
        for band in self.lane_mut(at) {
            band.give(band.next);
        }
        offered.min(fitting)
    }

    /// How many entities of an order that was served got what they deserve.
    fn closed(&mut self, at: usize, each: u64) -> u64 {
        let order = self.lanes[at].order;
        let (mut closed, mut even) = (0, false);
        for band in self.lane(at) {
            let got = band.next * order;
            if got > 0 && got >= each {
                closed += band.count();
                even |= got == each;
            }
        }
        // Who was handed a quantum more deserves more.
        if even && self.extras.are_some() {
            let handed = self.extras.handed(&self.all, &mut self.parts);
            let bands = self.lane(at).iter();
            let even = bands.filter(|band| band.next * order == each);
            closed -= even.map(|band| handed.count(band.members)).sum::<u64>();
        }
        closed
    }

    /// All who take part are to get so many, or what they want. Returns the sum.
    fn offer(&mut self, at: usize, count: impl Fn(&Band) -> u64) -> u64 {
        let mut sum = 0;
        for band in self.lane_mut(at) {
            band.next = if band.takes_part() {
                band.want.min(count(band))
            } else {
                0
            };
            sum += band.count() * band.next;
        }
        sum
    }

    /// The same where who is handed a quantum is to get `most`, and who is not `least`.
    fn hand_out(&mut self, at: usize, least: u64, most: u64) -> u64 {
        let gains = |band: &Band| band.takes_part() && band.want > least;
        if most == least || !self.lane(at).iter().any(gains) {
            return self.offer(at, |_| least);
        }
        let handed = self.extras.handed(&self.all, &mut self.parts);
        self.part(at, gains, &handed.ends());
        self.offer(at, |band| {
            if handed.has(band.first()) {
                most
            } else {
                least
            }
        })
    }

    /// Where not all fits: the first in turn get all of it, one may get a part, and the others
    /// nothing.
    fn cut(&mut self, at: usize, fitting: u64) {
        let (turn, before) = self.turn(at, |band| band.next, fitting);
        let part = fitting - before;
        let ends = [turn.saturating_add(1), turn];
        let ends = if part > 0 { &ends[..] } else { &ends[1..] };
        self.part(at, |band| band.next > 0, ends);
        for band in self
            .lane_mut(at)
            .iter_mut()
            .filter(|band| band.first() >= turn)
        {
            band.next = if band.first() == turn { part } else { 0 };
        }
    }

    /// What rounding left over goes one process at a time into holes of exactly its size.
    fn sweep(&mut self, at: usize, holes: &mut Holes) {
        let order = self.lanes[at].order;
        // Who takes part no more wants nothing, or there is no hole of its size.
        while self.lanes[at].open > 0 {
            let there = holes.count(order);
            let wants = |band: &Band| band.want > 0;
            let wanting = self.lane(at).iter().filter(|band| wants(band));
            let wanting: u64 = wanting.map(Band::count).sum();
            if there == 0 || wanting == 0 {
                return;
            }
            let mut turn = u32::MAX;
            if there < wanting {
                (turn, _) = self.turn(at, |band| u64::from(wants(band)), there);
                self.part(at, wants, &[turn]);
            }
            let bands = self.lane_mut(at).iter_mut();
            let first = bands.filter(|band| wants(band) && band.first() < turn);
            first.for_each(|band| band.give(1));
            holes.drop_holes(order, there.min(wanting));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        entitlement::apportion::Claims,
        input::{settings::Manner, snapshot::Standing},
    };

    proptest! {
        #[test]
        fn it_divides_as_claims_do(
            wants in prop::collection::vec((0..8_u64, 0..6_u64, 1..4_u32), 1..150),
            // The fewer of these, the longer the bands.
            (orders, counts) in (1..9_u64, 1..7_u64),
            sizes in prop::collection::vec((1..20_u64, 1..30_u64), 0..8),
            level in any::<bool>(),
        ) {
            let of_few = |(order, want, gap)| (1 + order % orders, want % counts, gap);
            let wants: Vec<(u64, u64, u32)> = wants.into_iter().map(of_few).collect();
            let mut holes = Holes::default();
            for (size, count) in sizes {
                holes.add(size, count);
            }
            let mut claims = Claims::default();
            // By what is wanted.
            let mut alike = BTreeMap::<(u64, u64), Vec<Member>>::new();
            let mut turn = 0;
            for (who, (order, want, gap)) in (0..).zip(&wants) {
                claims.enter(1, Standing::Even);
                claims.want(*order, *want);
                alike.entry((*order, *want)).or_default().push(Member { turn, who });
                turn += gap;
            }
            claims.apportion(holes.clone(), Manner { level, rivals: false });
            let numbered = (0..).zip(&alike).collect::<Vec<_>>().into_iter();
            let bands = numbered.map(|(owner, ((order, want), members))| {
                Band::new(owner, (0, members), *order, *want)
            });
            let mut given = vec![u64::MAX; wants.len()];
            for band in divide(bands, holes, level) {
                for member in band.members {
                    given[member.who as usize] = band.given;
                }
            }
            prop_assert_eq!(given, claims.processes());
        }
    }
}
