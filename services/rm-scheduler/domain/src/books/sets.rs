//! What is kept beside the rows of the books and follows them: each brings itself to where the rows
//! are by looking at what is stirred.

use super::Books;
use crate::{
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
        sets.hoards.renew(self);
        sets.prospects.renew(self);
        sets.free_nodes.renew(self);
        sets.asking.renew(self);
        self.sets = sets;
    }
}
