//! Nodes by free quanta, so that the smallest hole that fits is found without looking at others.
//! Kept from round to round, and brought to where the books are before each walk.

use std::collections::{BTreeMap, VecDeque};

use crate::books::Books;

#[derive(Default)]
pub(crate) struct FreeNodes {
    pools: Vec<BTreeMap<u64, Row>>,
    /// By node: the pool and the quanta it is filed under.
    filed: Vec<Option<(usize, u64)>>,
    /// What of this round is filed.
    seen: usize,
}

/// Nodes of one size of hole, ascending. They mostly come and go at its ends.
type Row = VecDeque<usize>;

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
        if nodes.front() == Some(&machine) {
            nodes.pop_front();
        } else if let Ok(place) = nodes.binary_search(&machine) {
            nodes.remove(place);
        }
        if nodes.is_empty() {
            self.pools[pool].remove(&free);
        }
    }

    fn remember(&mut self, pool: usize, free: u64, machine: usize) {
        let nodes = self.pools[pool].entry(free).or_default();
        if nodes.back().is_none_or(|last| *last < machine) {
            nodes.push_back(machine);
        } else if let Err(place) = nodes.binary_search(&machine) {
            nodes.insert(place, machine);
        }
    }

    /// Nodes of a pool the request may use, smallest hole first, then by name.
    pub fn search(&self, books: &Books, pool: usize, request: usize) -> Search {
        let work = &books.requests[request];
        if !work.listed {
            return Search::All {
                pool,
                free: work.order,
                after: None,
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
        after: Option<usize>,
    },
    Listed(std::vec::IntoIter<(u64, usize)>),
}

impl Search {
    pub fn next(&mut self, nodes: &FreeNodes) -> Option<usize> {
        match self {
            Self::Listed(listed) => listed.next().map(|(_, machine)| machine),
            Self::All { pool, free, after } => loop {
                let (size, nodes) = nodes.pools[*pool].range(*free..).next()?;
                if *size > *free {
                    (*free, *after) = (*size, None);
                }
                let from = after.map_or(0, |after| nodes.partition_point(|at| *at <= after));
                if let Some(machine) = nodes.get(from) {
                    *after = Some(*machine);
                    return Some(*machine);
                }
                (*free, *after) = (*size + 1, None);
            },
        }
    }
}
