//! A second attempt to place entitled work, largest processes first (W-2).
//!
//! The first attempt serves the oldest work first. This is fair, but can leave a large process
//! without a fitting hole. If entitled processes found no node, the fair-share grants of this round
//! are cancelled and placed again by size. Running processes never move. The attempt that leaves
//! fewer quanta waiting is used.

use std::cmp::Reverse;

use super::attempt::place_in_order;
use crate::{
    ids::{NodeIx, WorkIx},
    input::snapshot::Policy,
    state::{RoundState, WorkState, serve_order::QueuedWork},
};

/// Cancels the grants from index `first_grant` on and places the work again. Keeps the better
/// result.
pub(crate) fn repack(state: &mut RoundState, queue: &[QueuedWork], first_grant: usize) {
    if state.granted.len() == first_grant {
        return;
    }
    let waiting_before = waiting_quanta(state, queue);
    if waiting_before == 0 {
        return;
    }
    let cancelled = cancel_grants(state, first_grant);
    let mut by_size: Vec<QueuedWork> = queue.to_vec();
    by_size.retain(|queued| queued.policy == Policy::FairShare);
    by_size.sort_by_key(|queued| sort_key(state, queued.work));
    let first_new_grant = state.granted.len();
    place_in_order(state, &by_size);
    let waiting_after = waiting_quanta(state, queue);
    if waiting_after >= waiting_before {
        cancel_grants(state, first_new_grant);
        for (work, node) in cancelled {
            let (quanta, size) = (state.work[work].process_quanta, state.size(work));
            state.grant(work, node, quanta, size);
        }
    }
}

/// Returns the fair-share work. Only its grants of this round may be cancelled.
fn fair_share_work(queue: &[QueuedWork]) -> impl Iterator<Item = WorkIx> {
    let queue = queue.iter();
    let queue = queue.filter(|queued| queued.policy == Policy::FairShare);
    queue.map(|queued| queued.work)
}

/// Returns the quanta of all entitled processes without a node.
fn waiting_quanta(state: &RoundState, queue: &[QueuedWork]) -> u64 {
    let work = fair_share_work(queue).map(|work| &state.work[work]);
    work.map(|work_state| waiting_processes(work_state) * work_state.process_quanta)
        .sum()
}

/// Returns the number of entitled processes without a node, limited to what the fleet could hold.
fn waiting_processes(work: &WorkState) -> u64 {
    work.missing().min(work.reach)
}

/// Returns a sort key: by priority, then the largest process first.
fn sort_key(state: &RoundState, work: WorkIx) -> (i64, Reverse<u64>) {
    let work_state = &state.work[work];
    let class = work_state.class.map(|class| state.classes[class].class);
    let priority = class.map_or(i64::MAX, |class| class.priority);
    (priority, Reverse(work_state.process_quanta))
}

/// Cancels the fair-share grants of this round and returns them in order. Space that was vacated
/// for a piece of work is reserved for it again.
fn cancel_grants(state: &mut RoundState, first_grant: usize) -> Vec<(WorkIx, NodeIx)> {
    let mut cancelled = Vec::new();
    for index in first_grant..state.granted.len() {
        let grant = &state.granted[index];
        let (work, node, live, in_reserved_space) =
            (grant.work, grant.node, grant.live, grant.in_reserved_space);
        if live && state.policy(work) == Some(Policy::FairShare) {
            cancelled.push((work, node));
            state.cancel(index);
            if in_reserved_space {
                // Without a reservation, other work would take the space, and it would be vacated
                // again in each round.
                state.reserve(work, node);
            }
        }
    }
    cancelled
}
