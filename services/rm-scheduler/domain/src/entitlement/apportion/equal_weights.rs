//! Divides holes among the work of one user, faster than [`Claims`](super::Claims) and with the
//! same result. The entities have equal weights, no deficits, and one process size each.
//!
//! Entities with equal demand and equal grants form a batch, and a batch is processed in one step.
//! A batch is split where its first entities get more than those that follow.
//!
//! A pass goes over all sizes, largest first. Each entity deserves an equal part of all quanta in a
//! pass. For each size, the quota divides the fitting holes among the entities that still have less
//! than they deserve. The offer to an entity is the number of processes that it gets in the pass.

mod cutoff_search;
mod entity_batch;
mod remainder;

use std::{cmp::Reverse, ops::Range};

use crate::state::hole_table::HoleTable;
use cutoff_search::{SearchPart, find_cutoff};
use entity_batch::count_before;
pub(crate) use entity_batch::{EntityBatch, Member};
use remainder::Remainder;

/// Divides holes among the batches. `spread_remainders` is the setting of that name in
/// [`DivisionSettings`](crate::input::settings::DivisionSettings). Returns the batches with the
/// largest size first. Batches of one owner are adjacent and in the order of their sequence
/// numbers.
pub(crate) fn divide<'t>(
    batches: impl ExactSizeIterator<Item = EntityBatch<'t>>,
    mut holes: HoleTable,
    spread_remainders: bool,
) -> Vec<EntityBatch<'t>> {
    let mut division = BatchDivision::new(batches, spread_remainders);
    let mut active_count = division.sizes.iter().map(|size| size.active_count).sum();
    while active_count > 0 {
        let total = holes.total_quanta();
        if total == 0 || !division.run_pass(total, active_count, &mut holes) {
            break;
        }
        active_count = division.retain_active(holes.largest());
    }
    for size_index in 0..division.sizes.len() {
        division.fill_exact_holes(size_index, &mut holes);
    }
    division.batches
}

/// State of a division among batches.
struct BatchDivision<'t> {
    /// Batches, largest size first.
    batches: Vec<EntityBatch<'t>>,
    /// Ranges of `batches` with the same size, largest size first.
    sizes: Vec<SizeRange>,
    remainder: Remainder,
    /// Scratch space for searches, reused for its capacity.
    parts: Vec<SearchPart<'t>>,
}

/// Adjacent batches of one size.
struct SizeRange {
    quanta: u64,
    start: usize,
    end: usize,
    /// True if any batch of this size has or had demand.
    is_wanted: bool,
    /// Number of entities that take part in the next pass.
    active_count: u64,
}

impl SizeRange {
    fn batch_indices(&self) -> Range<usize> {
        self.start..self.end
    }
}

impl<'t> BatchDivision<'t> {
    fn new(
        batches: impl ExactSizeIterator<Item = EntityBatch<'t>>,
        spread_remainders: bool,
    ) -> Self {
        // Few batches are split, so twice their number is enough.
        let mut sorted: Vec<EntityBatch> = Vec::with_capacity(2 * batches.len());
        sorted.extend(batches);
        sorted.sort_unstable_by_key(|batch| {
            (Reverse(batch.quanta), batch.owner, batch.first_position)
        });
        let mut sizes: Vec<SizeRange> = Vec::with_capacity(sorted.len());
        for (index, batch) in sorted.iter().enumerate() {
            if sizes
                .last()
                .is_none_or(|range| range.quanta != batch.quanta)
            {
                sizes.push(SizeRange {
                    quanta: batch.quanta,
                    start: index,
                    end: index,
                    is_wanted: false,
                    active_count: 0,
                });
            }
            if let Some(range) = sizes.last_mut() {
                range.end = index + 1;
                range.is_wanted |= batch.wanted > 0;
                range.active_count += batch.count();
            }
        }
        Self {
            parts: Vec::new(),
            remainder: Remainder::new(spread_remainders),
            batches: sorted,
            sizes,
        }
    }

    fn batches_of_size(&self, size_index: usize) -> &[EntityBatch<'t>] {
        &self.batches[self.sizes[size_index].batch_indices()]
    }

    fn batches_of_size_mut(&mut self, size_index: usize) -> &mut [EntityBatch<'t>] {
        &mut self.batches[self.sizes[size_index].batch_indices()]
    }

    /// Drops entities whose demand is met or no longer fits. Returns how many remain.
    fn retain_active(&mut self, largest: u64) -> u64 {
        let (mut active_count, passes) = (0, self.remainder.passes());
        for range in self.sizes.iter_mut().filter(|range| range.active_count > 0) {
            range.active_count = 0;
            for batch in &mut self.batches[range.batch_indices()] {
                if batch.wanted == 0 || batch.quanta > largest {
                    batch.dropped_in_pass = batch.dropped_in_pass.min(passes);
                } else {
                    range.active_count += batch.count();
                }
            }
            active_count += range.active_count;
        }
        active_count
    }

    /// Finds the entity of one size, in order, at which the sum of `amount_of` exceeds `limit`. All
    /// entities together must exceed it. Returns the sequence number of that entity and the sum
    /// before it.
    fn find_cutoff(
        &mut self,
        size_index: usize,
        amount_of: impl Fn(&EntityBatch) -> u64,
        limit: u64,
    ) -> (u32, u64) {
        self.parts.clear();
        let batches = self.batches[self.sizes[size_index].batch_indices()].iter();
        self.parts.reserve(batches.len());
        let parts = batches.map(|batch| SearchPart::new(batch.members, amount_of(batch)));
        self.parts.extend(parts.filter(SearchPart::has_amount));
        find_cutoff(&mut self.parts, limit)
    }

    /// Splits the batches of one size for which `should_split` holds. They are split before each of
    /// these sequence numbers, which are in descending order.
    fn split_batches(
        &mut self,
        size_index: usize,
        should_split: impl Fn(&EntityBatch) -> bool,
        seqs: &[u32],
    ) {
        let old_len = self.batches.len();
        // The loop runs backwards, so that an insertion does not move the batches that follow in
        // the loop.
        for batch_index in self.sizes[size_index].batch_indices().rev() {
            for seq in seqs {
                let batch = &mut self.batches[batch_index];
                if !should_split(batch) {
                    break;
                }
                if let Some(remaining) = batch.split_off(count_before(batch.members, *seq)) {
                    self.batches.insert(batch_index + 1, remaining);
                }
            }
        }
        let added = self.batches.len() - old_len;
        self.sizes[size_index].end += added;
        for later in &mut self.sizes[size_index + 1..] {
            (later.start, later.end) = (later.start + added, later.end + added);
        }
    }

    /// Grants each entity up to its deserved quanta, largest processes first. Returns true if it
    /// granted any process.
    fn run_pass(&mut self, total: u64, entity_count: u64, holes: &mut HoleTable) -> bool {
        let (deserved, remainder) = (total / entity_count, total % entity_count);
        self.remainder.begin_pass(remainder);
        // Number of entities that take part and deserve nothing.
        let mut idle_count = if deserved > 0 {
            0
        } else {
            entity_count - remainder
        };
        // The quota divides by the open entities: those that have less than they deserve.
        let (mut open_count, mut granted_any) = (entity_count, false);
        // Sizes after the last entity that takes part do not matter.
        let last = self.sizes.iter().rposition(|range| range.active_count > 0);
        let end = last.map_or(0, |last| last + 1);
        for size_index in 0..end {
            let range = &self.sizes[size_index];
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
            if range.active_count > 0 {
                let fitting = holes.count_processes(quanta);
                let quota = (fitting * quanta).div_ceil(open_count);
                let granted_count = self.grant_quota(size_index, quota, deserved, fitting);
                granted_any |= granted_count > 0;
                holes.fill_exact_first(granted_count, quanta);
                if size_index + 1 < end {
                    open_count -= self.count_satisfied(size_index, deserved);
                }
            }
            open_count -= std::mem::take(&mut idle_count);
        }
        granted_any
    }

    /// Grants the entities of one size their quota in order, as far as it fits. Returns the number
    /// of processes granted.
    fn grant_quota(&mut self, size_index: usize, quota: u64, deserved: u64, fitting: u64) -> u64 {
        let quanta = self.sizes[size_index].quanta;
        let count_processes = |deserved: u64| {
            let limited_quota = quota.min(deserved);
            // A quota below one process is rounded up, so that large work does not starve.
            (limited_quota / quanta).max(u64::from(limited_quota > 0))
        };
        let base = count_processes(deserved);
        // A remainder is at most one quantum for each entity, which is seldom enough for one more
        // process.
        let offer_sum = if quota > deserved && self.remainder.is_positive() {
            self.set_offers_with_remainder(size_index, base, count_processes(deserved + 1))
        } else {
            self.set_offers(size_index, |_| base)
        };
        if offer_sum > fitting {
            self.cut_offers(size_index, fitting);
        }
        for batch in self.batches_of_size_mut(size_index) {
            batch.grant(batch.offer);
        }
        offer_sum.min(fitting)
    }

    /// Returns the number of entities of this size that received what they deserve.
    fn count_satisfied(&mut self, size_index: usize, deserved: u64) -> u64 {
        let quanta = self.sizes[size_index].quanta;
        let (mut satisfied_count, mut any_exact) = (0, false);
        for batch in self.batches_of_size(size_index) {
            let received = batch.offer * quanta;
            if received > 0 && received >= deserved {
                satisfied_count += batch.count();
                any_exact |= received == deserved;
            }
        }
        // Entities with a remainder quantum deserve more.
        if any_exact && self.remainder.is_positive() {
            let recipients = self.remainder.recipients(&self.batches, &mut self.parts);
            let batches = self.batches_of_size(size_index).iter();
            let exact_batches = batches.filter(|batch| batch.offer * quanta == deserved);
            satisfied_count -= exact_batches
                .map(|batch| recipients.count(batch.members))
                .sum::<u64>();
        }
        satisfied_count
    }

    /// Offers each entity `count` processes, limited by its demand. Returns the sum.
    fn set_offers(&mut self, size_index: usize, count: impl Fn(&EntityBatch) -> u64) -> u64 {
        let mut sum = 0;
        for batch in self.batches_of_size_mut(size_index) {
            batch.offer = if batch.takes_part() {
                batch.wanted.min(count(batch))
            } else {
                0
            };
            sum += batch.count() * batch.offer;
        }
        sum
    }

    /// Makes offers like `set_offers`. Entities with a remainder quantum are offered `increased`
    /// processes, all others `base`.
    fn set_offers_with_remainder(&mut self, size_index: usize, base: u64, increased: u64) -> u64 {
        let gains = |batch: &EntityBatch| batch.takes_part() && batch.wanted > base;
        if increased == base || !self.batches_of_size(size_index).iter().any(gains) {
            return self.set_offers(size_index, |_| base);
        }
        let recipients = self.remainder.recipients(&self.batches, &mut self.parts);
        self.split_batches(size_index, gains, &recipients.ends());
        self.set_offers(size_index, |batch| {
            if recipients.contains(batch.first_seq()) {
                increased
            } else {
                base
            }
        })
    }

    /// Cuts the offers to the number of processes that fit. The first entities keep their offer,
    /// the next one may keep a part, and all later offers become 0.
    fn cut_offers(&mut self, size_index: usize, fitting: u64) {
        let (cutoff, sum_before) = self.find_cutoff(size_index, |batch| batch.offer, fitting);
        let partial = fitting - sum_before;
        let ends = [cutoff.saturating_add(1), cutoff];
        let ends = if partial > 0 { &ends[..] } else { &ends[1..] };
        self.split_batches(size_index, |batch| batch.offer > 0, ends);
        for batch in self
            .batches_of_size_mut(size_index)
            .iter_mut()
            .filter(|batch| batch.first_seq() >= cutoff)
        {
            batch.offer = if batch.first_seq() == cutoff {
                partial
            } else {
                0
            };
        }
    }

    /// Grants the remaining holes of exactly this size, one process to each entity at a time.
    fn fill_exact_holes(&mut self, size_index: usize, holes: &mut HoleTable) {
        let quanta = self.sizes[size_index].quanta;
        // Entities that take no part have no demand, or no hole of their size.
        while self.sizes[size_index].active_count > 0 {
            let available = holes.count(quanta);
            let has_demand = |batch: &EntityBatch| batch.wanted > 0;
            let wanting_batches = self
                .batches_of_size(size_index)
                .iter()
                .filter(|batch| has_demand(batch));
            let wanting_count: u64 = wanting_batches.map(EntityBatch::count).sum();
            if available == 0 || wanting_count == 0 {
                return;
            }
            let mut cutoff = u32::MAX;
            if available < wanting_count {
                (cutoff, _) =
                    self.find_cutoff(size_index, |batch| u64::from(has_demand(batch)), available);
                self.split_batches(size_index, has_demand, &[cutoff]);
            }
            let batches = self.batches_of_size_mut(size_index).iter_mut();
            let first_batches =
                batches.filter(|batch| has_demand(batch) && batch.first_seq() < cutoff);
            first_batches.for_each(|batch| batch.grant(1));
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
        fn batches_divide_like_claims(
            demands in prop::collection::vec((0..8_u64, 0..6_u64, 1..4_u32), 1..150),
            // Small maxima give many equal entities, and therefore long batches.
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
            // The entities of each batch, by quanta and demand.
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
            let batches = numbered.map(|(owner, ((quanta, wanted), members))| {
                EntityBatch::new(owner, 0, members, *quanta, *wanted)
            });
            let mut granted: TypedVec<WorkIx, u64> = vec![u64::MAX; demands.len()].into();
            for batch in divide(batches, holes, spread_remainders) {
                for member in batch.members {
                    granted[member.work] = batch.granted;
                }
            }
            prop_assert!(granted.iter().eq(&claims.granted_processes()));
        }
    }
}
