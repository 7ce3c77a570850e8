//! Capacity, use and idle space of each pool.
//!
//! The amounts of each node are retained, so a round reads only changed nodes. If the unmet demand
//! of work changed (see `idle_space_reasons.rs`), the reason for idle space is computed again for
//! every node with free space.

use super::idle_space_reasons::{IdleReason, UnmetDemand, UnmetDemandCounts, reserved_quanta};
use crate::{
    collections::bit_set::BitSet,
    ids::{NodeIx, PoolIx, TypedVec, WorkIx},
    input::snapshot::Node,
    output::plan::{Idle, PoolShare, Shares},
    state::RoundState,
};

#[derive(Default)]
pub(crate) struct Pools {
    /// Shares by pool.
    sums: TypedVec<PoolIx, PoolShare>,
    /// Quanta held on nodes that belong to no pool.
    without_pool: u64,
    /// Amounts of each node.
    by_node: TypedVec<NodeIx, NodeAmounts>,
    /// Nodes with free space.
    free_nodes: BitSet<NodeIx>,
    demand_counts: UnmetDemandCounts,
    /// Demand that the reasons in `by_node` were computed from.
    unmet_demand: UnmetDemand,
}

/// Amounts that one node adds to the sums of its pool, in quanta.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct NodeAmounts {
    pool: Option<PoolIx>,
    closed_reason: Option<ClosedReason>,
    quanta: u64,
    held: u64,
    fixed: u64,
    free: u64,
    /// Part of `free` that is reserved for waiting work.
    reserved: u64,
    /// Reason why the rest of `free` is idle.
    idle_reason: IdleReason,
}

/// First obstacle that keeps a node from taking work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClosedReason {
    Lost,
    Offline,
    Blocked,
    /// The agent of the node takes no work.
    Declined,
    /// Allocations of work without a class close the node.
    Withheld,
}

fn closed_reason(node: &Node) -> ClosedReason {
    match node {
        node if node.lost => ClosedReason::Lost,
        node if node.offline => ClosedReason::Offline,
        node if node.block.is_some() => ClosedReason::Blocked,
        node if !node.takes_work => ClosedReason::Declined,
        _ => ClosedReason::Withheld,
    }
}

impl Pools {
    /// Counts the unmet demand of this work again. `work` must include all work whose demand may
    /// have changed.
    pub fn count_demand(&mut self, state: &RoundState, work: impl Iterator<Item = WorkIx> + Clone) {
        if state.index.rebuilt {
            *self = Self::default();
        }
        self.demand_counts.recount(state, work);
        #[cfg(test)]
        self.demand_counts.assert_recounted(state);
    }

    /// Updates the sums from changed nodes, and writes them to `shares`.
    pub fn update_shares(&mut self, state: &RoundState, shares: &mut Shares) {
        let unmet_demand = UnmetDemand::new(state, &self.demand_counts);
        let are_reasons_same = unmet_demand.gives_same_reasons(&self.unmet_demand);
        self.unmet_demand = unmet_demand;
        self.by_node
            .resize(state.nodes.len(), NodeAmounts::default());
        self.sums
            .resize_with(state.forest.len(), PoolShare::default);
        let changed = if state.index.rebuilt {
            state.nodes.indices().collect()
        } else {
            self.dirty_nodes(state)
        };
        for node in changed {
            self.update_node(state, node);
        }
        if !are_reasons_same {
            let unchanged = self
                .free_nodes
                .iter()
                .filter(|node| !state.nodes.is_dirty(*node));
            for node in unchanged {
                let reason = self.unmet_demand.idle_reason(state, node);
                let amounts = &mut self.by_node[node];
                if let Some(pool) = amounts.pool.filter(|_| reason != amounts.idle_reason) {
                    let sums = &mut self.sums[pool];
                    let (unreserved, idle) = (amounts.free - amounts.reserved, &mut sums.idle);
                    *sum_for_reason(idle, amounts.idle_reason) -= unreserved;
                    *sum_for_reason(idle, reason) += unreserved;
                }
                amounts.idle_reason = reason;
            }
        }
        #[cfg(test)]
        for node in state.nodes.indices() {
            let expected = node_amounts(state, node, &self.unmet_demand);
            assert!(self.by_node[node] == expected, "amounts of node {node:?}");
            assert_eq!(
                (expected.held, expected.fixed),
                held_and_fixed(state, node),
                "at {node:?}"
            );
        }
        let mut pools = self.sums.clone();
        for (index, pool) in state.forest.pools().zip(pools.iter_mut()) {
            let root = state.forest.root(index);
            state.forest.name(root).clone_into(&mut pool.tree);
        }
        let unplaced = state.index.unplaced.iter();
        let unplaced = unplaced.map(|allocation| state.allocations[*allocation].quanta);
        shares.outside_pools = self.without_pool + unplaced.sum::<u64>();
        shares.capacity = pools.iter().map(|pool| pool.usable).sum();
        shares.free = pools.iter().map(|pool| pool.free).sum();
        let names = state
            .forest
            .pools()
            .map(|pool| state.forest.name(pool).to_owned());
        shares.pools = names.zip(pools.iter().cloned()).collect();
    }

    /// Returns the nodes that changed. Also reads their rows, so that they are in the CPU cache
    /// afterwards.
    fn dirty_nodes(&self, state: &RoundState) -> Vec<NodeIx> {
        let all: Vec<NodeIx> = state.nodes.dirty().collect();
        let checksum = all.iter().fold(0, |checksum, node| {
            let node_state = &state.nodes[*node];
            checksum ^ node_state.quanta ^ node_state.free.quanta ^ self.by_node[*node].quanta
        });
        std::hint::black_box(checksum);
        all
    }

    fn update_node(&mut self, state: &RoundState, node: NodeIx) {
        let amounts = node_amounts(state, node, &self.unmet_demand);
        let before = self.by_node[node];
        if before != amounts {
            self.by_node[node] = amounts;
            self.free_nodes.set(node, amounts.free > 0);
            self.add_amounts(&before, |sum, amount| *sum -= amount);
            self.add_amounts(&amounts, |sum, amount| *sum += amount);
        }
    }

    /// Applies `add` to each sum that contains an amount of the node.
    fn add_amounts(&mut self, amounts: &NodeAmounts, add: impl Fn(&mut u64, u64)) {
        let Some(pool) = amounts.pool else {
            add(&mut self.without_pool, amounts.held);
            return;
        };
        let sums = &mut self.sums[pool];
        add(&mut sums.total, amounts.quanta);
        let Some(closed_reason) = amounts.closed_reason else {
            add(&mut sums.usable, amounts.quanta);
            add(&mut sums.held, amounts.held);
            add(&mut sums.fixed, amounts.fixed);
            add(&mut sums.over, amounts.held.saturating_sub(amounts.quanta));
            add(&mut sums.free, amounts.free);
            add(&mut sums.idle.reserved, amounts.reserved);
            let unreserved = sum_for_reason(&mut sums.idle, amounts.idle_reason);
            add(unreserved, amounts.free - amounts.reserved);
            return;
        };
        let quanta = match closed_reason {
            ClosedReason::Lost => &mut sums.lost,
            ClosedReason::Offline => &mut sums.offline,
            ClosedReason::Blocked => &mut sums.blocked,
            ClosedReason::Declined => &mut sums.declined,
            ClosedReason::Withheld => &mut sums.withheld,
        };
        add(quanta, amounts.quanta);
        add(&mut sums.held_closed, amounts.held);
    }
}

/// Returns the sum of the idle space that has this reason.
fn sum_for_reason(idle: &mut Idle, reason: IdleReason) -> &mut u64 {
    match reason {
        IdleReason::Forbidden => &mut idle.forbidden,
        IdleReason::Split => &mut idle.split,
        IdleReason::Capped => &mut idle.capped,
        IdleReason::NoDemand => &mut idle.no_demand,
    }
}

fn node_amounts(state: &RoundState, node: NodeIx, unmet_demand: &UnmetDemand) -> NodeAmounts {
    let node_state = &state.nodes[node];
    let open = node_state.is_schedulable();
    let free = if open { node_state.free.quanta } else { 0 };
    let (reserved, idle_reason) = if free > 0 {
        (
            reserved_quanta(state, node).min(free),
            unmet_demand.idle_reason(state, node),
        )
    } else {
        (0, IdleReason::NoDemand)
    };
    let (held, fixed) = if node_state.is_simple_sum {
        // The node has no fixed allocation and is not overfull, so no allocation is read.
        (node_state.quanta - node_state.free.quanta, 0)
    } else {
        held_and_fixed(state, node)
    };
    NodeAmounts {
        pool: node_state.pool,
        closed_reason: (!open).then(|| closed_reason(&state.node_record(node).node)),
        quanta: node_state.quanta,
        held,
        fixed,
        free,
        reserved,
        idle_reason,
    }
}

/// Returns the held quanta, and the part of them that is never preempted.
fn held_and_fixed(state: &RoundState, node: NodeIx) -> (u64, u64) {
    let node_state = &state.nodes[node];
    let granted = node_state
        .granted
        .iter()
        .map(|index| state.granted[*index].quanta);
    let held = state.node_record(node).held_quanta + granted.sum::<u64>();
    (
        held,
        node_state.quanta - state.space_without_fixed(node).quanta,
    )
}
