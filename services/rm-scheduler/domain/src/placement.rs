//! What-Of: puts counted processes on nodes (section 10), and lends what stays idle.
//!
//! Nothing is taken back here and nothing given is moved. Fit is tested on quanta, on the
//! full size vector and on single gpus.

pub(crate) mod attempt;
mod by_free_space;
pub(crate) mod gpu_packing;
mod node_index;
pub(crate) mod pass;
mod repack;
pub(crate) mod serve_order;

use std::borrow::Cow;

use crate::{
    explanation::unblock::UnblockFinder, input::snapshot::Policy, output::plan::Reason,
    state::RoundState,
};
use attempt::{reserve_memory, serve};
use serve_order::{all_in_order, lacking_in_order};

pub(crate) use by_free_space::FreeNodes;
pub(crate) use node_index::NodeIndex;

/// for one tree. Returns who lacks something or has more than it may, in turn, as
/// it is then.
pub(crate) fn place(state: &mut RoundState, tree: usize) -> Vec<(Policy, usize)> {
    let placed_before = state.granted.len();
    let told_before = state.vacates.len();
    let lacking = lacking_in_order(state, tree);
    let queue = &*in_need(state, tree, &lacking);
    let was_needy = state.previously_needy.numbers.clone();
    let was_needy = |entry: &&(Policy, usize)| was_needy.contains(entry.1);
    reserve_memory(state, queue);
    let mut pass = None;
    serve(state, &mut pass, queue.iter().filter(was_needy));
    // What was in vain is so still.
    serve(state, &mut pass, queue.iter());
    if let Some(pass) = pass {
        pass.close(state);
    }
    if state.settings.pack {
        // Who was needy was served first.
        let in_turn = || {
            !queue
                .iter()
                .skip_while(was_needy)
                .any(|entry| was_needy(&entry))
        };
        repack::improve(state, queue, placed_before, in_turn);
    }
    let mut unblock_finder = UnblockFinder::default();
    for (_, at) in queue {
        if let Some(reason) = no_process_reason(state, *at, &mut unblock_finder) {
            state.set_wait_reason(*at, reason);
        }
    }
    // Who is given something does not come to lack anything by that.
    if state.vacates.len() > told_before {
        return lacking_in_order(state, tree);
    }
    debug_assert!(lacking == lacking_in_order(state, tree));
    lacking
}

/// Those whose turns can change anything: they lack something, or have nothing and are told why. A
/// reservation can take something from anybody, so where one is to be placed all may come to lack
/// something.
fn in_need<'l>(
    state: &RoundState,
    tree: usize,
    lacking: &'l [(Policy, usize)],
) -> Cow<'l, [(Policy, usize)]> {
    let is_missing = |at: usize| state.work[at].missing() > 0;
    let is_whole = |(policy, at): &(Policy, usize)| *policy == Policy::Reserve && is_missing(*at);
    if lacking.iter().any(is_whole) {
        return Cow::Owned(all_in_order(state, tree));
    }
    let needs = |(_, at): &(Policy, usize)| is_missing(*at) || state.work[*at].has() == 0;
    // Mostly all do.
    if lacking.iter().all(needs) {
        return Cow::Borrowed(lacking);
    }
    Cow::Owned(lacking.iter().copied().filter(needs).collect())
}

/// why it has no process after its turn.
fn no_process_reason(
    state: &RoundState,
    at: usize,
    unblock_finder: &mut UnblockFinder,
) -> Option<Reason> {
    let work = &state.work[at];
    if work.has() > 0 || work.is_excluded() || work.cap.now == 0 && work.reach > 0 {
        return None;
    }
    if let Some(reason) = unblock_finder.never(state, at) {
        let fair = state.policy(at) == Some(Policy::FairShare);
        if fair || reason == Reason::NoListedMachine {
            return Some(reason);
        }
    }
    Some(match work.counted {
        0 => Reason::ZeroShare,
        _ if state.anti_affinity_blocks(at) => Reason::KeptApart,
        _ => Reason::WaitingForPreemption,
    })
}
