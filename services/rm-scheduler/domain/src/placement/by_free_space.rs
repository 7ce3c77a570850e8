//! Nodes by free quanta, so that the smallest hole that fits is found without looking at others.

use super::Rooms;
use crate::{collections::buckets::Shelf, state::Books};

/// By pool: nodes where anything is free, by how much.
#[derive(Default)]
pub(crate) struct FreeNodes(pub(super) Vec<Shelf>);

impl FreeNodes {
    /// Nodes of a pool with at least so many quanta.
    pub fn with(&self, pool: usize, least: u64) -> impl Iterator<Item = usize> {
        let rows = self.0[pool].from(least);
        rows.flat_map(|(_, nodes)| nodes.iter())
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
    /// Nodes of a pool the request may use, smallest hole first, then by name.
    pub fn of(books: &Books, rooms: &Rooms, pool: usize, request: usize) -> Self {
        let work = &books.requests[request];
        if !work.listed {
            return Self::All {
                pool,
                free: work.order,
                from: 0,
            };
        }
        let named = books.demand(request).wishes().machines.iter();
        let mut listed: Vec<(u64, usize)> = named
            .filter_map(|name| books.register.machine(name))
            .filter_map(|at| Some((rooms.free_in(pool, at)?, at)))
            .collect();
        listed.sort_unstable();
        Self::Listed(listed.into_iter())
    }

    pub fn next(&mut self, rooms: &Rooms) -> Option<usize> {
        match self {
            Self::Listed(listed) => listed.next().map(|(_, machine)| machine),
            Self::All { pool, free, from } => loop {
                let (size, nodes) = rooms.free.0[*pool].at_least(*free)?;
                if size > *free {
                    (*free, *from) = (size, 0);
                }
                if let Some(machine) = nodes.at_least(*from) {
                    *from = machine + 1;
                    return Some(machine);
                }
                (*free, *from) = (size + 1, 0);
            },
        }
    }
}
