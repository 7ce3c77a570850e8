//! Packs a whole gang onto the space that nodes will have when other work has left. Nodes that lack
//! the least now are tried first, so that the reserved space is free soon.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    future_free_space::{FutureFreeSpace, Occupancy},
    resource_vec::{Vector, add, subtract},
    round_state::RoundState,
};

/// Number of processes of each part, by node.
pub(crate) type GangPacking = BTreeMap<usize, BTreeMap<usize, u64>>;

type PackedNodes = BTreeMap<usize, PackedNode>;

/// A node during packing.
#[derive(Clone)]
struct PackedNode {
    future: FutureFreeSpace,
    /// Usage without allocations that are leaving, plus packed processes.
    used_after_vacates: Vector,
}

/// Finds space for all missing processes of the parts, or returns `None`. With `include_reserved`,
/// nodes reserved for other work count as well.
pub(super) fn pack(
    round: &RoundState,
    occupancy: &Occupancy,
    parts: &[usize],
    include_reserved: bool,
) -> Option<GangPacking> {
    let first = *parts.first()?;
    let total = round.missing_resources(parts);
    // Space is useless while the quota of the queue or user is exhausted.
    round.may_hold_more(first, &total).ok()?;
    let app = round.items[first].app;
    let node_states = round.nodes.node_states.iter().enumerate();
    let candidate_nodes = node_states
        .filter(|(_, it)| it.node.is_schedulable() && (include_reserved || !it.reserved));
    let may_use_any_node = parts.iter().any(|part| round.items[*part].may_use_any_node);
    let is_useful = |node: usize| {
        may_use_any_node
            || parts
                .iter()
                .any(|part| round.meets_constraints(*part, node))
    };
    let candidate_nodes = candidate_nodes.filter(|(node, _)| is_useful(*node));
    let nodes: PackedNodes = candidate_nodes
        .map(|(node, node_state)| {
            let mut used_after_vacates = node_state.used.clone();
            subtract(&mut used_after_vacates, &node_state.leaving);
            let future = FutureFreeSpace::after_jobs_end(round, occupancy, node, app);
            (
                node,
                PackedNode {
                    future,
                    used_after_vacates,
                },
            )
        })
        .collect();
    let node_orders = [
        NodeOrder::LeastShortage,
        NodeOrder::Tightest,
        NodeOrder::Loosest,
    ];
    let mut packings = node_orders
        .iter()
        .map(|node_order| pack_in_order(round, nodes.clone(), parts, *node_order));
    packings.find_map(|packing| packing)
}

/// Packs the parts like [`pack`], but assumes that only vacated allocations leave.
pub(super) fn pack_after_vacates(
    round: &RoundState,
    occupancy: &Occupancy,
    parts: &[usize],
) -> Option<GangPacking> {
    let node_states = round.nodes.node_states.iter().enumerate();
    let candidate_nodes = node_states.filter(|(_, it)| it.node.is_schedulable() && !it.reserved);
    let free_spaces = candidate_nodes
        .map(|(node, _)| (node, FutureFreeSpace::after_vacates(round, occupancy, node)));
    pack_into(round, free_spaces, parts)
}

/// Packs the parts into the given free space.
pub(crate) fn pack_into(
    round: &RoundState,
    free_spaces: impl Iterator<Item = (usize, FutureFreeSpace)>,
    parts: &[usize],
) -> Option<GangPacking> {
    let used_after_vacates = round.dims.zero();
    let nodes = free_spaces.map(|(node, future)| {
        (
            node,
            PackedNode {
                future,
                used_after_vacates: used_after_vacates.clone(),
            },
        )
    });
    let nodes: PackedNodes = nodes.collect();
    let tightest = pack_in_order(round, nodes.clone(), parts, NodeOrder::Tightest);
    tightest.or_else(|| pack_in_order(round, nodes, parts, NodeOrder::Loosest))
}

/// Heuristic for the next node. Each one misses some packings, so several are tried.
#[derive(Clone, Copy)]
enum NodeOrder {
    /// The node that lacks the least now.
    LeastShortage,
    /// The node with the least remainder.
    Tightest,
    /// The node with the largest remainder.
    Loosest,
}

/// Packs the processes one by one, each on the first node in this order that has space.
fn pack_in_order(
    round: &RoundState,
    mut nodes: PackedNodes,
    parts: &[usize],
    node_order: NodeOrder,
) -> Option<GangPacking> {
    let mut placement: Vec<(usize, usize)> = Vec::new();
    let mut packing = GangPacking::new();
    for part in parts {
        let vector = round.vector(*part);
        let key = |node: usize, packed_node: &PackedNode| {
            let remaining_fits = match node_order {
                NodeOrder::LeastShortage => 0,
                NodeOrder::Tightest => packed_node.future.remaining_fits_milli(vector),
                NodeOrder::Loosest => u64::MAX - packed_node.future.remaining_fits_milli(vector),
            };
            let shortage = shortage(round, node, &packed_node.used_after_vacates, vector);
            (remaining_fits, shortage, round.nodes.sort_key(node))
        };
        let candidates = nodes.iter().filter(|(node, packed_node)| {
            packed_node.future.fits(vector) && round.meets_constraints(*part, **node)
        });
        let mut sorted: BTreeSet<_> = candidates
            .map(|(node, packed_node)| key(*node, packed_node))
            .collect();
        for _ in 0..round.items[*part].missing_gang_processes() {
            let node = loop {
                let (.., (_, node)) = sorted.pop_first()?;
                let fits = nodes[&node].future.fits(vector);
                if fits && round.satisfies_anti_affinity_with(*part, node, &placement) {
                    break node;
                }
            };
            let packed_node = nodes.get_mut(&node)?;
            packed_node.future.place(vector);
            add(&mut packed_node.used_after_vacates, vector);
            sorted.insert(key(node, packed_node));
            placement.extend(
                round.items[*part]
                    .demand
                    .anti_affinity
                    .is_some()
                    .then_some((*part, node)),
            );
            *packing.entry(node).or_default().entry(*part).or_default() += 1;
        }
    }
    Some(packing)
}

/// Returns the sum of the lacking fractions of the needed resources.
pub(super) fn shortage(
    round: &RoundState,
    node: usize,
    used_after_vacates: &Vector,
    vector: &Vector,
) -> u128 {
    // Fractions are integers in units of 1 / `SCALE`.
    const SCALE: u128 = 1 << 20;
    let capacity = &round.nodes.node_states[node].capacity;
    let needed = vector.iter().enumerate().filter(|(_, amount)| **amount > 0);
    let fractions = needed.map(|(dim, amount)| {
        let missing = used_after_vacates[dim]
            .saturating_add(*amount)
            .saturating_sub(capacity[dim]);
        u128::from(missing) * SCALE / u128::from(*amount)
    });
    fractions.sum()
}
