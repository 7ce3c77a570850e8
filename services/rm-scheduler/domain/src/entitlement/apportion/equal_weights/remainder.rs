//! Distributes the rounding remainder round-robin, one quantum each. Each pass continues where the
//! last one ended, so only the last sequence number is stored. It is computed on demand, because a
//! quantum seldom makes a process.

use super::{
    Band, Member, before,
    search::{Part, turn_at},
};

pub(super) struct Remainder {
    level: bool,
    /// Remainder quanta by pass.
    left: Vec<u64>,
    /// Number of passes that were computed.
    known: usize,
    /// Entities with a remainder quantum in the last computed pass.
    handed: Handed,
}

/// Range of sequence numbers, which may wrap around.
#[derive(Clone, Copy, Default)]
pub(super) struct Handed {
    from: u32,
    to: u32,
}

impl Handed {
    pub fn has(self, turn: u32) -> bool {
        let (is_from, is_before) = (turn >= self.from, turn < self.to);
        if self.from > self.to {
            is_from || is_before
        } else {
            is_from && is_before
        }
    }

    /// Returns how many of these entities are in the range.
    pub fn count(self, members: &[Member]) -> u64 {
        let (from, to) = (before(members, self.from), before(members, self.to));
        let others = if self.from > self.to {
            members.len()
        } else {
            0
        };
        (others + to - from) as u64
    }

    /// Returns both ends, the later one first.
    pub fn ends(self) -> [u32; 2] {
        [self.from.max(self.to), self.from.min(self.to)]
    }
}

impl Remainder {
    pub fn new(level: bool) -> Self {
        Self {
            level,
            left: Vec::with_capacity(8),
            known: 0,
            handed: Handed::default(),
        }
    }

    /// Begins the next pass. Its remainder is less than a quantum for each entity.
    pub fn begin(&mut self, left: u64) {
        self.left.push(left);
    }

    /// Returns the number of passes, including the current one.
    pub fn passes(&self) -> u32 {
        u32::try_from(self.left.len()).unwrap_or(u32::MAX)
    }

    /// Returns true if this pass has a remainder.
    pub fn are_some(&self) -> bool {
        self.left.last().is_some_and(|left| *left > 0)
    }

    /// Returns the entities with a remainder quantum in this pass.
    pub fn handed<'t>(&mut self, bands: &[Band<'t>], memory: &mut Vec<Part<'t>>) -> Handed {
        while let Some(left) = self.left.get(self.known).copied() {
            let from = if self.level { self.handed.to } else { 0 };
            let taking_part = bands.iter();
            let taking_part = taking_part.filter(|band| band.until as usize > self.known);
            let to = if left > 0 {
                end(taking_part.map(|band| band.members), from, left, memory)
            } else {
                from
            };
            self.handed = Handed { from, to };
            self.known += 1;
        }
        self.handed
    }
}

/// Returns the sequence number after the `left` entities that follow `from`, wrapping around at the
/// end. There are more entities than that.
fn end<'t>(
    bands: impl Iterator<Item = &'t [Member]> + Clone,
    from: u32,
    left: u64,
    memory: &mut Vec<Part<'t>>,
) -> u32 {
    memory.clear();
    let later = |members: &'t [Member]| Part::new(&members[before(members, from)..], 1);
    memory.extend(bands.clone().map(later));
    let there: u64 = memory.iter().map(Part::all).sum();
    if left < there {
        return turn_at(memory, left).0;
    }
    for (part, members) in memory.iter_mut().zip(bands) {
        part.leave_out_of(members);
    }
    turn_at(memory, left - there).0
}
