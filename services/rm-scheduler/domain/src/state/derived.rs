//! Structures derived from the rows. Each one updates itself from the dirty rows.

use super::RoundState;
use crate::{
    defragmentation::LargeHolders,
    entitlement::{fair_share::UserCounts, reachable::ReachIndex},
    incremental::{idle_trees::WaitReasons, join::join},
    placement::{NodeIndex, gpu_packing::GpuDemand, serve_order::ServeOrder},
};

#[derive(Default)]
pub(crate) struct DerivedSets {
    pub reach_index: ReachIndex,
    pub user_counts: UserCounts,
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
