//! Nodes sorted by free quanta, so that best fit needs no scan.

use crate::{
    collections::{bit_set::BitSet, quanta_buckets::QuantaBuckets},
    ids::{NodeIx, PoolIx, TypedVec},
};

/// Nodes with free quanta by pool, in buckets of equal free quanta.
#[derive(Default)]
pub(crate) struct FreeNodes(pub(super) TypedVec<PoolIx, QuantaBuckets<NodeIx>>);

impl FreeNodes {
    /// Returns the first bucket of a pool with at least `least` free quanta, as its quanta and its
    /// nodes.
    pub fn at_least(&self, pool: PoolIx, least: u64) -> Option<(u64, &BitSet<NodeIx>)> {
        self.0[pool].at_least(least)
    }
}
