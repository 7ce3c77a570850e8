//! Places gangs, all or nothing: each part gets its minimum number of processes within all limits,
//! or no part gets any. Two gangs that each fit alone therefore never block each other with
//! half-placed parts.

use hayward_rm_scheduler_domain::snapshot::queues::GangReservation;

use crate::round_state::{RoundState, WaitReason};

/// How nodes are chosen for the processes of a gang.
#[derive(Clone, Copy)]
enum NodeChoice<'k> {
    /// Reserved nodes first, all others by the sort policy.
    Reserved(&'k GangReservation),
    BySortPolicy,
    /// The node on which the least space would remain.
    Tightest,
}

/// Places all missing processes of a gang, or none.
///
/// Reserved nodes are tried first, because the whole gang was found to fit on them. If the sort
/// policy scatters the processes so that the gang does not fit, the tightest nodes are used
/// instead.
pub(crate) fn place(
    round: &mut RoundState,
    item: usize,
    reserved: Option<&GangReservation>,
) -> Result<(), WaitReason> {
    let mut parts = round.lacking_gang_parts(item);
    parts.retain(|part| round.items[*part].wait_reason.is_none());
    let app = round.items[item].app;
    let missing = parts
        .iter()
        .map(|part| round.items[*part].missing_gang_processes());
    let needed = missing.sum();
    let starts_application = !round.apps[app].running;
    let placed_before = round.placed.len();
    let (mut max_fitting, mut max_fitting_cause) = (0, WaitReason::NoNode);
    let unreserved_choices = [NodeChoice::BySortPolicy, NodeChoice::Tightest];
    for choice in reserved
        .map(NodeChoice::Reserved)
        .into_iter()
        .chain(unreserved_choices)
    {
        let failure = try_place(round, &parts, choice);
        let Some(reason) = failure else {
            return Ok(());
        };
        let fitting = (round.placed.len() - placed_before) as u64;
        round.undo(placed_before, starts_application);
        if fitting >= max_fitting {
            (max_fitting, max_fitting_cause) = (fitting, reason);
        }
        if max_fitting_cause != WaitReason::NoNode {
            break;
        }
    }
    Err(WaitReason::Gang {
        fitting: max_fitting,
        needed,
        cause: Some(Box::new(max_fitting_cause)),
    })
}

/// Places the missing processes of the parts. Returns the reason if a process does not fit. The
/// processes placed before that process remain.
fn try_place(round: &mut RoundState, parts: &[usize], choice: NodeChoice) -> Option<WaitReason> {
    for part in parts {
        let mut part_nodes = match choice {
            NodeChoice::Reserved(reserved) => reserved_nodes(round, *part, reserved),
            NodeChoice::BySortPolicy | NodeChoice::Tightest => Vec::new(),
        };
        for _ in 0..round.items[*part].missing_gang_processes() {
            let node = match (part_nodes.pop(), choice) {
                (_, NodeChoice::Tightest) => round
                    .may_hold(*part)
                    .and_then(|()| find_tightest_node(round, *part)),
                (Some(node), _) if fits_one_more(round, *part, node) => {
                    round.may_hold(*part).map(|()| node)
                }
                _ => round.find_placement(*part),
            };
            match node {
                Ok(node) => round.place(*part, node),
                Err(reason) => return Some(reason),
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
        let count = count.min(round.items[part].missing_gang_processes());
        let node = round.nodes.find(name).into_iter();
        nodes.extend(node.flat_map(|node| (0..count).map(move |_| node)));
    }
    nodes
}

/// Returns true if one more process of the part fits on the node.
fn fits_one_more(round: &RoundState, part: usize, node: usize) -> bool {
    let node_state = &round.nodes.node_states[node];
    let is_open = node_state.node.is_schedulable() && !node_state.reserved;
    is_open && node_state.fits(round.vector(part)) && round.meets_constraints(part, node)
}

/// Returns the node on which the least of the scarcest resource would remain.
fn find_tightest_node(round: &RoundState, part: usize) -> Result<usize, WaitReason> {
    let vector = round.vector(part);
    let remaining_milli = |node: &usize| {
        let node_state = &round.nodes.node_states[*node];
        let needed = vector.iter().enumerate().filter(|(_, amount)| **amount > 0);
        let remaining_milli = needed.map(|(dim, amount)| {
            (node_state.capacity[dim] - node_state.used[dim] - amount).saturating_mul(1_000)
                / amount.max(&1)
        });
        (remaining_milli.min().unwrap_or(0), *node)
    };
    let nodes = 0..round.nodes.node_states.len();
    let open_nodes = nodes.filter(|node| fits_one_more(round, part, *node));
    open_nodes
        .min_by_key(remaining_milli)
        .ok_or(WaitReason::NoNode)
}
