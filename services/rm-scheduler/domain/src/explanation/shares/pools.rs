//! Capacity, use and idle space of each pool.
//!
//! The contribution of each node is retained, so a round reads only changed nodes. When the
//! wishes of work changed, the reason for idle space is computed again for every node with free
//! space.

use super::idle::{IdleReason, UnmetDemand, Wishers, reserved_quanta};
use crate::{
    collections::dense_set::SparseSet,
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
    elsewhere: u64,
    /// Contributions by node.
    parts: TypedVec<NodeIx, Part>,
    /// Nodes with free space.
    free: SparseSet<NodeIx>,
    wishers: Wishers,
    /// Wishes that the reasons in `parts` were computed from.
    wishes: UnmetDemand,
}

/// Contribution of one node to its pool.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct Part {
    pool: Option<PoolIx>,
    shut: Option<Shut>,
    order: u64,
    held: u64,
    fixed: u64,
    free: u64,
    /// Reserved quanta within `free`.
    reservation: u64,
    /// Reason why the rest of `free` is idle.
    why: IdleReason,
}

/// First obstacle that keeps a node from taking work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shut {
    Lost,
    Offline,
    Blocked,
    Declined,
    Withheld,
}

fn shut(node: &Node) -> Shut {
    match node {
        node if node.lost => Shut::Lost,
        node if node.offline => Shut::Offline,
        node if node.block.is_some() => Shut::Blocked,
        node if !node.takes_work => Shut::Declined,
        _ => Shut::Withheld,
    }
}

impl Pools {
    /// Counts the wishes of this work. The work must include all whose wish may have changed.
    pub fn listen(&mut self, state: &RoundState, work: impl Iterator<Item = WorkIx> + Clone) {
        if state.index.rebuilt {
            *self = Self::default();
        }
        self.wishers.renew(state, work);
        #[cfg(test)]
        self.wishers.assert_recounted(state);
    }

    pub fn tell(&mut self, state: &RoundState, shares: &mut Shares) {
        let wishes = UnmetDemand::new(state, &self.wishers);
        let is_same = wishes.are_those(&self.wishes);
        self.wishes = wishes;
        self.parts.resize(state.nodes.len(), Part::default());
        self.sums
            .resize_with(state.forest.len(), PoolShare::default);
        let all = if state.index.rebuilt {
            state.nodes.indices().collect()
        } else {
            self.dirty_nodes(state)
        };
        for node in all {
            self.renew(state, node);
        }
        if !is_same {
            let free = self.free.iter();
            let rest = free.filter(|node| !state.nodes.is_dirty(*node));
            for node in rest {
                let (part, why) = (&mut self.parts[node], self.wishes.why(state, node));
                if let Some(pool) = part.pool.filter(|_| why != part.why) {
                    let sums = &mut self.sums[pool];
                    let (amount, idle) = (part.free - part.reservation, &mut sums.idle);
                    *for_why(idle, part.why) -= amount;
                    *for_why(idle, why) += amount;
                }
                part.why = why;
            }
        }
        #[cfg(test)]
        for node in state.nodes.indices() {
            let now = part(state, node, &self.wishes);
            assert!(self.parts[node] == now, "part of node {node:?} in its pool");
            assert_eq!(
                (now.held, now.fixed),
                held_and_fixed(state, node),
                "at {node:?}"
            );
        }
        let mut pools = self.sums.clone();
        for (index, pool) in state.forest.pools().zip(pools.iter_mut()) {
            let root = state.forest.root(index);
            state.forest.name(root).clone_into(&mut pool.tree);
        }
        let lost = state.index.unplaced.iter();
        let lost = lost.map(|allocation| state.allocations[*allocation].quanta);
        shares.elsewhere = self.elsewhere + lost.sum::<u64>();
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
        let read = all.iter().fold(0, |read, node| {
            let node_state = &state.nodes[*node];
            read ^ node_state.quanta ^ node_state.free.quanta ^ self.parts[*node].order
        });
        std::hint::black_box(read);
        all
    }

    fn renew(&mut self, state: &RoundState, node: NodeIx) {
        let part = part(state, node, &self.wishes);
        let before = self.parts[node];
        if before != part {
            self.parts[node] = part;
            self.free.set(node, part.free > 0);
            self.count(&before, |sum, amount| *sum -= amount);
            self.count(&part, |sum, amount| *sum += amount);
        }
    }

    fn count(&mut self, part: &Part, add: impl Fn(&mut u64, u64)) {
        let Some(pool) = part.pool else {
            add(&mut self.elsewhere, part.held);
            return;
        };
        let sums = &mut self.sums[pool];
        add(&mut sums.total, part.order);
        let Some(shut) = part.shut else {
            add(&mut sums.usable, part.order);
            add(&mut sums.held, part.held);
            add(&mut sums.fixed, part.fixed);
            add(&mut sums.over, part.held.saturating_sub(part.order));
            add(&mut sums.free, part.free);
            add(&mut sums.idle.meant, part.reservation);
            let rest = for_why(&mut sums.idle, part.why);
            add(rest, part.free - part.reservation);
            return;
        };
        let quanta = match shut {
            Shut::Lost => &mut sums.lost,
            Shut::Offline => &mut sums.offline,
            Shut::Blocked => &mut sums.blocked,
            Shut::Declined => &mut sums.declined,
            Shut::Withheld => &mut sums.withheld,
        };
        add(quanta, part.order);
        add(&mut sums.held_closed, part.held);
    }
}

/// Returns the sum of the idle space that has this reason.
fn for_why(idle: &mut Idle, why: IdleReason) -> &mut u64 {
    match why {
        IdleReason::Kept => &mut idle.kept,
        IdleReason::Split => &mut idle.split,
        IdleReason::Capped => &mut idle.capped,
        IdleReason::Unasked => &mut idle.unasked,
    }
}

fn part(state: &RoundState, node: NodeIx, wishes: &UnmetDemand) -> Part {
    let node_state = &state.nodes[node];
    let open = node_state.is_schedulable();
    let free = if open { node_state.free.quanta } else { 0 };
    let (reservation, why) = if free > 0 {
        (
            reserved_quanta(state, node).min(free),
            wishes.why(state, node),
        )
    } else {
        (0, IdleReason::Unasked)
    };
    let (held, fixed) = if node_state.is_simple_sum {
        // The node has no fixed allocation and is not overfull, so no allocation has to be read.
        (node_state.quanta - node_state.free.quanta, 0)
    } else {
        held_and_fixed(state, node)
    };
    Part {
        pool: node_state.pool,
        shut: (!open).then(|| shut(&state.node_record(node).node)),
        order: node_state.quanta,
        held,
        fixed,
        free,
        reservation,
        why,
    }
}

fn held_and_fixed(state: &RoundState, node: NodeIx) -> (u64, u64) {
    let node_state = &state.nodes[node];
    let granted = node_state
        .granted
        .iter()
        .map(|at| state.granted[*at].quanta);
    let held = state.node_record(node).held_quanta + granted.sum::<u64>();
    (
        held,
        node_state.quanta - state.space_without_fixed(node).quanta,
    )
}
