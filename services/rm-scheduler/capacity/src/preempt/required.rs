//! Preemption on the only node that work may use. Priorities count, guarantees do not. Free space
//! on the node is used first.

use std::cmp::Reverse;

use super::{
    vacate_victim,
    victims::{is_originator, is_willing, needed},
};
use crate::{
    future_nodes::{FutureNode, Occupancy},
    reserve::{gangs, reserve_with_victims},
    resource_vec::share_a_type,
    round_state::{RoundState, Why},
    tree::ROOT,
};

pub(super) fn run(round: &mut RoundState, occupancy: &Occupancy) {
    for item in round.aside.clone() {
        let it = &round.items[item];
        let waits = it.why == Some(Why::NoNode) && !it.starts_whole();
        let Some(required) = it.queued.required_node.as_ref().filter(|_| waits) else {
            continue;
        };
        let Some(node) = round.nodes.find(required) else {
            continue;
        };
        let node_state = &round.nodes.node_states[node];
        let possible = node_state.node.is_schedulable()
            && node_state.could_hold(round.vector(item))
            && round.suits(item, node);
        let reservation = round.carried.reservations.get(required);
        // Space that victims are freeing belongs to its work. Space reserved without victims does
        // not.
        let taken = reservation.is_some_and(|it| it.cleared || it.work == *round.items[item].work)
            || gangs::is_cleared(round, node);
        // Quota may have been reserved for other work since the last check.
        let may = round.may_run(round.items[item].app).is_ok() && round.may_hold(item).is_ok();
        if !possible || !may || taken || round.carried.attempts.contains_key(round.items[item].work)
        {
            continue;
        }
        match victims(round, occupancy, item, node) {
            None => {
                let (work, now) = (round.items[item].work.clone(), round.snapshot.now);
                round.carried.attempts.insert(work, now);
            }
            Some(victims) => {
                round.carried.reservations.remove(required);
                for victim in victims {
                    let detail = format!(
                        "work {} may run on node {required} and nowhere else",
                        round.items[item].work
                    );
                    vacate_victim(round, victim, item, detail);
                }
                reserve_with_victims(round, item, node);
            }
        }
    }
}

fn victims(
    round: &RoundState,
    occupancy: &Occupancy,
    item: usize,
    node: usize,
) -> Option<Vec<usize>> {
    let vector = round.vector(item);
    let it = &round.items[item];
    let seen = |queue: Option<usize>, priority: i32| {
        queue.map(|queue| round.tree.priority_below(ROOT, queue, priority))
    };
    let mine = seen(round.queue_of(item), it.queued.priority)?;
    let mut candidates: Vec<(bool, bool, i32, usize)> = occupancy
        .on(node)
        .filter_map(|at| {
            let held = &round.held[at];
            let owner = held.item?;
            let other = &round.items[owner];
            let priority = seen(held.queue, other.queued.priority)?;
            let may = other.app != it.app
                && !round.is_of_a_cleared_gang(owner)
                && !held.leaves
                && !held.allocation.fixed
                && other.queued.required_node.is_none()
                && priority <= mine
                && share_a_type(&held.vector, vector);
            let (originator, unwilling) = (is_originator(round, at), !is_willing(round, at));
            may.then_some((originator, unwilling, priority, at))
        })
        .collect();
    candidates.sort_by_key(|(originator, unwilling, priority, at)| {
        let held = &round.held[*at];
        let newer = Reverse((held.allocation.granted_at, held.id));
        (
            *originator,
            *unwilling,
            *priority,
            newer,
            held.allocation.order,
        )
    });
    let soon = FutureNode::soon(round, occupancy, node);
    let fits_without = |victims: &[usize]| {
        let mut future = soon.clone();
        for at in victims {
            future.free(round, *at);
        }
        future.fits(vector)
    };
    let mut chosen = Vec::new();
    for (.., at) in candidates {
        if fits_without(&chosen) {
            break;
        }
        chosen.push(at);
    }
    chosen.reverse();
    fits_without(&chosen).then(|| needed(chosen, fits_without))
}
