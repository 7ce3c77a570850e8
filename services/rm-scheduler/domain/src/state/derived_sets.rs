//! Sets, queues and indexes derived from the rows of nodes and work. They are retained between
//! rounds, and each is updated from the dirty rows.

use super::{
    NodeIndex, RoundState, demand_by_shape::DemandByShape, idle_trees::WaitReasons,
    large_holders::LargeHolders, serve_order::ServeOrder,
};

#[derive(Default)]
pub(crate) struct DerivedSets {
    pub serve_order: ServeOrder,
    pub large_holders: LargeHolders,
    pub node_index: NodeIndex,
    pub wait_reasons: WaitReasons,
    pub demand_by_shape: DemandByShape,
}

impl RoundState<'_> {
    /// Updates three of the structures at the start of a round. The steps that use the others
    /// update them.
    pub fn refresh_derived(&mut self) {
        let mut sets = std::mem::take(&mut self.derived);
        sets.large_holders.refresh(self);
        sets.demand_by_shape.refresh(self);
        sets.node_index.refresh(self);
        self.derived = sets;
    }
}
