//! Places gangs, all or nothing: each part gets its least number of processes within all limits, or
//! none gets any. Two gangs that each fit alone therefore never block each other with half-placed
//! parts.

pub(crate) mod whole;

use std::cmp::Reverse;

use hayward_rm_scheduler_domain::snapshot::queues::GangRoom;

use crate::{
    cycle::find_placement,
    round_state::{RoundState, Why},
};

/// All work items of the same gang; the first one represents it.
pub(crate) fn all<'b>(round: &'b RoundState, item: usize) -> impl Iterator<Item = usize> + 'b {
    let name = move |at: usize| {
        let gang = round.items[at].queued.gang.as_ref();
        gang.map(|gang| &gang.name)
    };
    let items = round.apps[round.items[item].app].items.iter().copied();
    items.filter(move |at| name(*at).is_some() && name(*at) == name(item))
}

/// Items of the same gang that are neither placed nor aside.
pub(crate) fn parts(round: &RoundState, item: usize) -> Vec<usize> {
    let open = |at: &usize| round.items[*at].why.is_none() && round.items[*at].missing() > 0;
    all(round, item).filter(open).collect()
}

/// Parts that lack processes of the gang's least number. Large parts go first, because small ones
/// fill the gaps.
pub(crate) fn lacking(round: &RoundState, item: usize) -> Vec<usize> {
    let lacks = |at: &usize| round.items[*at].gang_lacks() > 0;
    let mut parts: Vec<usize> = all(round, item).filter(lacks).collect();
    parts.sort_by_key(|part| Reverse(bulk(round, *part)));
    parts
}

/// How nodes are chosen for the processes of a gang.
#[derive(Clone, Copy)]
enum Manner<'k> {
    /// Reserved nodes first, the rest by the sort policy.
    Kept(&'k GangRoom),
    AsSorted,
    Tightly,
}

/// Places all missing processes of a gang, or none.
///
/// Reserved space was found by packing, so that packing is tried first. If the sort policy scatters
/// the processes so that the gang does not fit, the tightest nodes are used instead.
pub(crate) fn place(
    round: &mut RoundState,
    item: usize,
    reserved: Option<&GangRoom>,
) -> Result<(), Why> {
    let mut parts = lacking(round, item);
    parts.retain(|part| round.items[*part].why.is_none());
    let app = round.items[item].app;
    let of = parts
        .iter()
        .map(|part| round.items[*part].gang_lacks())
        .sum();
    let starts = !round.apps[app].running;
    let before = round.placed.len();
    let mut best = (0, Why::NoNode);
    let others = [Manner::AsSorted, Manner::Tightly];
    for manner in reserved.map(Manner::Kept).into_iter().chain(others) {
        let failure = attempt(round, &parts, manner);
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
    Err(Why::Gang { fit, of, because })
}

fn attempt(round: &mut RoundState, parts: &[usize], manner: Manner) -> Option<Why> {
    for part in parts {
        let mut own = match manner {
            Manner::Kept(reserved) => places(round, *part, reserved),
            Manner::AsSorted | Manner::Tightly => Vec::new(),
        };
        for _ in 0..round.items[*part].gang_lacks() {
            let node = match (own.pop(), manner) {
                (_, Manner::Tightly) => round.may_hold(*part).and_then(|()| tightest(round, *part)),
                (Some(node), _) if is_free(round, *part, node) => {
                    round.may_hold(*part).map(|()| node)
                }
                _ => find_placement(round, *part),
            };
            match node {
                Ok(node) => round.place(*part, node),
                Err(why) => return Some(why),
            }
        }
    }
    None
}

/// Reserved nodes of a part, one entry per process.
fn places(round: &RoundState, part: usize, reserved: &GangRoom) -> Vec<usize> {
    let mut places = Vec::new();
    for (name, works) in &reserved.nodes {
        let count = works.get(round.items[part].work).copied().unwrap_or(0);
        let count = count.min(round.items[part].gang_lacks());
        let node = round.nodes.find(name).into_iter();
        places.extend(node.flat_map(|node| (0..count).map(move |_| node)));
    }
    places
}

/// True when one more process of the part fits there.
fn is_free(round: &RoundState, part: usize, node: usize) -> bool {
    let node_state = &round.nodes.node_states[node];
    let open = node_state.node.is_schedulable() && !node_state.reserved;
    open && node_state.fits(round.vector(part)) && round.suits(part, node)
}

/// Size of a process relative to an average node, by its largest resource.
fn bulk(round: &RoundState, part: usize) -> u64 {
    const PARTS: u128 = 1 << 20;
    let vector = round.vector(part);
    let shares = vector
        .iter()
        .zip(&round.whole)
        .filter(|(_, whole)| **whole > 0);
    let shares = shares.map(|(item, whole)| u128::from(*item) * PARTS / u128::from(*whole));
    u64::try_from(shares.max().unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Node with the least remainder of its scarcest resource.
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
