//! Changes that help work which would otherwise wait for ever. Examples are less fixed space on a
//! node, an open or listed node, one more node, or a smaller process.

use hayward_vocabulary::NodeName;

use crate::{
    ids::{NodeIx, WorkIx},
    input::snapshot::Policy,
    output::plan::Unblock,
    state::RoundState,
    state::whole_nodes::accepts_node,
};

/// Names the node on which fixed allocations leave the least to free. Returns `None` if a node
/// could take the work after preemption.
pub(super) fn held_for_good(state: &RoundState, work: WorkIx) -> Option<Unblock> {
    let order = state.work[work].process_quanta;
    let lacking = |node: NodeIx| {
        let held = for_good(state, node);
        if is_whole(state, work) {
            held
        } else {
            (order + held).saturating_sub(state.nodes[node].quanta)
        }
    };
    let open = suitable(state, work)
        .filter(|node| state.nodes[*node].is_schedulable() && state.is_permitted(work, *node));
    let (quanta, node) = open.map(|node| (lacking(node), node)).min()?;
    let node = state.node_record(node).name.clone();
    (quanta > 0).then_some(Unblock::FreeRoom { node, quanta })
}

/// Returns the change that helps when no open node is suitable: a closed node, a node outside the
/// list, or one more node.
pub(super) fn unblock(state: &RoundState, work: WorkIx) -> Unblock {
    let mut closed = suitable(state, work).filter(|node| {
        let closed = !state.nodes[*node].is_schedulable();
        closed && state.is_permitted(work, *node) && could_hold(state, work, *node)
    });
    let open = closed.next().map(|node| Unblock::OpenNode {
        node: state.node_record(node).name.clone(),
    });
    open.unwrap_or_else(|| listed_or_added(state, work))
}

/// Returns the change that helps work with a node list: one more listed node, or one more node.
pub(super) fn listed_or_added(state: &RoundState, work: WorkIx) -> Unblock {
    let quanta = state.work[work].process_quanta;
    let unlisted = unlisted(state, work).map(|node| Unblock::ListNode { node });
    unlisted.unwrap_or(Unblock::AddNode { quanta })
}

/// Returns the open node outside the list of the work that lacks the fewest quanta, possibly none.
fn unlisted(state: &RoundState, work: WorkIx) -> Option<NodeName> {
    let quanta = state.work[work].process_quanta;
    let lacking = |node: &NodeIx| {
        let coming = state.future_quanta_for(*node, Some(work));
        quanta.saturating_sub(coming)
    };
    let unlisted = suitable(state, work).filter(|node| {
        let open = state.nodes[*node].is_schedulable();
        open && !state.admits(work, *node) && could_hold(state, work, *node)
    });
    let found = unlisted.min_by_key(lacking)?;
    Some(state.node_record(found).name.clone())
}

/// Returns the largest process, in quanta, that an open node could hold. It is smaller than the
/// present process, and has at most `most` quanta.
pub(super) fn smaller(state: &RoundState, work: WorkIx, most: u64) -> Option<u64> {
    let quanta = state.work[work].process_quanta;
    let whole = is_whole(state, work);
    let open = state
        .nodes
        .indices()
        .filter(|node| state.nodes[*node].is_schedulable() && state.is_permitted(work, *node));
    let spaces = open.filter_map(|node| {
        let (all, held) = (state.nodes[node].quanta, for_good(state, node));
        if whole {
            (held == 0).then_some(all)
        } else {
            Some(all.saturating_sub(held))
        }
    });
    spaces
        .filter(|space| (1..quanta).contains(space) && *space <= most)
        .max()
}

/// Returns whether no node of the home pool has an acceptable size, open or not.
pub(super) fn has_no_host_of_size(state: &RoundState, work: WorkIx) -> bool {
    let home = |node: &NodeIx| state.nodes[*node].pool == state.home(work);
    let mut at_home = state.nodes.indices().filter(home);
    is_whole(state, work) && !at_home.any(|node| accepts_node(state, work, node))
}

/// Returns the quanta of the smallest node that the work could get. A whole node may be larger than
/// requested.
pub(super) fn least(state: &RoundState, work: WorkIx) -> u64 {
    let orders = suitable(state, work).map(|node| state.nodes[node].quanta);
    let least = if is_whole(state, work) {
        orders.min()
    } else {
        None
    };
    least.unwrap_or(state.work[work].process_quanta)
}

/// Returns the nodes that could hold the work if they were empty, open and listed.
fn suitable(state: &RoundState, work: WorkIx) -> impl Iterator<Item = NodeIx> {
    let quanta = state.work[work].process_quanta;
    state.nodes.indices().filter(move |node| {
        let node_state = &state.nodes[*node];
        let large = if is_whole(state, work) {
            node_state.quanta == quanta || accepts_node(state, work, *node)
        } else {
            node_state.quanta >= quanta
        };
        let capacity = &state.node_record(*node).node.capacity;
        large
            && state.requested_size(work).fits(capacity)
            && node_state
                .pool
                .is_some_and(|pool| state.may_use(work, pool))
            && !state.avoids(work, *node)
    })
}

/// Returns whether space for one process is free on the node, or could be freed.
fn could_hold(state: &RoundState, work: WorkIx, node: NodeIx) -> bool {
    let (all, held) = (state.nodes[node].quanta, for_good(state, node));
    if is_whole(state, work) {
        held == 0
    } else {
        all.saturating_sub(held) >= state.work[work].process_quanta
    }
}

fn is_whole(state: &RoundState, work: WorkIx) -> bool {
    state.policy(work) == Some(Policy::Reserve)
}

/// Returns the quanta of a node in fixed allocations that do not leave.
fn for_good(state: &RoundState, node: NodeIx) -> u64 {
    let held = state.node_record(node).allocations.iter();
    let stays = held
        .filter(|allocation| state.allocations[*allocation].fixed && !state.leaving[*allocation]);
    stays
        .map(|allocation| state.allocations[allocation].quanta)
        .sum()
}

/// Returns the change that lets work exceed its allotment no more: a smaller process, if one fits,
/// or a larger allotment. Returns `None` if the work has no allotment.
pub(super) fn more_allotment(state: &RoundState, work: WorkIx) -> Option<Unblock> {
    let (limit, used) = state.allotment(work)?;
    let quantum = state.quantum_bytes(work).max(1);
    let left = limit.saturating_sub(used) / quantum;
    if has_no_host_of_size(state, work)
        && let Some(quanta) = smaller(state, work, left)
    {
        return Some(Unblock::AskForLess { quanta });
    }
    let needed = least(state, work).saturating_mul(quantum);
    let bytes = used.saturating_add(needed).saturating_sub(limit);
    Some(Unblock::RaiseAllotment { bytes })
}
