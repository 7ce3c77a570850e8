//! Looking for a turn among bands: who is the first for whom something does not suffice.

use super::{super::scaled, before};

/// Turns of a band among which one is looked for.
pub(super) struct Part<'t> {
    /// Where the band stands.
    pub band: usize,
    turns: &'t [u32],
    /// What each of them takes.
    each: u64,
    /// How many of the band come before these.
    skipped: usize,
    /// How many of them come before the turn at hand.
    before: usize,
}

impl<'t> Part<'t> {
    pub fn new(band: usize, turns: &'t [u32], each: u64) -> Self {
        Self {
            band,
            turns,
            each,
            skipped: 0,
            before: 0,
        }
    }

    /// How many of the band come before the turn that was found.
    pub fn place(&self) -> usize {
        self.skipped + self.before
    }

    pub fn takes_some(&self) -> bool {
        self.each > 0
    }

    /// What so many of them take.
    fn take(&self, count: usize) -> u64 {
        self.each.saturating_mul(count as u64)
    }
}

/// The first in turn for whom `most` does not suffice any more, and how much is taken before. All
/// together take more than that.
pub(super) fn turn_at(parts: &mut [Part], most: u64) -> (u32, u64) {
    let all = parts.iter().map(|part| part.take(part.turns.len()));
    let mut left = all.fold(0, u64::saturating_add);
    let (mut taken, mut guesses) = (0, 0);
    while let Some(longest) = parts.iter().max_by_key(|part| part.turns.len()) {
        // Turns are mostly spread evenly, so a guess by what is left hits or misses by little.
        // Where they are not, every third guess halves the longest part.
        let (turns, own) = (longest.turns, longest.each);
        let place = if guesses % 3 == 2 {
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
            if is_beyond {
                part.turns = first;
                continue;
            }
            let passed = usize::from(last.first() == Some(&turn));
            part.turns = &last[passed..];
            part.skipped += part.before + passed;
        }
        if is_beyond {
            left = earlier - taken;
        } else {
            left = left.saturating_sub(earlier + own - taken);
            taken = earlier + own;
        }
        guesses += 1;
    }
    for part in parts {
        part.before = part.turns.len();
    }
    (u32::MAX, taken)
}
