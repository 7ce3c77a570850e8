//! Packs a whole gang onto future free space. Nodes that lack the least now come first, so that
//! little space is reserved for a short time.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    future_nodes::{FutureNode, Occupancy},
    gang::whole::lacks,
    resource_vec::{Vector, add, take},
    round_state::RoundState,
};

/// Processes of each part, by node.
pub(crate) type Found = BTreeMap<usize, BTreeMap<usize, u64>>;

type PackedNodes = BTreeMap<usize, PackedNode>;

/// A node during packing.
#[derive(Clone)]
struct PackedNode {
    room: FutureNode,
    /// Usage without leaving allocations, plus packed processes.
    soon: Vector,
}

/// Space for all missing processes of the parts, or none. Nodes reserved for other work count only
/// if they would suffice too.
pub(super) fn pack(
    round: &RoundState,
    occupancy: &Occupancy,
    (parts, others_too): (&[usize], bool),
) -> Option<Found> {
    let first = *parts.first()?;
    let total = lacks(round, parts);
    // Space is useless while the quota of the queue or user is exhausted.
    round.may_hold_more(first, &total).ok()?;
    let app = round.items[first].app;
    let node_states = round.nodes.node_states.iter().enumerate();
    let open =
        node_states.filter(|(_, it)| it.node.is_schedulable() && (others_too || !it.reserved));
    let anywhere = parts.iter().any(|part| round.items[*part].anywhere);
    let of_use = |node: usize| anywhere || parts.iter().any(|part| round.suits(*part, node));
    let open = open.filter(|(node, _)| of_use(*node));
    let plots: PackedNodes = open
        .map(|(node, node_state)| {
            let mut soon = node_state.used.clone();
            take(&mut soon, &node_state.going);
            let room = FutureNode::at_last(round, occupancy, (node, app));
            (node, PackedNode { room, soon })
        })
        .collect();
    let manners = [Manner::LeastShort, Manner::Tightly, Manner::Loosely];
    let mut all = manners
        .iter()
        .map(|manner| packed(round, plots.clone(), (parts, *manner)));
    all.find_map(|found| found)
}

/// The same, counting only allocations that already leave.
pub(super) fn pack_soon(
    round: &RoundState,
    occupancy: &Occupancy,
    parts: &[usize],
) -> Option<Found> {
    let node_states = round.nodes.node_states.iter().enumerate();
    let open = node_states.filter(|(_, it)| it.node.is_schedulable() && !it.reserved);
    let rooms = open.map(|(node, _)| (node, FutureNode::soon(round, occupancy, node)));
    pack_into(round, rooms, parts)
}

/// The same, with the given free space.
pub(crate) fn pack_into(
    round: &RoundState,
    rooms: impl Iterator<Item = (usize, FutureNode)>,
    parts: &[usize],
) -> Option<Found> {
    let soon = round.dims.zero();
    let plots = rooms.map(|(node, room)| {
        (
            node,
            PackedNode {
                room,
                soon: soon.clone(),
            },
        )
    });
    let plots: PackedNodes = plots.collect();
    let tightly = packed(round, plots.clone(), (parts, Manner::Tightly));
    tightly.or_else(|| packed(round, plots, (parts, Manner::Loosely)))
}

/// Heuristic for the next node. Each one misses some packings, so several are tried.
#[derive(Clone, Copy)]
enum Manner {
    LeastShort,
    /// The node with the least remainder.
    Tightly,
    Loosely,
}

fn packed(
    round: &RoundState,
    mut plots: PackedNodes,
    (parts, manner): (&[usize], Manner),
) -> Option<Found> {
    let mut placement: Vec<(usize, usize)> = Vec::new();
    let mut found = Found::new();
    for part in parts {
        let vector = round.vector(*part);
        let key = |node: usize, plot: &PackedNode| {
            let left = match manner {
                Manner::LeastShort => 0,
                Manner::Tightly => plot.room.left(vector),
                Manner::Loosely => u64::MAX - plot.room.left(vector),
            };
            let short = short(round, node, (&plot.soon, vector));
            (left, short, round.nodes.rank(node))
        };
        let could = plots
            .iter()
            .filter(|(node, plot)| plot.room.fits(vector) && round.suits(*part, **node));
        let mut order: BTreeSet<_> = could.map(|(node, plot)| key(*node, plot)).collect();
        for _ in 0..round.items[*part].gang_lacks() {
            let node = loop {
                let (.., (_, node)) = order.pop_first()?;
                let fits = plots[&node].room.fits(vector);
                if fits && round.is_apart_from(*part, node, &placement) {
                    break node;
                }
            };
            let plot = plots.get_mut(&node)?;
            plot.room.place(vector);
            add(&mut plot.soon, vector);
            order.insert(key(node, plot));
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

/// Sum of the lacking fractions of the needed resources.
pub(super) fn short(round: &RoundState, node: usize, (soon, vector): (&Vector, &Vector)) -> u128 {
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
