//! Entities that are divided among as one.

/// One of a band.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// Nobody else's.
    pub seq: u32,
    /// Says who it is to who asks.
    pub work: u32,
}

/// Entities alike, by their turns.
#[derive(Clone)]
pub(crate) struct Band<'t> {
    /// Says whose band it is to who asks.
    pub owner: u32,
    /// The place of its first in what the owner has.
    pub from: u32,
    pub members: &'t [Member],
    pub quanta: u64,
    /// Still, by each.
    pub want: u64,
    pub given: u64,
    /// The pass with which it takes part no more.
    pub(super) until: u32,
    /// Processes each is to get next.
    pub(super) next: u64,
}

impl<'t> Band<'t> {
    pub fn new(owner: u32, (from, members): (u32, &'t [Member]), quanta: u64, want: u64) -> Self {
        Self {
            owner,
            from,
            members,
            quanta,
            want,
            given: 0,
            // Everyone is in the first pass, also who wants nothing.
            until: u32::MAX,
            next: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.members.len() as u64
    }

    pub(super) fn takes_part(&self) -> bool {
        self.until == u32::MAX
    }

    /// The turn of its first.
    pub(super) fn first(&self) -> u32 {
        self.members.first().map_or(u32::MAX, |first| first.seq)
    }

    /// Leaves those before this place and returns the others, if there are some of both.
    pub(super) fn divide(&mut self, position: usize) -> Option<Self> {
        if position == 0 || position == self.members.len() {
            return None;
        }
        let mut rest = self.clone();
        (self.members, rest.members) = self.members.split_at(position);
        rest.from += u32::try_from(position).unwrap_or(u32::MAX);
        Some(rest)
    }

    pub(super) fn give(&mut self, count: u64) {
        (self.given, self.want) = (self.given + count, self.want - count);
    }
}

/// How many have their turn before this one.
pub(super) fn before(members: &[Member], turn: u32) -> usize {
    // That is asked often, as first passes begin with the first turn of all.
    if turn == 0 {
        return 0;
    }
    members.partition_point(|other| other.seq < turn)
}
