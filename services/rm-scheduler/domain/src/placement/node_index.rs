//! Where there is room, and where there will be: nodes by both, kept from round to round and
//! brought to where the books are before they are asked. What a node is filed under lies side by
//! side, so that of nodes anywhere it is waited for once.

use super::FreeNodes;
use crate::{
    collections::{buckets::Shelf, dense_set::Marks},
    defragmentation::Prospects,
    state::{Books, Machine},
};

#[derive(Default)]
pub(crate) struct Rooms {
    pub free: FreeNodes,
    pub prospects: Prospects,
    /// By node.
    filed: Vec<Free>,
    coming: Vec<Coming>,
    /// Nodes where what will be free may be another than was filed. Mostly a round grants what left
    /// just before, so in the end it is not, and it is asked for late.
    stale: Marks,
    /// What of this round is filed, or stale.
    seen: usize,
}

/// Of a node that takes work, where any quanta are free: its pool, and how many.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Free {
    pool: Option<u32>,
    quanta: u64,
}

/// Of a node that takes work: its pool, whether all of it will be free once everything that leaves
/// has left, and the quanta that will be.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Coming {
    shelf: Option<(u32, bool)>,
    quanta: u64,
}

/// The pool of a node that takes work.
fn pool_of(machine: &Machine) -> Option<u32> {
    let pool = machine.pool.filter(|_| machine.is_schedulable());
    pool.and_then(|pool| u32::try_from(pool).ok())
}

impl Free {
    fn of(machine: &Machine) -> Self {
        let quanta = machine.free.order;
        match pool_of(machine).filter(|_| quanta > 0) {
            Some(pool) => Self {
                pool: Some(pool),
                quanta,
            },
            None => Self::default(),
        }
    }

    fn pool(&self) -> Option<usize> {
        self.pool.map(|pool| pool as usize)
    }
}

impl Coming {
    fn of(books: &Books, at: usize) -> Self {
        let machine = &books.machines[at];
        let Some(pool) = pool_of(machine) else {
            return Self::default();
        };
        let quanta = books.coming_order(at);
        Self {
            shelf: Some((pool, quanta == machine.order)),
            quanta,
        }
    }

    fn shelf(&self) -> Option<(usize, usize)> {
        self.shelf
            .map(|(pool, is_whole)| (pool as usize, usize::from(is_whole)))
    }
}

impl Rooms {
    pub fn renew(&mut self, books: &Books) {
        let is_first = self.filed.is_empty();
        self.filed.resize(books.machines.len(), Free::default());
        self.coming.resize(books.machines.len(), Coming::default());
        if is_first {
            let pools = books.forest.len();
            self.free.0.resize_with(pools, Shelf::default);
            self.prospects.0.resize_with(pools, Default::default);
            (0..books.machines.len()).for_each(|at| self.file(books, at));
        } else {
            books.machines.stirred().for_each(|at| self.file(books, at));
        }
        self.seen = books.machines.now();
    }

    /// Where there is room, after some of this round is decided.
    pub fn follow(&mut self, books: &Books) {
        for at in books.machines.since(self.seen) {
            self.file(books, at);
        }
        self.seen = books.machines.now();
    }

    /// The same where this node alone was written since.
    pub fn follow_one(&mut self, books: &Books, at: usize) {
        debug_assert!(books.machines.since(self.seen).all(|other| other == at));
        self.file(books, at);
        self.seen = books.machines.now();
    }

    /// The same, and where there will be room.
    pub fn follow_prospects(&mut self, books: &Books) {
        self.follow(books);
        let mut stale = std::mem::take(&mut self.stale);
        stale.listed().for_each(|at| self.file_prospect(books, at));
        stale.clear();
        self.stale = stale;
    }

    /// Files a node anew where its room is another than before.
    fn file(&mut self, books: &Books, at: usize) {
        self.stale.insert(at);
        let now = Free::of(&books.machines[at]);
        let before = std::mem::replace(&mut self.filed[at], now);
        if before == now {
            return;
        }
        if let Some(pool) = before.pool() {
            self.free.0[pool].remove(before.quanta, at);
        }
        if let Some(pool) = now.pool() {
            self.free.0[pool].insert(now.quanta, at);
        }
    }

    fn file_prospect(&mut self, books: &Books, at: usize) {
        let now = Coming::of(books, at);
        let before = std::mem::replace(&mut self.coming[at], now);
        if before == now {
            return;
        }
        let shelves = &mut self.prospects.0;
        if let Some((pool, shelf)) = before.shelf() {
            shelves[pool][shelf].remove(before.quanta, at);
        }
        if let Some((pool, shelf)) = now.shelf() {
            shelves[pool][shelf].insert(now.quanta, at);
        }
    }

    /// The quanta that are free on a node, where it is of that pool and any are.
    pub fn free_in(&self, pool: usize, at: usize) -> Option<u64> {
        let filed = &self.filed[at];
        (filed.pool() == Some(pool)).then_some(filed.quanta)
    }

    /// Of a node that takes work: its pool, and the quanta that will be free there.
    pub fn coming(&self, at: usize) -> Option<(usize, u64)> {
        let filed = &self.coming[at];
        let (pool, _) = filed.shelf()?;
        Some((pool, filed.quanta))
    }

    /// What is kept is what filing all nodes anew gives.
    #[cfg(test)]
    pub fn assert_recounted(&self, books: &Books) {
        let mut anew = Self::default();
        anew.free.0.resize_with(self.free.0.len(), Shelf::default);
        let pools = self.prospects.0.len();
        anew.prospects.0.resize_with(pools, Default::default);
        let nodes = books.machines.len();
        anew.filed.resize(nodes, Free::default());
        anew.coming.resize(nodes, Coming::default());
        (0..nodes).for_each(|at| anew.file(books, at));
        (0..nodes).for_each(|at| anew.file_prospect(books, at));
        assert_eq!((&self.filed, &self.coming), (&anew.filed, &anew.coming));
        let all = |shelf: &Shelf| {
            let rows = shelf.from(0);
            let rows = rows.map(|(quanta, nodes)| (quanta, nodes.iter().collect::<Vec<_>>()));
            rows.collect::<Vec<_>>()
        };
        let free = |rooms: &Self| rooms.free.0.iter().map(all).collect::<Vec<_>>();
        assert_eq!(free(self), free(&anew), "nodes by what is free");
        let coming = |rooms: &Self| {
            let shelves = rooms.prospects.0.iter().flatten();
            shelves.map(all).collect::<Vec<_>>()
        };
        assert_eq!(coming(self), coming(&anew), "nodes by what will be free");
    }
}
