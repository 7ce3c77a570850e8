//! Finds the first entity at which the summed amounts exceed a limit.
//!
//! The entities are in several batches, each sorted by sequence number. All entities of a batch
//! have the same amount. The sum runs over the entities of all batches in the order of their
//! sequence numbers. An interpolation search avoids merging the batches.

use super::{Member, count_before};
use crate::entitlement::apportion::scale_amount;

/// Part of a batch in which the search continues.
pub(super) struct SearchPart<'t> {
    members: &'t [Member],
    /// Amount of each entity.
    per_entity: u64,
    /// Number of entities before the guessed sequence number.
    count_before_guess: usize,
}

impl<'t> SearchPart<'t> {
    pub fn new(members: &'t [Member], per_entity: u64) -> Self {
        Self {
            members,
            per_entity,
            count_before_guess: 0,
        }
    }

    pub fn has_amount(&self) -> bool {
        self.per_entity > 0
    }

    /// Returns the amount of all entities.
    pub fn total(&self) -> u64 {
        self.amount_of(self.members.len())
    }

    /// Replaces the entities by those of `all` that precede them.
    pub fn replace_with_preceding(&mut self, all: &'t [Member]) {
        self.members = &all[..all.len() - self.members.len()];
    }

    /// Returns the amount of this many entities.
    fn amount_of(&self, count: usize) -> u64 {
        self.per_entity * count as u64
    }
}

/// Number of entities up to which the search is linear.
const LINEAR_ENTITIES: u64 = 6;

/// Returns the first sequence number at which the summed amounts exceed `limit`, and the sum before
/// it. All amounts together must exceed `limit`.
pub(super) fn find_cutoff(parts: &mut [SearchPart], limit: u64) -> (u32, u64) {
    // Sum before the remaining entities, and sum that includes them.
    let (mut sum_before, mut sum_including) = (0, parts.iter().map(SearchPart::total).sum());
    let linear_amount =
        parts.iter().map(|part| part.per_entity).min().unwrap_or(1) * LINEAR_ENTITIES;
    let mut guesses = 0;
    loop {
        if limit - sum_before < linear_amount {
            return search_forward(parts, limit, sum_before);
        }
        if sum_including - limit <= linear_amount {
            return search_backward(parts, limit, sum_including);
        }
        let Some(longest) = parts.iter().max_by_key(|part| part.members.len()) else {
            return (u32::MAX, sum_before);
        };
        // The guess is an entity of the longest part. Interpolation chooses it by the amounts, as
        // if sequence numbers were even. Each third guess takes the middle, in case they are not.
        let (members, amount) = (longest.members, longest.per_entity);
        let position = if guesses % 3 == 2 {
            members.len() / 2
        } else {
            let guess = scale_amount(
                members.len() as u64,
                limit - sum_before,
                sum_including - sum_before,
                false,
            );
            usize::try_from(guess).unwrap_or(usize::MAX)
        };
        let Some(seq) = seq_of(members.get(position).or(members.last())) else {
            return (u32::MAX, sum_before);
        };
        let mut sum_to_guess = sum_before;
        for part in parts.iter_mut() {
            part.count_before_guess = count_before(part.members, seq);
            sum_to_guess += part.amount_of(part.count_before_guess);
        }
        let is_beyond = sum_to_guess > limit;
        if !is_beyond && sum_to_guess + amount > limit {
            return (seq, sum_to_guess);
        }
        // The search continues before the guessed entity, or after it.
        for part in parts.iter_mut() {
            let (preceding, from_guess) = part.members.split_at(part.count_before_guess);
            let has_guess = seq_of(from_guess.first()) == Some(seq);
            part.members = if is_beyond {
                preceding
            } else {
                &from_guess[usize::from(has_guess)..]
            };
        }
        if is_beyond {
            sum_including = sum_to_guess;
        } else {
            sum_before = sum_to_guess + amount;
        }
        guesses += 1;
    }
}

fn seq_of(member: Option<&Member>) -> Option<u32> {
    member.map(|member| member.seq)
}

/// Searches linearly from the first entity on. The first entity of all parts is the one with the
/// smallest sequence number.
fn search_forward(parts: &mut [SearchPart], limit: u64, mut sum_before: u64) -> (u32, u64) {
    loop {
        let first = |part: &&mut SearchPart| seq_of(part.members.first()).unwrap_or(u32::MAX);
        let next = parts.iter_mut().min_by_key(first);
        let Some((seq, part)) = next.and_then(|part| Some((seq_of(part.members.first())?, part)))
        else {
            return (u32::MAX, sum_before);
        };
        let sum_with_entity = sum_before + part.per_entity;
        if sum_with_entity > limit {
            return (seq, sum_before);
        }
        part.members = &part.members[1..];
        sum_before = sum_with_entity;
    }
}

/// Searches linearly backwards from the last entity of all parts.
fn search_backward(parts: &mut [SearchPart], limit: u64, mut sum_including: u64) -> (u32, u64) {
    loop {
        let last = |part: &&mut SearchPart| seq_of(part.members.last());
        let next = parts.iter_mut().max_by_key(last);
        let Some((seq, remaining, part)) = next.and_then(|part| {
            let (last, remaining) = part.members.split_last()?;
            Some((last.seq, remaining, part))
        }) else {
            return (u32::MAX, sum_including);
        };
        sum_including -= part.per_entity;
        if sum_including <= limit {
            return (seq, sum_including);
        }
        part.members = remaining;
    }
}
