//! One walk over work that is to be placed, and what it found in vain.

use rustc_hash::FxHashSet;

use super::{NodeIndex, gpu_packing::GpuPacking};
use crate::{
    collections::dense_set::DenseSet,
    entitlement::whole_nodes::is_whole_node_taken,
    state::{RoundState, WorkState},
};

/// One walk over work that is to be placed.
pub(crate) struct PlacementPass<'a> {
    pub node_index: NodeIndex,
    /// Idle room is lent, and nothing is placed on nodes whose room is spoken for.
    pub lends: bool,
    /// By pool and shape: what did not fit once does not fit later, as room only shrinks here.
    pub exhausted: FxHashSet<(usize, usize)>,
    /// The same, of room that is meant for others: who is meant himself may still find some.
    pub reserved_for_others: FxHashSet<(usize, usize)>,
    /// Shapes for which all pools they may use are exhausted.
    exhausted_shapes: DenseSet,
    /// Decides in its place in pools where gpus are in play.
    pub gpu_packing: Option<GpuPacking<'a>>,
}

impl<'a> PlacementPass<'a> {
    /// For this work and other work of its tree.
    pub fn open(state: &mut RoundState<'a>, at: usize, lends: bool) -> Self {
        let mut node_index = std::mem::take(&mut state.derived.node_index);
        node_index.update(state);
        let mut asking = std::mem::take(&mut state.derived.gpu_demand);
        asking.follow(state);
        state.derived.gpu_demand = asking;
        Self {
            node_index,
            lends,
            exhausted: FxHashSet::default(),
            reserved_for_others: FxHashSet::default(),
            exhausted_shapes: DenseSet::default(),
            gpu_packing: GpuPacking::open(state, state.tree_of(at), |node| {
                is_usable(state, lends, node)
            }),
        }
    }

    pub fn close(self, state: &mut RoundState) {
        state.derived.node_index = self.node_index;
    }

    /// Nowhere was room for work of this shape.
    pub fn is_exhausted(&self, work: &WorkState) -> bool {
        self.exhausted_shapes.contains(work.shape) && !work.has_node_list
    }

    /// To be asked after one of a shape, which says its home, found less than it lacks.
    pub fn note_exhausted(&mut self, state: &RoundState, at: usize, home: usize) {
        let shape = state.work[at].shape;
        let is_full = |pool: &usize| self.exhausted.contains(&(*pool, shape));
        if state.forest.subtree(home).iter().all(is_full) {
            self.exhausted_shapes.insert(shape);
        }
    }

    /// The room of this node alone is another than before.
    pub fn node_changed(&mut self, state: &RoundState, node: usize) {
        self.node_index.update_one(state, node);
        if let Some(packing) = &mut self.gpu_packing {
            packing.changed(node);
        }
    }
}

pub(crate) fn is_usable(state: &RoundState, lends: bool, at: usize) -> bool {
    let kept = lends || state.settings.clear_promised;
    !(kept && is_whole_node_taken(state, at) || lends && !state.nodes[at].reservations.is_empty())
}
