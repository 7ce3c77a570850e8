//! One placement pass. It remembers the shapes of work that found no node, so that other work of
//! these shapes is not tried again.

use rustc_hash::FxHashSet;

use super::gpu_packing::GpuPacking;
use crate::{
    collections::bit_set::BitSet,
    ids::{NodeIx, PoolIx, ShapeIx, WorkIx},
    state::{NodeIndex, RoundState, WorkState, whole_nodes::is_whole_node_reserved},
};

/// One pass over work that needs nodes.
pub(crate) struct PlacementPass<'a> {
    pub node_index: NodeIndex,
    /// True if the pass lends idle space. Then nodes with reservations are not used.
    pub lends: bool,
    /// Pairs of pool and shape without a fitting node. They stay valid, because free space only
    /// shrinks within a pass.
    pub exhausted: FxHashSet<(PoolIx, ShapeIx)>,
    /// Pairs of pool and shape that found only space reserved for other work. Work that has
    /// reservations of its own is still tried.
    pub reserved_for_others: FxHashSet<(PoolIx, ShapeIx)>,
    /// Shapes that are exhausted in every pool they may use.
    exhausted_shapes: BitSet<ShapeIx>,
    /// Node choice for pools with GPUs. `None` if there are no such pools.
    pub gpu_packing: Option<GpuPacking<'a>>,
}

impl<'a> PlacementPass<'a> {
    /// Opens a pass over the tree of this work.
    pub fn open(state: &mut RoundState<'a>, work: WorkIx, lends: bool) -> Self {
        let mut node_index = std::mem::take(&mut state.derived.node_index);
        node_index.update(state);
        let mut demand_by_shape = std::mem::take(&mut state.derived.demand_by_shape);
        demand_by_shape.apply_exclusions(state);
        state.derived.demand_by_shape = demand_by_shape;
        Self {
            node_index,
            lends,
            exhausted: FxHashSet::default(),
            reserved_for_others: FxHashSet::default(),
            exhausted_shapes: BitSet::default(),
            gpu_packing: GpuPacking::open(state, state.tree_of(work), |node| {
                is_usable(state, lends, node)
            }),
        }
    }

    pub fn close(self, state: &mut RoundState) {
        state.derived.node_index = self.node_index;
    }

    /// Returns true if this pass found no node for the shape of this work.
    pub fn is_exhausted(&self, work: &WorkState) -> bool {
        self.exhausted_shapes.contains(work.shape) && !work.has_node_list
    }

    /// Returns true if the nodes of a pool are chosen by GPU packing.
    pub fn packs_gpus_in(&self, pool: PoolIx) -> bool {
        let packing = self.gpu_packing.as_ref();
        packing.is_some_and(|packing| packing.covers(pool))
    }

    /// Marks the shape of this work as exhausted if its home pool and all pools below it are
    /// exhausted. A shape is specific to one home pool.
    pub fn mark_exhausted(&mut self, state: &RoundState, work: WorkIx, home: PoolIx) {
        let shape = state.work[work].shape;
        let pool_is_exhausted = |pool: &PoolIx| self.exhausted.contains(&(*pool, shape));
        if state.forest.subtree(home).iter().all(pool_is_exhausted) {
            self.exhausted_shapes.insert(shape);
        }
    }

    /// Updates the indexes after a grant on this node.
    pub fn update_node(&mut self, state: &RoundState, node: NodeIx) {
        self.node_index.update_one(state, node);
        if let Some(packing) = &mut self.gpu_packing {
            packing.record_change(node);
        }
    }
}

/// Returns true if a pass may use the node. Lending uses no node with reservations. Nodes reserved
/// as a whole are not used for lending, nor with the setting `clear_promised`.
pub(crate) fn is_usable(state: &RoundState, lends: bool, node: NodeIx) -> bool {
    let spares_whole_nodes = lends || state.settings.clear_promised;
    !(spares_whole_nodes && is_whole_node_reserved(state, node)
        || lends && !state.nodes[node].reservations.is_empty())
}
