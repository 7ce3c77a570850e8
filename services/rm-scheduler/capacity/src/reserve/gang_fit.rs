//! Packs a whole gang onto future free space. Nodes that lack the least now come first, so that
//! little space is reserved for a short time.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    future_nodes::{FutureNode, Occupancy},
    resource_vec::{Vector, add, take},
    round_state::RoundState,
};

/// Number of processes of each part, by node.
pub(crate) type Found = BTreeMap<usize, BTreeMap<usize, u64>>;

type PackedNodes = BTreeMap<usize, PackedNode>;

/// A node during packing.
#[derive(Clone)]
struct PackedNode {
    future: FutureNode,
    /// Usage without allocations that are leaving, plus packed processes.
    soon: Vector,
}

/// Finds space for all missing processes of the parts, or returns `None`. With `others_too`, nodes
/// reserved for other work count as well.
pub(super) fn pack(
    round: &RoundState,
    occupancy: &Occupancy,
    parts: &[usize],
    others_too: bool,
) -> Option<Found> {
    let first = *parts.first()?;
    let total = round.missing_resources(parts);
    // Space is useless while the quota of the queue or user is exhausted.
    round.may_hold_more(first, &total).ok()?;
    let app = round.items[first].app;
    let node_states = round.nodes.node_states.iter().enumerate();
    let open =
        node_states.filter(|(_, it)| it.node.is_schedulable() && (others_too || !it.reserved));
    let anywhere = parts.iter().any(|part| round.items[*part].anywhere);
    let is_useful = |node: usize| anywhere || parts.iter().any(|part| round.suits(*part, node));
    let open = open.filter(|(node, _)| is_useful(*node));
    let nodes: PackedNodes = open
        .map(|(node, node_state)| {
            let mut soon = node_state.used.clone();
            take(&mut soon, &node_state.going);
            let future = FutureNode::at_last(round, occupancy, node, app);
            (node, PackedNode { future, soon })
        })
        .collect();
    let orders = [
        NodeOrder::LeastShort,
        NodeOrder::Tightest,
        NodeOrder::Loosest,
    ];
    let mut all = orders
        .iter()
        .map(|node_order| packed(round, nodes.clone(), parts, *node_order));
    all.find_map(|found| found)
}

/// Packs the parts like [`pack`], but assumes that only vacated allocations leave.
pub(super) fn pack_soon(
    round: &RoundState,
    occupancy: &Occupancy,
    parts: &[usize],
) -> Option<Found> {
    let node_states = round.nodes.node_states.iter().enumerate();
    let open = node_states.filter(|(_, it)| it.node.is_schedulable() && !it.reserved);
    let future_nodes = open.map(|(node, _)| (node, FutureNode::soon(round, occupancy, node)));
    pack_into(round, future_nodes, parts)
}

/// Packs the parts into the given free space.
pub(crate) fn pack_into(
    round: &RoundState,
    future_nodes: impl Iterator<Item = (usize, FutureNode)>,
    parts: &[usize],
) -> Option<Found> {
    let soon = round.dims.zero();
    let nodes = future_nodes.map(|(node, future)| {
        (
            node,
            PackedNode {
                future,
                soon: soon.clone(),
            },
        )
    });
    let nodes: PackedNodes = nodes.collect();
    let tightest = packed(round, nodes.clone(), parts, NodeOrder::Tightest);
    tightest.or_else(|| packed(round, nodes, parts, NodeOrder::Loosest))
}

/// Heuristic for the next node. Each one misses some packings, so several are tried.
#[derive(Clone, Copy)]
enum NodeOrder {
    LeastShort,
    /// The node with the least remainder.
    Tightest,
    Loosest,
}

fn packed(
    round: &RoundState,
    mut nodes: PackedNodes,
    parts: &[usize],
    node_order: NodeOrder,
) -> Option<Found> {
    let mut placement: Vec<(usize, usize)> = Vec::new();
    let mut found = Found::new();
    for part in parts {
        let vector = round.vector(*part);
        let key = |node: usize, packed_node: &PackedNode| {
            let left = match node_order {
                NodeOrder::LeastShort => 0,
                NodeOrder::Tightest => packed_node.future.left(vector),
                NodeOrder::Loosest => u64::MAX - packed_node.future.left(vector),
            };
            let short = short(round, node, &packed_node.soon, vector);
            (left, short, round.nodes.rank(node))
        };
        let could = nodes.iter().filter(|(node, packed_node)| {
            packed_node.future.fits(vector) && round.suits(*part, **node)
        });
        let mut order: BTreeSet<_> = could
            .map(|(node, packed_node)| key(*node, packed_node))
            .collect();
        for _ in 0..round.items[*part].gang_lacks() {
            let node = loop {
                let (.., (_, node)) = order.pop_first()?;
                let fits = nodes[&node].future.fits(vector);
                if fits && round.is_apart_from(*part, node, &placement) {
                    break node;
                }
            };
            let packed_node = nodes.get_mut(&node)?;
            packed_node.future.place(vector);
            add(&mut packed_node.soon, vector);
            order.insert(key(node, packed_node));
            placement.extend(
                round.items[*part]
                    .demand
                    .apart
                    .is_some()
                    .then_some((*part, node)),
            );
            *found.entry(node).or_default().entry(*part).or_default() += 1;
        }
    }
    Some(found)
}

/// Returns the sum of the lacking fractions of the needed resources.
pub(super) fn short(round: &RoundState, node: usize, soon: &Vector, vector: &Vector) -> u128 {
    const SCALE: u128 = 1 << 20;
    let capacity = &round.nodes.node_states[node].capacity;
    let requested = vector.iter().enumerate().filter(|(_, item)| **item > 0);
    let short = requested.map(|(dim, item)| {
        let over = soon[dim]
            .saturating_add(*item)
            .saturating_sub(capacity[dim]);
        u128::from(over) * SCALE / u128::from(*item)
    });
    short.sum()
}
