//! Nodes by free quanta, so that the smallest hole that fits is found without looking at others.
//! Kept from round to round, and brought to where the books are before each walk.

use std::collections::BTreeMap;

use crate::{bits::Bits, books::Books};

#[derive(Default)]
pub(crate) struct FreeNodes {
    /// By pool: nodes of one size of hole.
    pools: Vec<BTreeMap<u64, Bits>>,
    /// By node: the pool and the quanta it is filed under.
    filed: Vec<Option<(usize, u64)>>,
    /// What of this round is filed.
    seen: usize,
}

impl FreeNodes {
    pub fn renew(&mut self, books: &Books) {
        if self.filed.is_empty() {
            self.pools.resize_with(books.forest.len(), BTreeMap::new);
            self.filed.resize(books.machines.len(), None);
            (0..books.machines.len()).for_each(|at| self.file(books, at));
        } else {
            self.filed.resize(books.machines.len(), None);
            books.machines.stirred().for_each(|at| self.file(books, at));
        }
        self.seen = books.machines.now();
    }

    /// The same after some of this round is decided.
    pub fn follow(&mut self, books: &Books) {
        let news = books.machines.since(self.seen);
        news.for_each(|at| self.file(books, at));
        self.seen = books.machines.now();
    }

    /// Files a node anew where its free room is another than before.
    pub fn file(&mut self, books: &Books, at: usize) {
        let machine = &books.machines[at];
        let pool = machine.pool.filter(|_| machine.is_schedulable());
        let free = machine.free.order;
        let place = pool.map(|pool| (pool, free)).filter(|_| free > 0);
        let before = std::mem::replace(&mut self.filed[at], place);
        if before == place {
            return;
        }
        if let Some((pool, free)) = before {
            self.forget(pool, free, at);
        }
        if let Some((pool, free)) = place {
            self.remember(pool, free, at);
        }
    }

    fn forget(&mut self, pool: usize, free: u64, machine: usize) {
        let Some(nodes) = self.pools[pool].get_mut(&free) else {
            return;
        };
        nodes.remove(machine);
        if nodes.is_empty() {
            self.pools[pool].remove(&free);
        }
    }

    fn remember(&mut self, pool: usize, free: u64, machine: usize) {
        self.pools[pool].entry(free).or_default().insert(machine);
    }

    /// Nodes of a pool with at least so many quanta, and some whose room was used since.
    pub fn with(&self, pool: usize, least: u64) -> impl Iterator<Item = usize> {
        let rows = self.pools[pool].range(least..);
        rows.flat_map(|(_, nodes)| nodes.iter())
    }

    /// Nodes of a pool the request may use, smallest hole first, then by name.
    pub fn search(&self, books: &Books, pool: usize, request: usize) -> Search {
        let work = &books.requests[request];
        if !work.listed {
            return Search::All {
                pool,
                free: work.order,
                from: 0,
            };
        }
        let named = books.demand(request).wishes().machines.iter();
        let mut listed: Vec<(u64, usize)> = named
            .filter_map(|name| books.register.machine(name))
            .filter_map(|at| Some((self.filed[at]?, at)))
            .filter(|((of, _), _)| *of == pool)
            .map(|((_, free), at)| (free, at))
            .collect();
        listed.sort_unstable();
        Search::Listed(listed.into_iter())
    }
}

/// A walk over free room that may change behind it: what was used moves to smaller holes.
pub(crate) enum Search {
    All {
        pool: usize,
        free: u64,
        /// The least that may come next among nodes of that hole.
        from: usize,
    },
    Listed(std::vec::IntoIter<(u64, usize)>),
}

impl Search {
    pub fn next(&mut self, nodes: &FreeNodes) -> Option<usize> {
        match self {
            Self::Listed(listed) => listed.next().map(|(_, machine)| machine),
            Self::All { pool, free, from } => loop {
                let (size, nodes) = nodes.pools[*pool].range(*free..).next()?;
                if *size > *free {
                    (*free, *from) = (*size, 0);
                }
                if let Some(machine) = nodes.at_least(*from) {
                    *from = machine + 1;
                    return Some(machine);
                }
                (*free, *from) = (*size + 1, 0);
            },
        }
    }
}
