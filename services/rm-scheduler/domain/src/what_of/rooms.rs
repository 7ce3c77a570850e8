//! Where there is room, and where there will be: nodes by both, kept from round to round and
//! brought to where the books are before they are asked. What a node is filed under lies side by
//! side, so that of nodes anywhere it is waited for once.

use super::{FreeNodes, Shelf};
use crate::{books::Books, defrag::Prospects};

#[derive(Default)]
pub(crate) struct Rooms {
    pub free: FreeNodes,
    pub prospects: Prospects,
    /// By node.
    filed: Vec<Filed>,
    /// What of this round is filed.
    seen: usize,
}

/// What a node that takes work is filed under: its pool, the quanta that are free there, and those
/// that will be once everything that leaves has left.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(align(32))]
struct Filed {
    pool: Option<u32>,
    /// All of it will be free.
    is_whole: bool,
    free: u64,
    coming: u64,
}

impl Filed {
    fn of(books: &Books, at: usize, coming: u64) -> Self {
        let machine = &books.machines[at];
        let pool = machine.pool.filter(|_| machine.is_schedulable());
        let Some(pool) = pool.and_then(|pool| u32::try_from(pool).ok()) else {
            return Self::default();
        };
        Self {
            pool: Some(pool),
            is_whole: coming == machine.order,
            free: machine.free.order,
            coming,
        }
    }

    fn pool(&self) -> Option<usize> {
        self.pool.map(|pool| pool as usize)
    }
}

impl Rooms {
    pub fn renew(&mut self, books: &Books) {
        let is_first = self.filed.is_empty();
        self.filed.resize(books.machines.len(), Filed::default());
        if is_first {
            let pools = books.forest.len();
            self.free.0.resize_with(pools, Shelf::default);
            self.prospects.0.resize_with(pools, Default::default);
            (0..books.machines.len()).for_each(|at| self.file_first(books, at));
        } else {
            let stirred = books.machines.stirred();
            stirred.for_each(|at| self.file_first(books, at));
        }
        self.seen = books.machines.now();
    }

    /// As the round begins, when nothing is granted and meant for anybody: so most of a node that
    /// nothing was told to leave is not looked at.
    fn file_first(&mut self, books: &Books, at: usize) {
        let machine = &books.machines[at];
        let coming = if machine.told.is_empty() {
            machine.coming_order
        } else {
            books.coming_order(at)
        };
        debug_assert_eq!(coming, books.coming_order(at), "nothing is granted yet");
        self.put(at, Filed::of(books, at, coming));
    }

    /// The same after some of this round is decided.
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

    /// Files a node anew where its room is another than before.
    fn file(&mut self, books: &Books, at: usize) {
        let coming = books.coming_order(at);
        self.put(at, Filed::of(books, at, coming));
    }

    fn put(&mut self, at: usize, now: Filed) {
        let before = std::mem::replace(&mut self.filed[at], now);
        if before == now {
            return;
        }
        let moves = before.pool != now.pool;
        if moves || before.free != now.free {
            let pools = &mut self.free.0;
            if let Some(pool) = before.pool().filter(|_| before.free > 0) {
                pools[pool].remove(before.free, at);
            }
            if let Some(pool) = now.pool().filter(|_| now.free > 0) {
                pools[pool].insert(now.free, at);
            }
        }
        if moves || (before.coming, before.is_whole) != (now.coming, now.is_whole) {
            let pools = &mut self.prospects.0;
            if let Some(pool) = before.pool() {
                pools[pool][usize::from(before.is_whole)].remove(before.coming, at);
            }
            if let Some(pool) = now.pool() {
                pools[pool][usize::from(now.is_whole)].insert(now.coming, at);
            }
        }
    }

    /// The quanta that are free on a node, where it is of that pool and any are.
    pub fn free_in(&self, pool: usize, at: usize) -> Option<u64> {
        let filed = &self.filed[at];
        (filed.pool() == Some(pool) && filed.free > 0).then_some(filed.free)
    }

    /// Of a node that takes work: its pool, and the quanta that will be free there.
    pub fn coming(&self, at: usize) -> Option<(usize, u64)> {
        let filed = &self.filed[at];
        Some((filed.pool()?, filed.coming))
    }

    /// What is kept is what filing all nodes anew gives.
    #[cfg(test)]
    pub fn assert_recounted(&self, books: &Books) {
        let mut anew = Self::default();
        anew.free.0.resize_with(self.free.0.len(), Shelf::default);
        let pools = self.prospects.0.len();
        anew.prospects.0.resize_with(pools, Default::default);
        anew.filed.resize(books.machines.len(), Filed::default());
        (0..books.machines.len()).for_each(|at| anew.file(books, at));
        assert_eq!(self.filed, anew.filed);
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
