//! Chooses nodes for the processes that work is entitled to. This is step 5 of a round, called
//! What-Of in the specification.
//!
//! The input is the entitlement of each piece of work, and the free space of each node. The result
//! is grants, wait reasons, and the work that still has less than its entitlement.
//!
//! Work is served in the order of `state/serve_order.rs`, and work that was needy in the last round
//! comes first. A process goes to the smallest hole that fits it (best fit). In pools with GPUs, it
//! goes to the node where it fragments the GPUs least ([`gpu_packing`]). A second attempt places
//! the largest processes first. It replaces the first one if it leaves less work waiting
//! ([`repack`]).
//!
//! Placement never preempts and never moves a running process.

pub(crate) mod attempt;
pub(crate) mod gpu_packing;
mod hole_search;
pub(crate) mod pass;
mod repack;
mod whole_nodes;

use std::borrow::Cow;

use crate::{
    ids::{PoolIx, WorkIx},
    input::snapshot::Policy,
    output::plan::Reason,
    state::{
        RoundState,
        permanent_reasons::PermanentReasons,
        serve_order::{QueuedWork, all_in_order, to_serve_in_order},
    },
};
use attempt::{reserve_memory, serve};

/// Places the work of one tree. Returns, in serve order, the work that has less than its
/// entitlement or more than it may hold.
pub(crate) fn place(state: &mut RoundState, tree: PoolIx) -> Vec<QueuedWork> {
    let placed_before = state.granted.len();
    let vacates_before = state.vacates.len();
    let lacking = to_serve_in_order(state, tree);
    let queue = &*work_to_serve(state, tree, &lacking);
    let is_previously_needy = state.previously_needy.clone();
    let is_previously_needy = |queued: &&QueuedWork| is_previously_needy.contains(queued.work);
    reserve_memory(state, queue);
    let mut pass = None;
    serve(state, &mut pass, queue.iter().filter(is_previously_needy));
    // Shapes that found no node stay exhausted within this pass.
    serve(state, &mut pass, queue.iter());
    if let Some(pass) = pass {
        pass.close(state);
    }
    if state.settings.pack {
        repack::repack(state, queue, placed_before);
    }
    let mut permanent_reasons = PermanentReasons::default();
    for queued in queue {
        if let Some(reason) = no_process_reason(state, queued.work, &mut permanent_reasons) {
            state.set_wait_reason(queued.work, reason);
        }
    }
    // A grant never reduces what other work has. Only a vacate does.
    if state.vacates.len() > vacates_before {
        return to_serve_in_order(state, tree);
    }
    debug_assert!(lacking == to_serve_in_order(state, tree));
    lacking
}

/// Returns the work that misses processes, or has no process and needs a wait reason. If whole-node
/// work misses a node, returns all work, because a reservation of a node can vacate any work.
fn work_to_serve<'l>(
    state: &RoundState,
    tree: PoolIx,
    lacking: &'l [QueuedWork],
) -> Cow<'l, [QueuedWork]> {
    let misses_processes = |work: WorkIx| state.work[work].missing() > 0;
    let waits_for_whole_node =
        |queued: &QueuedWork| queued.policy == Policy::Reserve && misses_processes(queued.work);
    if lacking.iter().any(waits_for_whole_node) {
        return Cow::Owned(all_in_order(state, tree));
    }
    let needs_service = |queued: &QueuedWork| {
        misses_processes(queued.work) || state.work[queued.work].process_count() == 0
    };
    // Usually all of this work needs service, so no copy is necessary.
    if lacking.iter().all(needs_service) {
        return Cow::Borrowed(lacking);
    }
    Cow::Owned(lacking.iter().copied().filter(needs_service).collect())
}

/// Returns the reason why a piece of work has no process after it was served.
fn no_process_reason(
    state: &RoundState,
    work: WorkIx,
    permanent_reasons: &mut PermanentReasons,
) -> Option<Reason> {
    let work_state = &state.work[work];
    if work_state.process_count() > 0
        || work_state.is_excluded()
        || work_state.cap.now == 0 && work_state.reach > 0
    {
        return None;
    }
    if let Some(reason) = permanent_reasons.find(state, work) {
        let is_fair_share = state.policy(work) == Some(Policy::FairShare);
        if is_fair_share || reason == Reason::NoListedMachine {
            return Some(reason);
        }
    }
    Some(match work_state.entitlement {
        0 => Reason::ZeroShare,
        _ if state.anti_affinity_blocks(work) => Reason::AntiAffinity,
        _ => Reason::WaitingForPreemption,
    })
}
