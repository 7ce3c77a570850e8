//! A batch: entities with equal size, demand and grants, which the division processes together.
//!
//! An entity is one piece of work, and its size is the number of quanta of one process. The caller
//! has the entities in groups, and each batch is a part of one group, its owner. A pass of the
//! division goes over all sizes, largest first.

use crate::ids::WorkIx;

/// One entity of a batch: a piece of work.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// Sequence number, unique in a division. Entities are served in this order.
    pub seq: u32,
    /// Work that the entity stands for. Only the caller reads it.
    pub work: WorkIx,
}

/// Equal entities, ordered by sequence number.
#[derive(Clone)]
pub(crate) struct EntityBatch<'t> {
    /// Number of the group that contains the entities. The caller assigns these numbers.
    pub owner: u32,
    /// Position of the first entity of the batch in its group.
    pub first_position: u32,
    pub members: &'t [Member],
    /// Size: quanta of one process.
    pub quanta: u64,
    /// Number of processes that each entity still wants.
    pub wanted: u64,
    /// Number of processes that each entity was granted.
    pub granted: u64,
    /// Number of the pass in which the batch stops getting processes. `u32::MAX` until then.
    pub(super) dropped_in_pass: u32,
    /// Number of processes that each entity gets in the current pass.
    pub(super) offer: u64,
}

impl<'t> EntityBatch<'t> {
    pub fn new(
        owner: u32,
        first_position: u32,
        members: &'t [Member],
        quanta: u64,
        wanted: u64,
    ) -> Self {
        Self {
            owner,
            first_position,
            members,
            quanta,
            wanted,
            granted: 0,
            // All entities are in the first pass, even without demand.
            dropped_in_pass: u32::MAX,
            offer: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.members.len() as u64
    }

    /// Returns true if the entities take part in the current pass.
    pub(super) fn takes_part(&self) -> bool {
        self.dropped_in_pass == u32::MAX
    }

    /// Returns the sequence number of the first entity.
    pub(super) fn first_seq(&self) -> u32 {
        self.members.first().map_or(u32::MAX, |first| first.seq)
    }

    /// Splits the batch at this position. Keeps the entities before the position and returns a
    /// batch of those from it on. Returns `None` if one of the two would be empty.
    pub(super) fn split_off(&mut self, position: usize) -> Option<Self> {
        if position == 0 || position == self.members.len() {
            return None;
        }
        let mut remaining = self.clone();
        (self.members, remaining.members) = self.members.split_at(position);
        remaining.first_position += u32::try_from(position).unwrap_or(u32::MAX);
        Some(remaining)
    }

    pub(super) fn grant(&mut self, count: u64) {
        (self.granted, self.wanted) = (self.granted + count, self.wanted - count);
    }
}

/// Returns the number of entities with a smaller sequence number.
pub(super) fn count_before(members: &[Member], seq: u32) -> usize {
    // Shortcut for a frequent case: the remainder of a first pass begins with the first entity.
    if seq == 0 {
        return 0;
    }
    members.partition_point(|other| other.seq < seq)
}
