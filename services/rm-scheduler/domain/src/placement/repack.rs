//! A second attempt to place entitled work, largest processes first (W-2).
//!
//! Serving the oldest work first is fair, but can leave the last hole a quantum too small. If
//! entitled processes are left over, the fair-share grants of this round are cancelled and placed
//! again by size. Running processes never move. The attempt that leaves less work waiting is used.

use std::cmp::Reverse;

use super::attempt::place_in_order;
use crate::{
    ids::{NodeIx, WorkIx},
    input::snapshot::Policy,
    state::{RoundState, WorkState, serve_order::QueuedWork},
};

/// Repacks the grants from index `since` on.
pub(crate) fn improve(state: &mut RoundState, queue: &[QueuedWork], since: usize) {
    if state.granted.len() == since {
        return;
    }
    let before = waiting_quanta(state, queue);
    if before == 0 {
        return;
    }
    let first = lift(state, since);
    let mut by_size: Vec<QueuedWork> = queue.to_vec();
    by_size.retain(|queued| queued.policy == Policy::FairShare);
    by_size.sort_by_key(|queued| size(state, queued.work));
    let second = state.granted.len();
    place_in_order(state, &by_size);
    let after = waiting_quanta(state, queue);
    if after >= before {
        lift(state, second);
        for (work, node) in first {
            let (quanta, size) = (state.work[work].process_quanta, state.size(work));
            state.grant(work, node, quanta, size);
        }
    }
}

/// Returns the fair-share work. Only its grants of this round may be cancelled.
fn fair(queue: &[QueuedWork]) -> impl Iterator<Item = WorkIx> {
    let fair = queue.iter();
    let fair = fair.filter(|queued| queued.policy == Policy::FairShare);
    fair.map(|queued| queued.work)
}

/// Returns the quanta of all entitled processes without a node.
fn waiting_quanta(state: &RoundState, queue: &[QueuedWork]) -> u64 {
    let work = fair(queue).map(|at| &state.work[at]);
    work.map(|it| waiting(it) * it.process_quanta).sum()
}

/// Returns the number of entitled processes without a node, limited to what the fleet could hold.
fn waiting(work: &WorkState) -> u64 {
    work.missing().min(work.reach)
}

/// Returns a sort key: by priority, then the largest process first.
fn size(state: &RoundState, work: WorkIx) -> (i64, Reverse<u64>) {
    let work_state = &state.work[work];
    let class = work_state.class.map(|class| state.classes[class].class);
    let priority = class.map_or(i64::MAX, |class| class.priority);
    (priority, Reverse(work_state.process_quanta))
}

/// Cancels the fair-share grants of this round and returns them in order. Space that was vacated
/// for a piece of work is reserved for it again.
fn lift(state: &mut RoundState, since: usize) -> Vec<(WorkIx, NodeIx)> {
    let mut lifted = Vec::new();
    for at in since..state.granted.len() {
        let grant = &state.granted[at];
        let (work, node, live, in_reserved_space) =
            (grant.work, grant.node, grant.live, grant.in_reserved_space);
        if live && state.policy(work) == Some(Policy::FairShare) {
            lifted.push((work, node));
            state.cancel(at);
            if in_reserved_space {
                // Without a reservation, other work would take the space, and it would be vacated
                // again in each round.
                state.reserve(work, node);
            }
        }
    }
    lifted
}
