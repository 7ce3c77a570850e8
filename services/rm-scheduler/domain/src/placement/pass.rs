//! One walk over work that is to be placed, and what it found in vain.

use rustc_hash::FxHashSet;

use super::{Rooms, gpu_packing::Packing};
use crate::{
    collections::dense_set::Marks,
    entitlement::whole_nodes::is_promised,
    state::{Books, Request},
};

/// One walk over work that is to be placed.
pub(crate) struct Walk<'a> {
    pub rooms: Rooms,
    /// Idle room is lent, and nothing is placed on nodes whose room is spoken for.
    pub lends: bool,
    /// By pool and shape: what did not fit once does not fit later, as room only shrinks here.
    pub exhausted: FxHashSet<(usize, usize)>,
    /// The same, of room that is meant for others: who is meant himself may still find some.
    pub spoken_for: FxHashSet<(usize, usize)>,
    /// Shapes for which all pools they may use are exhausted.
    vain: Marks,
    /// Decides in its place in pools where gpus are in play.
    pub packing: Option<Packing<'a>>,
}

impl<'a> Walk<'a> {
    /// For this work and other work of its tree.
    pub fn open(books: &mut Books<'a>, at: usize, lends: bool) -> Self {
        let mut rooms = std::mem::take(&mut books.sets.rooms);
        rooms.follow(books);
        let mut asking = std::mem::take(&mut books.sets.asking);
        asking.follow(books);
        books.sets.asking = asking;
        Self {
            rooms,
            lends,
            exhausted: FxHashSet::default(),
            spoken_for: FxHashSet::default(),
            vain: Marks::default(),
            packing: Packing::open(books, books.tree_of(at), |machine| {
                is_usable(books, lends, machine)
            }),
        }
    }

    pub fn close(self, books: &mut Books) {
        books.sets.rooms = self.rooms;
    }

    /// Nowhere was room for work of this shape.
    pub fn is_in_vain(&self, request: &Request) -> bool {
        self.vain.contains(request.shape) && !request.listed
    }

    /// To be asked after one of a shape, which says its home, found less than it lacks.
    pub fn note_vain(&mut self, books: &Books, at: usize, home: usize) {
        let shape = books.requests[at].shape;
        let is_full = |pool: &usize| self.exhausted.contains(&(*pool, shape));
        if books.forest.subtree(home).iter().all(is_full) {
            self.vain.insert(shape);
        }
    }

    /// The room of this node alone is another than before.
    pub fn changed(&mut self, books: &Books, machine: usize) {
        self.rooms.follow_one(books, machine);
        if let Some(packing) = &mut self.packing {
            packing.changed(machine);
        }
    }
}

pub(crate) fn is_usable(books: &Books, lends: bool, at: usize) -> bool {
    let kept = lends || books.settings.clear_promised;
    !(kept && is_promised(books, at) || lends && !books.machines[at].spoken.is_empty())
}
