//! The division among entities of equal weight without accounts, each with one process size: the
//! work of one user. Entities with equal demand and equal grants form a band, which is processed at
//! once. A band is split where the order decides which entity gets one process more, or is the last
//! with space. The result equals that of [`Claims`](super::Claims).

mod band;
mod remainder;
mod search;

use std::{cmp::Reverse, ops::Range};

use crate::state::hole_table::HoleTable;
use band::before;
pub(crate) use band::{Band, Member};
use remainder::Remainder;
use search::{Part, turn_at};

/// Divides holes among the bands. `level` is `spread_remainders` of
/// [`DivisionSettings`](crate::input::settings::DivisionSettings). Returns the bands with the
/// largest size first. Bands of one owner are adjacent and in the order of their sequence numbers.
pub(crate) fn divide<'t>(
    entering: impl ExactSizeIterator<Item = Band<'t>>,
    mut holes: HoleTable,
    level: bool,
) -> Vec<Band<'t>> {
    let mut bands = Bands::enter(entering, level);
    let mut open = bands.ranges.iter().map(|range| range.open).sum();
    while open > 0 {
        let total = holes.total_quanta();
        if total == 0 || !bands.pass(total, open, &mut holes) {
            break;
        }
        open = bands.retain_able(holes.largest());
    }
    for at in 0..bands.ranges.len() {
        bands.sweep(at, &mut holes);
    }
    bands.all
}

struct Bands<'t> {
    /// Bands, largest size first.
    all: Vec<Band<'t>>,
    ranges: Vec<BandRange>,
    extras: Remainder,
    /// Scratch space for searches, reused for its capacity.
    parts: Vec<Part<'t>>,
}

/// Adjacent bands of one size.
struct BandRange {
    quanta: u64,
    start: usize,
    end: usize,
    /// True if any band of this size has or had demand.
    is_wanted: bool,
    /// Number of entities that take part.
    open: u64,
}

impl BandRange {
    fn bands(&self) -> Range<usize> {
        self.start..self.end
    }
}

impl<'t> Bands<'t> {
    fn enter(entering: impl ExactSizeIterator<Item = Band<'t>>, level: bool) -> Self {
        // Twice the number of bands is enough, because few bands are split.
        let mut all: Vec<Band> = Vec::with_capacity(2 * entering.len());
        all.extend(entering);
        all.sort_unstable_by_key(|band| (Reverse(band.quanta), band.owner, band.from));
        let mut ranges: Vec<BandRange> = Vec::with_capacity(all.len());
        for (at, band) in all.iter().enumerate() {
            if ranges
                .last()
                .is_none_or(|range| range.quanta != band.quanta)
            {
                ranges.push(BandRange {
                    quanta: band.quanta,
                    start: at,
                    end: at,
                    is_wanted: false,
                    open: 0,
                });
            }
            if let Some(range) = ranges.last_mut() {
                range.end = at + 1;
                range.is_wanted |= band.want > 0;
                range.open += band.count();
            }
        }
        Self {
            parts: Vec::new(),
            extras: Remainder::new(level),
            all,
            ranges,
        }
    }

    fn lane(&self, at: usize) -> &[Band<'t>] {
        &self.all[self.ranges[at].bands()]
    }

    fn lane_mut(&mut self, at: usize) -> &mut [Band<'t>] {
        &mut self.all[self.ranges[at].bands()]
    }

    /// Drops entities whose demand is met or no longer fits. Returns how many remain.
    fn retain_able(&mut self, largest: u64) -> u64 {
        let (mut open, passes) = (0, self.extras.passes());
        for range in self.ranges.iter_mut().filter(|range| range.open > 0) {
            range.open = 0;
            for band in &mut self.all[range.bands()] {
                if band.want == 0 || band.quanta > largest {
                    band.until = band.until.min(passes);
                } else {
                    range.open += band.count();
                }
            }
            open += range.open;
        }
        open
    }

    /// Finds the entity of one size, in order, at which the sum of `takes` exceeds `most`. All
    /// entities together must exceed it. Returns the sequence number of that entity and the sum
    /// before it.
    fn turn(&mut self, at: usize, takes: impl Fn(&Band) -> u64, most: u64) -> (u32, u64) {
        self.parts.clear();
        let bands = self.all[self.ranges[at].bands()].iter();
        self.parts.reserve(bands.len());
        let parts = bands.map(|band| Part::new(band.members, takes(band)));
        self.parts.extend(parts.filter(Part::takes_some));
        turn_at(&mut self.parts, most)
    }

    /// Splits the bands of one size that are `concerned` before each of these sequence numbers.
    /// `numbers` is in descending order.
    fn part(&mut self, range: usize, concerned: impl Fn(&Band) -> bool, numbers: &[u32]) {
        let before_all = self.all.len();
        // The loop runs backwards, so that an inserted band does not move those still to be
        // processed.
        for at in self.ranges[range].bands().rev() {
            for number in numbers {
                let band = &mut self.all[at];
                if !concerned(band) {
                    break;
                }
                if let Some(rest) = band.divide(before(band.members, *number)) {
                    self.all.insert(at + 1, rest);
                }
            }
        }
        let more = self.all.len() - before_all;
        self.ranges[range].end += more;
        for later in &mut self.ranges[range + 1..] {
            (later.start, later.end) = (later.start + more, later.end + more);
        }
    }

    /// Gives each entity up to its deserved quanta, largest processes first. Returns true if it
    /// gave any process.
    fn pass(&mut self, total: u64, all: u64, holes: &mut HoleTable) -> bool {
        let (each, rest) = (total / all, total % all);
        self.extras.begin(rest);
        // Number of entities that take part and deserve nothing.
        let mut idle = if each > 0 { 0 } else { all - rest };
        let (mut open, mut anything) = (all, false);
        // Sizes after the last entity that takes part do not matter.
        let last = self.ranges.iter().rposition(|range| range.open > 0);
        let end = last.map_or(0, |last| last + 1);
        for at in 0..end {
            let range = &self.ranges[at];
            let (quanta, largest) = (range.quanta, holes.largest());
            if !range.is_wanted || quanta > largest {
                continue;
            }
            // Entities that deserve nothing leave the divisor before the first size with demand.
            if largest > quanta {
                open -= std::mem::take(&mut idle);
            }
            if open == 0 {
                break;
            }
            if range.open > 0 {
                let fitting = holes.count_processes(quanta);
                let quota = (fitting * quanta).div_ceil(open);
                let taken = self.serve(at, quota, each, fitting);
                anything |= taken > 0;
                holes.fill_exact_first(taken, quanta);
                if at + 1 < end {
                    open -= self.closed(at, each);
                }
            }
            open -= std::mem::take(&mut idle);
        }
        anything
    }

    /// Gives the entities of one size their quota in order, as far as it fits. Returns the number
    /// of processes given.
    fn serve(&mut self, at: usize, quota: u64, each: u64, fitting: u64) -> u64 {
        let quanta = self.ranges[at].quanta;
        let processes = |deserved: u64| {
            let due = quota.min(deserved);
            // Each entity is rounded up to one process, so that large work does not starve.
            (due / quanta).max(u64::from(due > 0))
        };
        let least = processes(each);
        // A remainder is at most one quantum for each entity, which is seldom enough for one more
        // process.
        let offered = if quota > each && self.extras.are_some() {
            self.give_quota(at, least, processes(each + 1))
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

    /// Returns the number of entities of this size that got what they deserve.
    fn closed(&mut self, at: usize, each: u64) -> u64 {
        let quanta = self.ranges[at].quanta;
        let (mut closed, mut even) = (0, false);
        for band in self.lane(at) {
            let got = band.next * quanta;
            if got > 0 && got >= each {
                closed += band.count();
                even |= got == each;
            }
        }
        // Entities with a remainder quantum deserve more.
        if even && self.extras.are_some() {
            let handed = self.extras.handed(&self.all, &mut self.parts);
            let bands = self.lane(at).iter();
            let even = bands.filter(|band| band.next * quanta == each);
            closed -= even.map(|band| handed.count(band.members)).sum::<u64>();
        }
        closed
    }

    /// Offers each entity `count` processes, limited by its demand. Returns the sum.
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

    /// Makes offers like `offer`: entities with a remainder quantum get `most`, the others `least`.
    fn give_quota(&mut self, at: usize, least: u64, most: u64) -> u64 {
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

    /// Cuts the offers to what fits. The first entities in order get all of their offer, and one
    /// may get a part.
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

    /// Gives the remaining holes of exactly this size, one process at a time.
    fn sweep(&mut self, at: usize, holes: &mut HoleTable) {
        let quanta = self.ranges[at].quanta;
        // Entities that take no part have no demand, or no hole of their size.
        while self.ranges[at].open > 0 {
            let there = holes.count(quanta);
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
            holes.remove_up_to(quanta, there.min(wanting));
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
        ids::{Ix, TypedVec, WorkIx},
        input::{settings::DivisionSettings, snapshot::Standing},
    };

    proptest! {
        #[test]
        fn bands_divide_like_claims(
            wants in prop::collection::vec((0..8_u64, 0..6_u64, 1..4_u32), 1..150),
            // The smaller these numbers, the longer the bands.
            (orders, counts) in (1..9_u64, 1..7_u64),
            sizes in prop::collection::vec((1..20_u64, 1..30_u64), 0..8),
            level in any::<bool>(),
        ) {
            let of_few = |(quanta, want, gap)| (1 + quanta % orders, want % counts, gap);
            let wants: Vec<(u64, u64, u32)> = wants.into_iter().map(of_few).collect();
            let mut holes = HoleTable::default();
            for (size, count) in sizes {
                holes.add(size, count);
            }
            let mut claims = Claims::default();
            // Members by their quanta and demand.
            let mut alike = BTreeMap::<(u64, u64), Vec<Member>>::new();
            let mut turn = 0;
            for (work, (quanta, want, gap)) in (0..).map(WorkIx::new).zip(&wants) {
                claims.add_entity(1, Standing::Even);
                claims.add_demand(*quanta, *want);
                alike.entry((*quanta, *want)).or_default().push(Member { seq: turn, work });
                turn += gap;
            }
            let settings = DivisionSettings {
                spread_remainders: level,
                holes_among_rivals: false,
            };
            claims.apportion(holes.clone(), settings);
            let numbered = (0..).zip(&alike).collect::<Vec<_>>().into_iter();
            let bands = numbered.map(|(owner, ((quanta, want), members))| {
                Band::new(owner, 0, members, *quanta, *want)
            });
            let mut given: TypedVec<WorkIx, u64> = vec![u64::MAX; wants.len()].into();
            for band in divide(bands, holes, level) {
                for member in band.members {
                    given[member.work] = band.given;
                }
            }
            prop_assert!(given.iter().eq(&claims.processes()));
        }
    }
}
