//! What is kept beside the rows of the books and follows them: each brings itself to where the rows
//! are by looking at what is stirred.

use super::Books;
use crate::{
    beside::both,
    defrag::{Hoards, Prospects},
    how_much::fair::Parties,
    packing::Asking,
    reach::Reaches,
    turns::Queue,
    what_of::FreeNodes,
};

#[derive(Default)]
pub(crate) struct Sets {
    pub reaches: Reaches,
    pub parties: Parties,
    pub queue: Queue,
    pub hoards: Hoards,
    pub prospects: Prospects,
    pub free_nodes: FreeNodes,
    pub asking: Asking,
}

impl Books<'_> {
    /// Takes up how the round begins, in those that no later step brings up to it.
    pub fn take_up(&mut self) {
        let mut sets = std::mem::take(&mut self.sets);
        let Sets {
            hoards,
            prospects,
            free_nodes,
            asking,
            ..
        } = &mut sets;
        let of_work = || {
            hoards.renew(self);
            asking.renew(self);
        };
        let of_nodes = || {
            prospects.renew(self);
            free_nodes.renew(self);
        };
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
