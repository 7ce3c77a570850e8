//! How much will be free on nodes once everything that leaves has left: nodes that come to the same
//! are counted together, and those where anything will be are found by how much. Kept from round to
//! round, as [`FreeNodes`](crate::what_of::FreeNodes) are.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::{bits::Bits, books::Books};

/// Its pool, the quanta that will be free, and whether that is all of it.
type Prospect = (usize, u64, bool);

#[derive(Default)]
pub(crate) struct Prospects {
    alike: FxHashMap<Prospect, u64>,
    /// By pool: nodes where something will be free, by how much.
    holes: Vec<BTreeMap<u64, Bits>>,
    /// By node.
    filed: Vec<Option<Prospect>>,
    /// What of this round is filed.
    seen: usize,
}

impl Prospects {
    pub fn renew(&mut self, books: &Books) {
        if books.register.anew {
            self.alike.clear();
            self.filed.clear();
            self.filed.resize(books.machines.len(), None);
            self.holes.clear();
            self.holes.resize_with(books.forest.len(), BTreeMap::new);
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

    /// In no order.
    pub fn alike(&self) -> impl Iterator<Item = (Prospect, u64)> {
        let alike = self.alike.iter();
        alike.map(|(prospect, nodes)| (*prospect, *nodes))
    }

    /// Open nodes of a pool where at least so many quanta will be free, and at least one, with how
    /// many; those with the least first.
    pub fn with(&self, pool: usize, least: u64) -> impl Iterator<Item = (u64, usize)> {
        let rows = self.holes[pool].range(least..);
        rows.flat_map(|(hole, nodes)| nodes.iter().map(|at| (*hole, at)))
    }

    /// The most quanta that will be free on one node of a pool.
    pub fn most(&self, pool: usize) -> u64 {
        let last = self.holes[pool].last_key_value();
        last.map_or(0, |(hole, _)| *hole)
    }

    /// Of these pools the open node where the least is lacking to so many quanta, of nodes that
    /// have as many at all; ties end with its number. With what is lacking.
    pub fn nearest(&self, books: &Books, pools: &[usize], order: u64) -> Option<(usize, u64)> {
        let enough = pools.iter().flat_map(|pool| {
            let rows = self.holes[*pool].range(order.max(1)..);
            rows.filter_map(|(_, nodes)| nodes.first())
        });
        if let Some(first) = enough.min() {
            return Some((first, 0));
        }
        let large = |at: usize| books.machines[at].order >= order;
        let of_pool = |pool: &usize| {
            let mut rows = self.holes[*pool].iter().rev();
            rows.find_map(|(hole, nodes)| {
                let at = nodes.iter().find(|at| large(*at))?;
                Some((order - hole, at))
            })
        };
        let partly = pools.iter().filter_map(of_pool).min();
        let (lacking, at) = partly.or_else(|| {
            let is_full = |filed: &Option<Prospect>| {
                filed.is_some_and(|(pool, hole, _)| hole == 0 && pools.contains(&pool))
            };
            let full = self.filed.iter().enumerate().filter(|(_, it)| is_full(it));
            let at = full.map(|(at, _)| at).find(|at| large(*at))?;
            Some((order, at))
        })?;
        Some((at, lacking))
    }

    fn file(&mut self, books: &Books, at: usize) {
        let now = prospect(books, at);
        let before = std::mem::replace(&mut self.filed[at], now);
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.forget(before, at);
        }
        if let Some(now) = now {
            *self.alike.entry(now).or_default() += 1;
            let (pool, hole, _) = now;
            if hole > 0 {
                self.holes[pool].entry(hole).or_default().insert(at);
            }
        }
    }

    fn forget(&mut self, before: Prospect, at: usize) {
        if let Some(nodes) = self.alike.get_mut(&before) {
            *nodes -= 1;
            if *nodes == 0 {
                self.alike.remove(&before);
            }
        }
        let (pool, hole, _) = before;
        if let Some(nodes) = self.holes[pool].get_mut(&hole) {
            nodes.remove(at);
            if nodes.is_empty() {
                self.holes[pool].remove(&hole);
            }
        }
    }

    /// What is kept is what counting all nodes anew gives.
    #[cfg(test)]
    pub fn assert_recounted(&self, books: &Books) {
        let mut alike = FxHashMap::<_, u64>::default();
        let mut holes = std::collections::BTreeSet::new();
        for (at, (pool, hole, whole)) in
            (0..books.machines.len()).filter_map(|at| Some((at, prospect(books, at)?)))
        {
            *alike.entry((pool, hole, whole)).or_default() += 1;
            holes.extend((hole > 0).then_some((pool, hole, at)));
        }
        assert_eq!(self.alike, alike, "nodes that come to the same");
        let known = (0..self.holes.len()).flat_map(|pool| {
            let with = self.with(pool, 0);
            with.map(move |(hole, at)| (pool, hole, at))
        });
        assert_eq!(
            known.collect::<std::collections::BTreeSet<_>>(),
            holes,
            "nodes by what will be free"
        );
    }
}

fn prospect(books: &Books, at: usize) -> Option<Prospect> {
    let machine = &books.machines[at];
    let pool = machine.pool.filter(|_| machine.is_schedulable())?;
    let hole = books.coming_order(at);
    Some((pool, hole, hole == machine.order))
}
