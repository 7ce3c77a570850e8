//! Entities that are divided among as one.

/// Entities alike, by their turns, which ascend and are nobody else's.
#[derive(Clone)]
pub(crate) struct Band<'t> {
    /// Says whose band it is to who asks.
    pub owner: u32,
    /// The place of its first in what the owner has.
    pub from: u32,
    pub turns: &'t [u32],
    pub order: u64,
    /// Still, by each.
    pub want: u64,
    pub given: u64,
    /// The pass with which it takes part no more.
    pub(super) until: u32,
    /// Processes each is to get next.
    pub(super) next: u64,
}

impl<'t> Band<'t> {
    pub fn new(owner: u32, (from, turns): (u32, &'t [u32]), order: u64, want: u64) -> Self {
        Self {
            owner,
            from,
            turns,
            order,
            want,
            given: 0,
            // Everyone is in the first pass, also who wants nothing.
            until: u32::MAX,
            next: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.turns.len() as u64
    }

    pub(super) fn takes_part(&self) -> bool {
        self.until == u32::MAX
    }

    /// The turn of its first.
    pub(super) fn first(&self) -> u32 {
        self.turns.first().copied().unwrap_or(u32::MAX)
    }

    /// Leaves those before this place and returns the others, if there are some of both.
    pub(super) fn divide(&mut self, place: usize) -> Option<Self> {
        if place == 0 || place == self.turns.len() {
            return None;
        }
        let mut rest = self.clone();
        (self.turns, rest.turns) = self.turns.split_at(place);
        rest.from += u32::try_from(place).unwrap_or(u32::MAX);
        Some(rest)
    }

    pub(super) fn give(&mut self, count: u64) {
        (self.given, self.want) = (self.given + count, self.want - count);
    }
}

/// How many have their turn before this one.
pub(super) fn before(turns: &[u32], turn: u32) -> usize {
    // That is asked often, as first passes begin with the first turn of all.
    if turn == 0 {
        return 0;
    }
    turns.partition_point(|other| *other < turn)
}
