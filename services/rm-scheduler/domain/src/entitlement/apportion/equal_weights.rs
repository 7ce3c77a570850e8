//! Divides holes among the work of one user, faster than [`Claims`](super::Claims) and with the
//! same result. The entities have equal weights, no deficits, and one process size each.
//!
//! Entities with equal demand and equal grants form a band, and a band is processed in one step. A
//! band is split where its first entities get more than those that follow.
//!
//! A pass goes over all sizes, largest first. Each entity deserves an equal part of all quanta in a
//! pass. For each size, the quota divides the fitting holes among the entities that still have less
//! than they deserve. An offer is the number of processes that an entity gets for its size.

mod band;
mod cutoff_search;
mod remainder;

use std::{cmp::Reverse, ops::Range};

use crate::state::hole_table::HoleTable;
use band::count_before;
pub(crate) use band::{Band, Member};
use cutoff_search::{SearchPart, find_cutoff};
use remainder::Remainder;

/// Divides holes among the bands. `spread_remainders` is the setting of that name in
/// [`DivisionSettings`](crate::input::settings::DivisionSettings). Returns the bands with the
/// largest size first. Bands of one owner are adjacent and in the order of their sequence numbers.
pub(crate) fn divide<'t>(
    bands: impl ExactSizeIterator<Item = Band<'t>>,
    mut holes: HoleTable,
    spread_remainders: bool,
) -> Vec<Band<'t>> {
    let mut bands = Bands::new(bands, spread_remainders);
    let mut open_count = bands.ranges.iter().map(|range| range.open_count).sum();
    while open_count > 0 {
        let total = holes.total_quanta();
        if total == 0 || !bands.run_pass(total, open_count, &mut holes) {
            break;
        }
        open_count = bands.retain_active(holes.largest());
    }
    for range_index in 0..bands.ranges.len() {
        bands.fill_exact_holes(range_index, &mut holes);
    }
    bands.all
}

struct Bands<'t> {
    /// Bands, largest size first.
    all: Vec<Band<'t>>,
    ranges: Vec<BandRange>,
    remainder: Remainder,
    /// Scratch space for searches, reused for its capacity.
    parts: Vec<SearchPart<'t>>,
}

/// Adjacent bands of one size.
struct BandRange {
    quanta: u64,
    start: usize,
    end: usize,
    /// True if any band of this size has or had demand.
    is_wanted: bool,
    /// Number of entities that take part.
    open_count: u64,
}

impl BandRange {
    fn bands(&self) -> Range<usize> {
        self.start..self.end
    }
}

impl<'t> Bands<'t> {
    fn new(bands: impl ExactSizeIterator<Item = Band<'t>>, spread_remainders: bool) -> Self {
        // Few bands are split, so twice their number is enough.
        let mut all: Vec<Band> = Vec::with_capacity(2 * bands.len());
        all.extend(bands);
        all.sort_unstable_by_key(|band| (Reverse(band.quanta), band.owner, band.first_position));
        let mut ranges: Vec<BandRange> = Vec::with_capacity(all.len());
        for (index, band) in all.iter().enumerate() {
            if ranges
                .last()
                .is_none_or(|range| range.quanta != band.quanta)
            {
                ranges.push(BandRange {
                    quanta: band.quanta,
                    start: index,
                    end: index,
                    is_wanted: false,
                    open_count: 0,
                });
            }
            if let Some(range) = ranges.last_mut() {
                range.end = index + 1;
                range.is_wanted |= band.wanted > 0;
                range.open_count += band.count();
            }
        }
        Self {
            parts: Vec::new(),
            remainder: Remainder::new(spread_remainders),
            all,
            ranges,
        }
    }

    fn range_bands(&self, range_index: usize) -> &[Band<'t>] {
        &self.all[self.ranges[range_index].bands()]
    }

    fn range_bands_mut(&mut self, range_index: usize) -> &mut [Band<'t>] {
        &mut self.all[self.ranges[range_index].bands()]
    }

    /// Drops entities whose demand is met or no longer fits. Returns how many remain.
    fn retain_active(&mut self, largest: u64) -> u64 {
        let (mut open_count, passes) = (0, self.remainder.passes());
        for range in self.ranges.iter_mut().filter(|range| range.open_count > 0) {
            range.open_count = 0;
            for band in &mut self.all[range.bands()] {
                if band.wanted == 0 || band.quanta > largest {
                    band.dropped_in_pass = band.dropped_in_pass.min(passes);
                } else {
                    range.open_count += band.count();
                }
            }
            open_count += range.open_count;
        }
        open_count
    }

    /// Finds the entity of one size, in order, at which the sum of `amount_of` exceeds `limit`. All
    /// entities together must exceed it. Returns the sequence number of that entity and the sum
    /// before it.
    fn find_cutoff(
        &mut self,
        range_index: usize,
        amount_of: impl Fn(&Band) -> u64,
        limit: u64,
    ) -> (u32, u64) {
        self.parts.clear();
        let bands = self.all[self.ranges[range_index].bands()].iter();
        self.parts.reserve(bands.len());
        let parts = bands.map(|band| SearchPart::new(band.members, amount_of(band)));
        self.parts.extend(parts.filter(SearchPart::has_amount));
        find_cutoff(&mut self.parts, limit)
    }

    /// Splits the bands of one size for which `should_split` holds. They are split before each of
    /// these sequence numbers, which are in descending order.
    fn split_bands(
        &mut self,
        range_index: usize,
        should_split: impl Fn(&Band) -> bool,
        seqs: &[u32],
    ) {
        let old_len = self.all.len();
        // The loop runs backwards, so that an insertion does not move the bands that follow in the
        // loop.
        for band_index in self.ranges[range_index].bands().rev() {
            for seq in seqs {
                let band = &mut self.all[band_index];
                if !should_split(band) {
                    break;
                }
                if let Some(remaining) = band.split_off(count_before(band.members, *seq)) {
                    self.all.insert(band_index + 1, remaining);
                }
            }
        }
        let added = self.all.len() - old_len;
        self.ranges[range_index].end += added;
        for later in &mut self.ranges[range_index + 1..] {
            (later.start, later.end) = (later.start + added, later.end + added);
        }
    }

    /// Grants each entity up to its deserved quanta, largest processes first. Returns true if it
    /// granted any process.
    fn run_pass(&mut self, total: u64, entities: u64, holes: &mut HoleTable) -> bool {
        let (deserved, remainder) = (total / entities, total % entities);
        self.remainder.begin_pass(remainder);
        // Number of entities that take part and deserve nothing.
        let mut idle_count = if deserved > 0 {
            0
        } else {
            entities - remainder
        };
        // Divisor of the quota: entities that have less than they deserve.
        let (mut open_count, mut granted_any) = (entities, false);
        // Sizes after the last entity that takes part do not matter.
        let last = self.ranges.iter().rposition(|range| range.open_count > 0);
        let end = last.map_or(0, |last| last + 1);
        for range_index in 0..end {
            let range = &self.ranges[range_index];
            let (quanta, largest) = (range.quanta, holes.largest());
            if !range.is_wanted || quanta > largest {
                continue;
            }
            // Entities that deserve nothing leave the divisor before the first size with demand.
            if largest > quanta {
                open_count -= std::mem::take(&mut idle_count);
            }
            if open_count == 0 {
                break;
            }
            if range.open_count > 0 {
                let fitting = holes.count_processes(quanta);
                let quota = (fitting * quanta).div_ceil(open_count);
                let granted_count = self.serve(range_index, quota, deserved, fitting);
                granted_any |= granted_count > 0;
                holes.fill_exact_first(granted_count, quanta);
                if range_index + 1 < end {
                    open_count -= self.count_satisfied(range_index, deserved);
                }
            }
            open_count -= std::mem::take(&mut idle_count);
        }
        granted_any
    }

    /// Grants the entities of one size their quota in order, as far as it fits. Returns the number
    /// of processes granted.
    fn serve(&mut self, range_index: usize, quota: u64, deserved: u64, fitting: u64) -> u64 {
        let quanta = self.ranges[range_index].quanta;
        let count_processes = |deserved: u64| {
            let limited_quota = quota.min(deserved);
            // A quota below one process is rounded up, so that large work does not starve.
            (limited_quota / quanta).max(u64::from(limited_quota > 0))
        };
        let base = count_processes(deserved);
        // A remainder is at most one quantum for each entity, which is seldom enough for one more
        // process.
        let offer_sum = if quota > deserved && self.remainder.is_positive() {
            self.set_offers_with_remainder(range_index, base, count_processes(deserved + 1))
        } else {
            self.set_offers(range_index, |_| base)
        };
        if offer_sum > fitting {
            self.cut_offers(range_index, fitting);
        }
        for band in self.range_bands_mut(range_index) {
            band.grant(band.offer);
        }
        offer_sum.min(fitting)
    }

    /// Returns the number of entities of this size that received what they deserve.
    fn count_satisfied(&mut self, range_index: usize, deserved: u64) -> u64 {
        let quanta = self.ranges[range_index].quanta;
        let (mut satisfied_count, mut any_exact) = (0, false);
        for band in self.range_bands(range_index) {
            let received = band.offer * quanta;
            if received > 0 && received >= deserved {
                satisfied_count += band.count();
                any_exact |= received == deserved;
            }
        }
        // Entities with a remainder quantum deserve more.
        if any_exact && self.remainder.is_positive() {
            let recipients = self.remainder.recipients(&self.all, &mut self.parts);
            let bands = self.range_bands(range_index).iter();
            let exact_bands = bands.filter(|band| band.offer * quanta == deserved);
            satisfied_count -= exact_bands
                .map(|band| recipients.count(band.members))
                .sum::<u64>();
        }
        satisfied_count
    }

    /// Offers each entity `count` processes, limited by its demand. Returns the sum.
    fn set_offers(&mut self, range_index: usize, count: impl Fn(&Band) -> u64) -> u64 {
        let mut sum = 0;
        for band in self.range_bands_mut(range_index) {
            band.offer = if band.takes_part() {
                band.wanted.min(count(band))
            } else {
                0
            };
            sum += band.count() * band.offer;
        }
        sum
    }

    /// Makes offers like `set_offers`. Entities with a remainder quantum are offered `increased`
    /// processes, all others `base`.
    fn set_offers_with_remainder(&mut self, range_index: usize, base: u64, increased: u64) -> u64 {
        let gains = |band: &Band| band.takes_part() && band.wanted > base;
        if increased == base || !self.range_bands(range_index).iter().any(gains) {
            return self.set_offers(range_index, |_| base);
        }
        let recipients = self.remainder.recipients(&self.all, &mut self.parts);
        self.split_bands(range_index, gains, &recipients.ends());
        self.set_offers(range_index, |band| {
            if recipients.contains(band.first_seq()) {
                increased
            } else {
                base
            }
        })
    }

    /// Cuts the offers to the number of processes that fit. The first entities keep their offer,
    /// the next one may keep a part, and all later offers become 0.
    fn cut_offers(&mut self, range_index: usize, fitting: u64) {
        let (cutoff, sum_before) = self.find_cutoff(range_index, |band| band.offer, fitting);
        let partial = fitting - sum_before;
        let ends = [cutoff.saturating_add(1), cutoff];
        let ends = if partial > 0 { &ends[..] } else { &ends[1..] };
        self.split_bands(range_index, |band| band.offer > 0, ends);
        for band in self
            .range_bands_mut(range_index)
            .iter_mut()
            .filter(|band| band.first_seq() >= cutoff)
        {
            band.offer = if band.first_seq() == cutoff {
                partial
            } else {
                0
            };
        }
    }

    /// Grants the remaining holes of exactly this size, one process to each entity at a time.
    fn fill_exact_holes(&mut self, range_index: usize, holes: &mut HoleTable) {
        let quanta = self.ranges[range_index].quanta;
        // Entities that take no part have no demand, or no hole of their size.
        while self.ranges[range_index].open_count > 0 {
            let available = holes.count(quanta);
            let has_demand = |band: &Band| band.wanted > 0;
            let wanting_bands = self
                .range_bands(range_index)
                .iter()
                .filter(|band| has_demand(band));
            let wanting_count: u64 = wanting_bands.map(Band::count).sum();
            if available == 0 || wanting_count == 0 {
                return;
            }
            let mut cutoff = u32::MAX;
            if available < wanting_count {
                (cutoff, _) =
                    self.find_cutoff(range_index, |band| u64::from(has_demand(band)), available);
                self.split_bands(range_index, has_demand, &[cutoff]);
            }
            let bands = self.range_bands_mut(range_index).iter_mut();
            let first_bands = bands.filter(|band| has_demand(band) && band.first_seq() < cutoff);
            first_bands.for_each(|band| band.grant(1));
            holes.remove_up_to(quanta, available.min(wanting_count));
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
            demands in prop::collection::vec((0..8_u64, 0..6_u64, 1..4_u32), 1..150),
            // The smaller these numbers, the longer the bands.
            (max_quanta, max_wanted) in (1..9_u64, 1..7_u64),
            sizes in prop::collection::vec((1..20_u64, 1..30_u64), 0..8),
            spread_remainders in any::<bool>(),
        ) {
            let reduced = |(quanta, wanted, gap)| {
                (1 + quanta % max_quanta, wanted % max_wanted, gap)
            };
            let demands: Vec<(u64, u64, u32)> = demands.into_iter().map(reduced).collect();
            let mut holes = HoleTable::default();
            for (size, count) in sizes {
                holes.add(size, count);
            }
            let mut claims = Claims::default();
            // Members by their quanta and demand.
            let mut members_by_demand = BTreeMap::<(u64, u64), Vec<Member>>::new();
            let mut seq = 0;
            for (work, (quanta, wanted, gap)) in (0..).map(WorkIx::new).zip(&demands) {
                claims.add_entity(1, Standing::Even);
                claims.add_demand(*quanta, *wanted);
                members_by_demand.entry((*quanta, *wanted)).or_default().push(Member { seq, work });
                seq += gap;
            }
            let settings = DivisionSettings {
                spread_remainders,
                holes_among_rivals: false,
            };
            claims.apportion(holes.clone(), settings);
            let numbered = (0..).zip(&members_by_demand).collect::<Vec<_>>().into_iter();
            let bands = numbered.map(|(owner, ((quanta, wanted), members))| {
                Band::new(owner, 0, members, *quanta, *wanted)
            });
            let mut granted: TypedVec<WorkIx, u64> = vec![u64::MAX; demands.len()].into();
            for band in divide(bands, holes, spread_remainders) {
                for member in band.members {
                    granted[member.work] = band.granted;
                }
            }
            prop_assert!(granted.iter().eq(&claims.granted_processes()));
        }
    }
}
