//! Entities that are divided as one.

use crate::ids::WorkIx;

/// One entity of a band.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// Unique.
    pub seq: u32,
    /// For the caller.
    pub work: WorkIx,
}

/// Equal entities, by sequence number.
#[derive(Clone)]
pub(crate) struct Band<'t> {
    /// Number of the owner, for the caller.
    pub owner: u32,
    /// Position of its first entity in the owner's list.
    pub from: u32,
    pub members: &'t [Member],
    pub quanta: u64,
    /// Processes each entity still wants.
    pub want: u64,
    pub given: u64,
    /// Pass in which it stops taking part.
    pub(super) until: u32,
    /// Processes each entity gets next.
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
            // All entities are in the first pass, even without demand.
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

    /// Sequence number of the first entity.
    pub(super) fn first(&self) -> u32 {
        self.members.first().map_or(u32::MAX, |first| first.seq)
    }

    /// Keeps the entities before this position and returns the others, if both exist.
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

/// Number of entities with a smaller sequence number.
pub(super) fn before(members: &[Member], turn: u32) -> usize {
    // Frequent case: first passes begin with the first entity.
    if turn == 0 {
        return 0;
    }
    members.partition_point(|other| other.seq < turn)
}
