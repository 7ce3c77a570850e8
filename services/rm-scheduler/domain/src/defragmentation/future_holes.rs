//! How much will be free on nodes once everything that leaves has left: nodes that come to the same
//! are counted together, and those where anything will be are found by how much.

use crate::{collections::buckets::Shelf, state::Books};

/// By pool: nodes by how much will be free, those where that is not all apart from the others.
#[derive(Default)]
pub(crate) struct Prospects(pub(crate) Vec<[Shelf; 2]>);

impl Prospects {
    /// The pool, the quanta that will be free, whether those are all, and how many nodes of the
    /// pool come to that.
    pub fn alike(&self) -> impl Iterator<Item = ((usize, u64, bool), u64)> {
        self.0.iter().enumerate().flat_map(|(pool, shelves)| {
            let shelves = shelves.iter().zip([false, true]);
            shelves.flat_map(move |(shelf, is_whole)| {
                let rows = shelf.from(0);
                rows.map(move |(hole, nodes)| ((pool, hole, is_whole), nodes.len() as u64))
            })
        })
    }

    /// Open nodes of a pool where at least so many quanta will be free, and at least one.
    pub fn with(&self, pool: usize, least: u64) -> impl Iterator<Item = usize> {
        let shelves = self.0[pool].iter();
        shelves.flat_map(move |shelf| shelf.from(least.max(1)).flat_map(|(_, nodes)| nodes.iter()))
    }

    /// The most quanta that will be free on one node of a pool.
    pub fn most(&self, pool: usize) -> u64 {
        let last = |shelf: &Shelf| shelf.descending().next().map(|(hole, _)| hole);
        self.0[pool].iter().filter_map(last).max().unwrap_or(0)
    }

    /// Of these pools the open node where the least is lacking to so many quanta, of nodes that
    /// have as many at all; ties end with its number. With what is lacking.
    pub fn nearest(&self, books: &Books, pools: &[usize], order: u64) -> Option<(usize, u64)> {
        let shelves = || pools.iter().flat_map(|pool| &self.0[*pool]);
        let enough = shelves().flat_map(|shelf| shelf.from(order.max(1)));
        if let Some(first) = enough.filter_map(|(_, nodes)| nodes.first()).min() {
            return Some((first, 0));
        }
        let large = |at: &usize| books.machines[*at].order >= order;
        let of_shelf = |shelf: &Shelf| {
            let mut rows = shelf.descending();
            rows.find_map(|(hole, nodes)| Some((order - hole, nodes.iter().find(large)?)))
        };
        let (lacking, at) = shelves().filter_map(of_shelf).min()?;
        Some((at, lacking))
    }
}
