//! Structures derived from the rows. Each one is updated from the dirty rows.

use super::{
    NodeIndex, RoundState, gpu_demand::GpuDemand, idle_trees::WaitReasons,
    large_holders::LargeHolders, serve_order::ServeOrder,
};

#[derive(Default)]
pub(crate) struct DerivedSets {
    pub serve_order: ServeOrder,
    pub large_holders: LargeHolders,
    pub node_index: NodeIndex,
    pub wait_reasons: WaitReasons,
    pub gpu_demand: GpuDemand,
}

impl RoundState<'_> {
    /// Updates the structures that no later step updates, at the start of a round.
    pub fn refresh_derived(&mut self) {
        let mut sets = std::mem::take(&mut self.derived);
        sets.large_holders.refresh(self);
        sets.gpu_demand.refresh(self);
        sets.node_index.refresh(self);
        self.derived = sets;
    }
}
