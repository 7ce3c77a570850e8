//! What is kept beside the rows of the books and follows them: each brings itself to where the rows
//! are by looking at what is stirred.

use super::Books;
use crate::{
    defragmentation::Hoards,
    entitlement::{fair_share::Parties, reachable::Reaches},
    incremental::{idle_trees::Waits, join::both},
    placement::{Rooms, gpu_packing::Asking, serve_order::Queue},
};

#[derive(Default)]
pub(crate) struct Sets {
    pub reaches: Reaches,
    pub parties: Parties,
    pub queue: Queue,
    pub hoards: Hoards,
    pub rooms: Rooms,
    pub waits: Waits,
    pub asking: Asking,
}

impl Books<'_> {
    /// Takes up how the round begins, in those that no later step brings up to it.
    pub fn take_up(&mut self) {
        let mut sets = std::mem::take(&mut self.sets);
        let Sets {
            hoards,
            rooms,
            asking,
            ..
        } = &mut sets;
        let of_work = || {
            hoards.renew(self);
            asking.renew(self);
        };
        let of_nodes = || rooms.renew(self);
        let register = self.register;
        let news = if register.anew {
            register.requests.len()
        } else {
            register.refreshed.len() + register.changed_machines.len()
        };
        both(news, of_work, of_nodes);
        self.sets = sets;
    }
}
