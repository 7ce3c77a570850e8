//! Nodes by future space: the quanta that are free when everything that leaves has left.

use crate::{
    collections::buckets::Buckets,
    ids::{NodeIx, PoolIx, TypedVec},
    state::RoundState,
};

/// Nodes of each pool by future quanta. Partly free nodes are first, entirely free ones second.
#[derive(Default)]
pub(crate) struct FutureHoles(pub(crate) TypedVec<PoolIx, [Buckets<NodeIx>; 2]>);

impl FutureHoles {
    /// Returns groups of equal nodes: pool, future quanta, whether the nodes will be empty, and the
    /// number of nodes.
    pub fn alike(&self) -> impl Iterator<Item = ((PoolIx, u64, bool), u64)> {
        self.0.enumerate().flat_map(|(pool, by_pool)| {
            let by_pool = by_pool.iter().zip([false, true]);
            by_pool.flat_map(move |(buckets, is_whole)| {
                let rows = buckets.iter_from(0);
                rows.map(move |(hole, nodes)| ((pool, hole, is_whole), nodes.len() as u64))
            })
        })
    }

    /// Returns the open nodes of a pool with at least `least` future quanta, and at least one.
    pub fn with(&self, pool: PoolIx, least: u64) -> impl Iterator<Item = NodeIx> {
        let by_pool = self.0[pool].iter();
        by_pool.flat_map(move |buckets| {
            buckets
                .iter_from(least.max(1))
                .flat_map(|(_, nodes)| nodes.iter())
        })
    }

    /// Returns the most future quanta of any node of a pool.
    pub fn most(&self, pool: PoolIx) -> u64 {
        let last = |buckets: &Buckets<_>| buckets.iter_descending().next().map(|(hole, _)| hole);
        self.0[pool].iter().filter_map(last).max().unwrap_or(0)
    }

    /// Finds the schedulable node of these pools whose future space misses least of `quanta`.
    /// Returns it with the missing amount. Only nodes of at least `quanta` count, and the lowest
    /// index wins ties.
    pub fn nearest(
        &self,
        state: &RoundState,
        pools: &[PoolIx],
        quanta: u64,
    ) -> Option<(NodeIx, u64)> {
        let by_pool = || pools.iter().flat_map(|pool| &self.0[*pool]);
        let enough = by_pool().flat_map(|buckets| buckets.iter_from(quanta.max(1)));
        if let Some(first) = enough.filter_map(|(_, nodes)| nodes.first()).min() {
            return Some((first, 0));
        }
        let large = |node: &NodeIx| state.nodes[*node].quanta >= quanta;
        let of_buckets = |buckets: &Buckets<_>| {
            let mut rows = buckets.iter_descending();
            rows.find_map(|(hole, nodes)| Some((quanta - hole, nodes.iter().find(large)?)))
        };
        let (lacking, node) = by_pool().filter_map(of_buckets).min()?;
        Some((node, lacking))
    }
}
