//! Places gangs, all or nothing: each part gets its least number of processes within all limits, or
//! no part gets any. Two gangs that each fit alone therefore never block each other with
//! half-placed parts.

use hayward_rm_scheduler_domain::snapshot::queues::GangReservation;

use crate::round_state::{RoundState, Why};

/// How nodes are chosen for the processes of a gang.
#[derive(Clone, Copy)]
enum NodeChoice<'k> {
    /// Reserved nodes first, the rest by the sort policy.
    Reserved(&'k GangReservation),
    BySortPolicy,
    Tightest,
}

/// Places all missing processes of a gang, or none.
///
/// Packing found the reserved space, so packing is tried first. If the sort policy scatters the
/// processes so that the gang does not fit, the tightest nodes are used instead.
pub(crate) fn place(
    round: &mut RoundState,
    item: usize,
    reserved: Option<&GangReservation>,
) -> Result<(), Why> {
    let mut parts = round.lacking_gang_parts(item);
    parts.retain(|part| round.items[*part].why.is_none());
    let app = round.items[item].app;
    let lacks = parts.iter().map(|part| round.items[*part].gang_lacks());
    let needed = lacks.sum();
    let starts = !round.apps[app].running;
    let before = round.placed.len();
    let mut best = (0, Why::NoNode);
    let others = [NodeChoice::BySortPolicy, NodeChoice::Tightest];
    for choice in reserved.map(NodeChoice::Reserved).into_iter().chain(others) {
        let failure = attempt(round, &parts, choice);
        let Some(why) = failure else {
            return Ok(());
        };
        let fit = (round.placed.len() - before) as u64;
        round.undo(before, starts);
        if fit >= best.0 {
            best = (fit, why);
        }
        if best.1 != Why::NoNode {
            break;
        }
    }
    let (fit, because) = best;
    let because = Some(Box::new(because));
    Err(Why::Gang {
        fit,
        needed,
        because,
    })
}

fn attempt(round: &mut RoundState, parts: &[usize], choice: NodeChoice) -> Option<Why> {
    for part in parts {
        let mut own = match choice {
            NodeChoice::Reserved(reserved) => reserved_nodes(round, *part, reserved),
            NodeChoice::BySortPolicy | NodeChoice::Tightest => Vec::new(),
        };
        for _ in 0..round.items[*part].gang_lacks() {
            let node = match (own.pop(), choice) {
                (_, NodeChoice::Tightest) => {
                    round.may_hold(*part).and_then(|()| tightest(round, *part))
                }
                (Some(node), _) if is_free(round, *part, node) => {
                    round.may_hold(*part).map(|()| node)
                }
                _ => round.find_placement(*part),
            };
            match node {
                Ok(node) => round.place(*part, node),
                Err(why) => return Some(why),
            }
        }
    }
    None
}

/// Returns the reserved nodes of a part, with one entry per process.
fn reserved_nodes(round: &RoundState, part: usize, reserved: &GangReservation) -> Vec<usize> {
    let mut nodes = Vec::new();
    for (name, works) in &reserved.nodes {
        let count = works.get(round.items[part].work).copied().unwrap_or(0);
        let count = count.min(round.items[part].gang_lacks());
        let node = round.nodes.find(name).into_iter();
        nodes.extend(node.flat_map(|node| (0..count).map(move |_| node)));
    }
    nodes
}

/// Returns true if one more process of the part fits on the node.
fn is_free(round: &RoundState, part: usize, node: usize) -> bool {
    let node_state = &round.nodes.node_states[node];
    let open = node_state.node.is_schedulable() && !node_state.reserved;
    open && node_state.fits(round.vector(part)) && round.suits(part, node)
}

/// Finds the node that would have the least left of its scarcest resource.
fn tightest(round: &RoundState, part: usize) -> Result<usize, Why> {
    let vector = round.vector(part);
    let left = |at: &usize| {
        let node_state = &round.nodes.node_states[*at];
        let requested = vector.iter().enumerate().filter(|(_, item)| **item > 0);
        let left = requested.map(|(dim, item)| {
            (node_state.capacity[dim] - node_state.used[dim] - item).saturating_mul(1_000)
                / item.max(&1)
        });
        (left.min().unwrap_or(0), *at)
    };
    let all = 0..round.nodes.node_states.len();
    let free = all.filter(|at| is_free(round, part, *at));
    free.min_by_key(left).ok_or(Why::NoNode)
}
