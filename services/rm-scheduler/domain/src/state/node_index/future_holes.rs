//! Nodes by future space: the quanta that are free when everything that leaves has left.

use crate::{
    collections::quanta_buckets::QuantaBuckets,
    ids::{NodeIx, PoolIx, TypedVec},
    state::RoundState,
};

/// Nodes of each pool by future quanta. Partly free nodes are first, entirely free ones second.
#[derive(Default)]
pub(crate) struct FutureHoles(pub(crate) TypedVec<PoolIx, [QuantaBuckets<NodeIx>; 2]>);

impl FutureHoles {
    /// Returns groups of equal nodes: the pool, the future quanta, whether the nodes will be
    /// entirely free, and the number of nodes.
    pub fn groups(&self) -> impl Iterator<Item = ((PoolIx, u64, bool), u64)> {
        self.0.enumerate().flat_map(|(pool, pool_buckets)| {
            let pool_buckets = pool_buckets.iter().zip([false, true]);
            pool_buckets.flat_map(move |(buckets, is_entirely_free)| {
                let rows = buckets.iter_from(0);
                rows.map(move |(hole, nodes)| ((pool, hole, is_entirely_free), nodes.len() as u64))
            })
        })
    }

    /// Returns the open nodes of a pool with at least `least` future quanta, and at least one.
    pub fn nodes_with(&self, pool: PoolIx, least: u64) -> impl Iterator<Item = NodeIx> {
        let pool_buckets = self.0[pool].iter();
        pool_buckets.flat_map(move |buckets| {
            buckets
                .iter_from(least.max(1))
                .flat_map(|(_, nodes)| nodes.iter())
        })
    }

    /// Returns the largest future quanta of any node of a pool.
    pub fn max_future_quanta(&self, pool: PoolIx) -> u64 {
        let largest_hole =
            |buckets: &QuantaBuckets<_>| buckets.iter_descending().next().map(|(hole, _)| hole);
        self.0[pool]
            .iter()
            .filter_map(largest_hole)
            .max()
            .unwrap_or(0)
    }

    /// Finds the schedulable node of these pools whose future space is closest to `quanta`. Returns
    /// the node and the missing quanta. Only nodes of at least `quanta` count, and the lowest index
    /// wins ties.
    pub fn nearest(
        &self,
        state: &RoundState,
        pools: &[PoolIx],
        quanta: u64,
    ) -> Option<(NodeIx, u64)> {
        let all_buckets = || pools.iter().flat_map(|pool| &self.0[*pool]);
        let enough = all_buckets().flat_map(|buckets| buckets.iter_from(quanta.max(1)));
        if let Some(first) = enough.filter_map(|(_, nodes)| nodes.first()).min() {
            return Some((first, 0));
        }
        let is_large_enough = |node: &NodeIx| state.nodes[*node].quanta >= quanta;
        let nearest_in = |buckets: &QuantaBuckets<_>| {
            let mut rows = buckets.iter_descending();
            rows.find_map(|(hole, nodes)| {
                Some((quanta - hole, nodes.iter().find(is_large_enough)?))
            })
        };
        let (missing, node) = all_buckets().filter_map(nearest_in).min()?;
        Some((node, missing))
    }
}
