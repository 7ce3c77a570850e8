//! Nodes by free space and by future space. The index is retained between rounds. Before it is
//! read, it is updated from the rows that were written since the last update.

mod free_nodes;
mod future_holes;

use super::{NodeState, RoundState};
use crate::{
    collections::{bit_set::BitSet, quanta_buckets::QuantaBuckets},
    ids::{NodeIx, PoolIx, TypedVec},
};

pub(crate) use free_nodes::FreeNodes;
pub(crate) use future_holes::FutureHoles;

#[derive(Default)]
pub(crate) struct NodeIndex {
    pub free: FreeNodes,
    pub future_holes: FutureHoles,
    /// Keys of the free space, by node.
    free_keys: TypedVec<NodeIx, FreeKey>,
    future_keys: TypedVec<NodeIx, FutureKey>,
    /// Nodes whose future space may have changed. They are updated late: most rounds grant exactly
    /// the space that became free, so future space stays the same.
    stale: BitSet<NodeIx>,
    /// Position in the journal of written node rows up to which the index is current.
    read_position: usize,
}

/// Pool and free quanta of a schedulable node, or the default value if nothing is free.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct FreeKey {
    pool: Option<PoolIx>,
    quanta: u64,
}

/// Pool and future quanta of a schedulable node, and whether the node will be entirely free.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct FutureKey {
    /// Pool, and true if the node will be entirely free. `None` if the node is not schedulable.
    bucket: Option<(PoolIx, bool)>,
    quanta: u64,
}

/// Returns the pool of a schedulable node.
fn schedulable_pool(node: &NodeState) -> Option<PoolIx> {
    node.pool.filter(|_| node.is_schedulable())
}

impl FreeKey {
    fn new(node: &NodeState) -> Self {
        let quanta = node.free.quanta;
        match schedulable_pool(node).filter(|_| quanta > 0) {
            Some(pool) => Self {
                pool: Some(pool),
                quanta,
            },
            None => Self::default(),
        }
    }
}

impl FutureKey {
    fn new(state: &RoundState, node: NodeIx) -> Self {
        let node_state = &state.nodes[node];
        let Some(pool) = schedulable_pool(node_state) else {
            return Self::default();
        };
        let quanta = state.future_quanta(node);
        Self {
            bucket: Some((pool, quanta == node_state.quanta)),
            quanta,
        }
    }

    fn bucket(&self) -> Option<(PoolIx, usize)> {
        self.bucket
            .map(|(pool, is_entirely_free)| (pool, usize::from(is_entirely_free)))
    }
}

impl NodeIndex {
    /// Updates free space at the start of a round.
    pub fn refresh(&mut self, state: &RoundState) {
        let is_new = self.free_keys.is_empty();
        self.free_keys.resize(state.nodes.len(), FreeKey::default());
        self.future_keys
            .resize(state.nodes.len(), FutureKey::default());
        if is_new {
            let pools = state.forest.len();
            self.free.0.resize_with(pools, QuantaBuckets::default);
            self.future_holes.0.resize_with(pools, Default::default);
            state
                .nodes
                .indices()
                .for_each(|node| self.update_free_key(state, node));
        } else {
            state
                .nodes
                .dirty()
                .for_each(|node| self.update_free_key(state, node));
        }
        self.read_position = state.nodes.journal_position();
    }

    /// Updates free space from the rows that were written in this round.
    pub fn update(&mut self, state: &RoundState) {
        for node in state.nodes.written_since(self.read_position) {
            self.update_free_key(state, node);
        }
        self.read_position = state.nodes.journal_position();
    }

    /// Updates one node, which must be the only one written since the last update.
    pub fn update_one(&mut self, state: &RoundState, node: NodeIx) {
        debug_assert!(
            state
                .nodes
                .written_since(self.read_position)
                .all(|other| other == node)
        );
        self.update_free_key(state, node);
        self.read_position = state.nodes.journal_position();
    }

    /// Updates free and future space.
    pub fn update_future_holes(&mut self, state: &RoundState) {
        self.update(state);
        let mut stale = std::mem::take(&mut self.stale);
        stale
            .iter()
            .for_each(|node| self.update_future_key(state, node));
        stale.clear();
        self.stale = stale;
    }

    /// Moves a node to the bucket of its current free space.
    fn update_free_key(&mut self, state: &RoundState, node: NodeIx) {
        self.stale.insert(node);
        let now = FreeKey::new(&state.nodes[node]);
        let before = std::mem::replace(&mut self.free_keys[node], now);
        if before == now {
            return;
        }
        if let Some(pool) = before.pool {
            self.free.0[pool].remove(before.quanta, node);
        }
        if let Some(pool) = now.pool {
            self.free.0[pool].insert(now.quanta, node);
        }
    }

    /// Moves a node to the bucket of its current future space.
    fn update_future_key(&mut self, state: &RoundState, node: NodeIx) {
        let now = FutureKey::new(state, node);
        let before = std::mem::replace(&mut self.future_keys[node], now);
        if before == now {
            return;
        }
        let by_pool = &mut self.future_holes.0;
        if let Some((pool, position)) = before.bucket() {
            by_pool[pool][position].remove(before.quanta, node);
        }
        if let Some((pool, position)) = now.bucket() {
            by_pool[pool][position].insert(now.quanta, node);
        }
    }

    /// Returns the free quanta of a node, if it belongs to the pool and has any.
    pub fn free_quanta_in(&self, pool: PoolIx, node: NodeIx) -> Option<u64> {
        let key = &self.free_keys[node];
        (key.pool == Some(pool)).then_some(key.quanta)
    }

    /// Returns the pool and the future quanta of a schedulable node.
    pub fn future_key(&self, node: NodeIx) -> Option<(PoolIx, u64)> {
        let key = &self.future_keys[node];
        let (pool, _) = key.bucket()?;
        Some((pool, key.quanta))
    }

    /// Asserts that the index equals one built from scratch.
    #[cfg(test)]
    pub fn assert_matches_rebuild(&self, state: &RoundState) {
        let mut rebuilt = Self::default();
        rebuilt
            .free
            .0
            .resize_with(self.free.0.len(), QuantaBuckets::default);
        let pools = self.future_holes.0.len();
        rebuilt.future_holes.0.resize_with(pools, Default::default);
        let nodes = state.nodes.len();
        rebuilt.free_keys.resize(nodes, FreeKey::default());
        rebuilt.future_keys.resize(nodes, FutureKey::default());
        state
            .nodes
            .indices()
            .for_each(|node| rebuilt.update_free_key(state, node));
        state
            .nodes
            .indices()
            .for_each(|node| rebuilt.update_future_key(state, node));
        assert_eq!(
            (&self.free_keys, &self.future_keys),
            (&rebuilt.free_keys, &rebuilt.future_keys)
        );
        let contents = |buckets: &QuantaBuckets<_>| {
            let rows = buckets.iter_from(0);
            let rows = rows.map(|(quanta, nodes)| (quanta, nodes.iter().collect::<Vec<_>>()));
            rows.collect::<Vec<_>>()
        };
        let free = |node_index: &Self| node_index.free.0.iter().map(contents).collect::<Vec<_>>();
        assert_eq!(free(self), free(&rebuilt), "nodes by free space");
        let future_keys = |node_index: &Self| {
            let by_pool = node_index.future_holes.0.iter().flatten();
            by_pool.map(contents).collect::<Vec<_>>()
        };
        assert_eq!(
            future_keys(self),
            future_keys(&rebuilt),
            "nodes by future space"
        );
    }
}

impl RoundState<'_> {
    /// Updates future space from the decisions of this round.
    pub fn update_future_holes(&mut self) {
        let mut node_index = std::mem::take(&mut self.derived.node_index);
        node_index.update_future_holes(self);
        #[cfg(test)]
        node_index.assert_matches_rebuild(self);
        self.derived.node_index = node_index;
    }
}
