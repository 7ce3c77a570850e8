//! Searches bands for the first entity at which the summed amounts exceed a limit.

use super::{Member, before};
use crate::entitlement::apportion::scaled;

/// Part of a band in which the search continues.
pub(super) struct Part<'t> {
    members: &'t [Member],
    /// Amount that each entity takes.
    each: u64,
    /// Number of entities before the current sequence number.
    before: usize,
}

impl<'t> Part<'t> {
    pub fn new(members: &'t [Member], each: u64) -> Self {
        Self {
            members,
            each,
            before: 0,
        }
    }

    pub fn takes_some(&self) -> bool {
        self.each > 0
    }

    /// Returns the amount that all entities take.
    pub fn all(&self) -> u64 {
        self.take(self.members.len())
    }

    /// Replaces the entities by those of `all` that precede them.
    pub fn leave_out_of(&mut self, all: &'t [Member]) {
        self.members = &all[..all.len() - self.members.len()];
    }

    /// Returns the amount that this many entities take.
    fn take(&self, count: usize) -> u64 {
        self.each * count as u64
    }
}

/// Number of entities up to which the search is linear.
const FEW: u64 = 6;

/// Returns the first sequence number at which the summed amounts exceed `most`, and the sum before
/// it. All amounts together must exceed `most`.
pub(super) fn turn_at(parts: &mut [Part], most: u64) -> (u32, u64) {
    // Sums before the remaining entities and including them.
    let (mut taken, mut with_all) = (0, parts.iter().map(Part::all).sum());
    let few = parts.iter().map(|part| part.each).min().unwrap_or(1) * FEW;
    let mut guesses = 0;
    loop {
        if most - taken < few {
            return forward(parts, most, taken);
        }
        if with_all - most <= few {
            return back(parts, most, with_all);
        }
        let Some(longest) = parts.iter().max_by_key(|part| part.members.len()) else {
            return (u32::MAX, taken);
        };
        // The search interpolates. Each third guess halves the longest part, in case sequence
        // numbers are uneven.
        let (members, own) = (longest.members, longest.each);
        let position = if guesses % 3 == 2 {
            members.len() / 2
        } else {
            let guess = scaled(members.len() as u64, most - taken, with_all - taken, false);
            usize::try_from(guess).unwrap_or(usize::MAX)
        };
        let Some(turn) = turn_of(members.get(position).or(members.last())) else {
            return (u32::MAX, taken);
        };
        let mut earlier = taken;
        for part in parts.iter_mut() {
            part.before = before(part.members, turn);
            earlier += part.take(part.before);
        }
        let is_beyond = earlier > most;
        if !is_beyond && earlier + own > most {
            return (turn, earlier);
        }
        for part in parts.iter_mut() {
            let (first, last) = part.members.split_at(part.before);
            let passed = usize::from(turn_of(last.first()) == Some(turn));
            part.members = if is_beyond { first } else { &last[passed..] };
        }
        if is_beyond {
            with_all = earlier;
        } else {
            taken = earlier + own;
        }
        guesses += 1;
    }
}

fn turn_of(member: Option<&Member>) -> Option<u32> {
    member.map(|member| member.seq)
}

/// Searches linearly from the first entity.
fn forward(parts: &mut [Part], most: u64, mut taken: u64) -> (u32, u64) {
    loop {
        let first = |part: &&mut Part| turn_of(part.members.first()).unwrap_or(u32::MAX);
        let next = parts.iter_mut().min_by_key(first);
        let Some((turn, part)) = next.and_then(|part| Some((turn_of(part.members.first())?, part)))
        else {
            return (u32::MAX, taken);
        };
        let with_this = taken + part.each;
        if with_this > most {
            return (turn, taken);
        }
        part.members = &part.members[1..];
        taken = with_this;
    }
}

/// Searches linearly from the last entity.
fn back(parts: &mut [Part], most: u64, mut with_all: u64) -> (u32, u64) {
    loop {
        let last = |part: &&mut Part| turn_of(part.members.last());
        let next = parts.iter_mut().max_by_key(last);
        let Some((turn, rest, part)) = next.and_then(|part| {
            let (last, rest) = part.members.split_last()?;
            Some((last.seq, rest, part))
        }) else {
            return (u32::MAX, with_all);
        };
        with_all -= part.each;
        if with_all <= most {
            return (turn, with_all);
        }
        part.members = rest;
    }
}
