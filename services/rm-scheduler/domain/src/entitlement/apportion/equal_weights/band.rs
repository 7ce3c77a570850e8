//! Entities that are processed together, because they are equal.

use crate::ids::WorkIx;

/// One entity of a band.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// Unique sequence number.
    pub seq: u32,
    /// Work of the entity, for the caller.
    pub work: WorkIx,
}

/// Equal entities, ordered by sequence number.
#[derive(Clone)]
pub(crate) struct Band<'t> {
    /// Number of the owner, for the caller.
    pub owner: u32,
    /// Position of the first entity in the owner's list.
    pub from: u32,
    pub members: &'t [Member],
    pub quanta: u64,
    /// Number of processes that each entity still wants.
    pub want: u64,
    pub given: u64,
    /// Pass in which the band stops taking part.
    pub(super) until: u32,
    /// Number of processes that each entity gets next.
    pub(super) next: u64,
}

impl<'t> Band<'t> {
    pub fn new(owner: u32, from: u32, members: &'t [Member], quanta: u64, want: u64) -> Self {
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

    /// Returns the sequence number of the first entity.
    pub(super) fn first(&self) -> u32 {
        self.members.first().map_or(u32::MAX, |first| first.seq)
    }

    /// Splits the band at this position. Keeps the entities before it and returns the others.
    /// Returns `None` if one of the parts would be empty.
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

/// Returns the number of entities with a smaller sequence number.
pub(super) fn before(members: &[Member], turn: u32) -> usize {
    // This case is frequent, because first passes begin with the first entity.
    if turn == 0 {
        return 0;
    }
    members.partition_point(|other| other.seq < turn)
}
