//! Distributes the remainder of rounding round-robin, one quantum to each entity. An entity is one
//! piece of work of a user, with the type [`Member`].
//!
//! The recipients of a pass form one range of sequence numbers, so only its ends are stored. The
//! range is computed on demand, because one more quantum seldom allows one more process.

use super::{
    EntityBatch, Member, count_before,
    cutoff_search::{SearchPart, find_cutoff},
};

pub(super) struct Remainder {
    /// True if each pass continues where the last one ended. Otherwise it begins at the first
    /// entity.
    continues: bool,
    /// Remainder quanta by pass.
    by_pass: Vec<u64>,
    /// Number of passes that were computed.
    computed_passes: usize,
    /// Entities with a remainder quantum in the last computed pass.
    recipients: Recipients,
}

/// Range of sequence numbers from `start` to before `end`. It wraps around at the last entity if
/// `start` is greater than `end`.
#[derive(Clone, Copy, Default)]
pub(super) struct Recipients {
    start: u32,
    end: u32,
}

impl Recipients {
    pub fn contains(self, seq: u32) -> bool {
        let (starts_before_seq, ends_after_seq) = (seq >= self.start, seq < self.end);
        if self.start > self.end {
            starts_before_seq || ends_after_seq
        } else {
            starts_before_seq && ends_after_seq
        }
    }

    /// Returns how many of these entities are in the range.
    pub fn count(self, members: &[Member]) -> u64 {
        let (start, end) = (
            count_before(members, self.start),
            count_before(members, self.end),
        );
        let wrapped = if self.start > self.end {
            members.len()
        } else {
            0
        };
        (wrapped + end - start) as u64
    }

    /// Returns both ends, the later one first.
    pub fn ends(self) -> [u32; 2] {
        [self.start.max(self.end), self.start.min(self.end)]
    }
}

impl Remainder {
    pub fn new(continues: bool) -> Self {
        Self {
            continues,
            by_pass: Vec::with_capacity(8),
            computed_passes: 0,
            recipients: Recipients::default(),
        }
    }

    /// Begins the next pass. Its remainder is smaller than the number of entities.
    pub fn begin_pass(&mut self, remainder: u64) {
        self.by_pass.push(remainder);
    }

    /// Returns the number of passes, including the current one.
    pub fn passes(&self) -> u32 {
        u32::try_from(self.by_pass.len()).unwrap_or(u32::MAX)
    }

    /// Returns true if this pass has a remainder.
    pub fn is_positive(&self) -> bool {
        self.by_pass.last().is_some_and(|remainder| *remainder > 0)
    }

    /// Returns the entities with a remainder quantum in this pass.
    pub fn recipients<'t>(
        &mut self,
        batches: &[EntityBatch<'t>],
        scratch: &mut Vec<SearchPart<'t>>,
    ) -> Recipients {
        while let Some(remainder) = self.by_pass.get(self.computed_passes).copied() {
            let start = if self.continues {
                self.recipients.end
            } else {
                0
            };
            let taking_part = batches.iter();
            let taking_part =
                taking_part.filter(|batch| batch.dropped_in_pass as usize > self.computed_passes);
            let end = if remainder > 0 {
                end_of_recipients(
                    taking_part.map(|batch| batch.members),
                    start,
                    remainder,
                    scratch,
                )
            } else {
                start
            };
            self.recipients = Recipients { start, end };
            self.computed_passes += 1;
        }
        self.recipients
    }
}

/// Returns the sequence number after the `remainder` entities that follow `start`. The range wraps
/// around at the last entity. There are more entities than `remainder`.
fn end_of_recipients<'t>(
    batches: impl Iterator<Item = &'t [Member]> + Clone,
    start: u32,
    remainder: u64,
    scratch: &mut Vec<SearchPart<'t>>,
) -> u32 {
    scratch.clear();
    let members_from =
        |members: &'t [Member]| SearchPart::new(&members[count_before(members, start)..], 1);
    scratch.extend(batches.clone().map(members_from));
    let available: u64 = scratch.iter().map(SearchPart::total).sum();
    if remainder < available {
        let (end, _) = find_cutoff(scratch, remainder);
        return end;
    }
    for (part, members) in scratch.iter_mut().zip(batches) {
        part.replace_with_preceding(members);
    }
    let (end, _) = find_cutoff(scratch, remainder - available);
    end
}
