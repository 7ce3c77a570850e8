//! Structures derived from the rows. Each one updates itself from the dirty rows.

use super::{
    NodeIndex, RoundState, gpu_demand::GpuDemand, idle_trees::WaitReasons,
    large_holders::LargeHolders, serve_order::ServeOrder,
};
use crate::incremental::join::join;

#[derive(Default)]
pub(crate) struct DerivedSets {
    pub serve_order: ServeOrder,
    pub large_holders: LargeHolders,
    pub node_index: NodeIndex,
    pub wait_reasons: WaitReasons,
    pub gpu_demand: GpuDemand,
}

impl RoundState<'_> {
    /// Updates the structures that no later step updates at the start of a round.
    pub fn refresh_derived(&mut self) {
        let mut sets = std::mem::take(&mut self.derived);
        let DerivedSets {
            large_holders,
            node_index,
            gpu_demand: asking,
            ..
        } = &mut sets;
        let of_work = || {
            large_holders.renew(self);
            asking.renew(self);
        };
        let of_nodes = || node_index.renew(self);
        let index = self.index;
        let delta = if index.rebuilt {
            index.work.len()
        } else {
            index.rederived.len() + index.changed_nodes.len()
        };
        join(delta, of_work, of_nodes);
        self.derived = sets;
    }
}
