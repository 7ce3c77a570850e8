//! One attempt to place work: serves a queue in the given order and grants processes on nodes.

use super::{
    hole_search::HoleSearch,
    pass::{PlacementPass, is_usable},
    whole_nodes,
};
use crate::{
    ids::{NodeIx, PoolIx, WorkIx},
    input::snapshot::Policy,
    state::{RoundState, serve_order::QueuedWork},
};

/// Maximum number of grants for which memory is reserved at once.
const MAX_RESERVED_GRANTS: u64 = 1 << 20;

/// Places the work of a queue in a pass of its own.
pub(super) fn place_in_order(state: &mut RoundState, queue: &[QueuedWork]) {
    reserve_memory(state, queue);
    let mut pass = None;
    serve(state, &mut pass, queue.iter());
    if let Some(pass) = pass {
        pass.close(state);
    }
}

/// Reserves capacity for the grants of a queue, so that the vector is not copied as it grows.
pub(super) fn reserve_memory(state: &mut RoundState, queue: &[QueuedWork]) {
    let missing = queue.iter().map(|queued| state.work[queued.work].missing());
    let missing = missing
        .fold(0, u64::saturating_add)
        .min(MAX_RESERVED_GRANTS);
    state.granted.reserve(usize::try_from(missing).unwrap_or(0));
}

/// Serves work in this order. The pass is opened for the first work that misses a process.
pub(super) fn serve<'a, 't>(
    state: &mut RoundState<'a>,
    pass: &mut Option<PlacementPass<'a>>,
    queue: impl Iterator<Item = &'t QueuedWork>,
) {
    for QueuedWork { policy, work } in queue {
        let work_state = &state.work[*work];
        if work_state.missing() == 0 {
            continue;
        }
        let is_fair_share = *policy == Policy::FairShare;
        if is_fair_share
            && pass
                .as_ref()
                .is_some_and(|pass| pass.is_exhausted(work_state))
        {
            continue;
        }
        if work_state.is_excluded() {
            continue;
        }
        let pass = pass.get_or_insert_with(|| PlacementPass::open(state, *work, false));
        match policy {
            Policy::Reserve => {
                let before = state.granted.len();
                whole_nodes::place(state, *work);
                pass.node_index.update(state);
                if let Some(packing) = &mut pass.gpu_packing {
                    for granted in &state.granted[before..] {
                        packing.record_change(granted.node);
                    }
                }
                // The preemptions of this work may free space for work that found only reserved
                // space before.
                pass.reserved_for_others.clear();
            }
            Policy::FixedShare => place_fixed(state, pass, *work),
            Policy::FairShare => {
                let missing = state.work[*work].missing();
                place(state, pass, *work, missing);
            }
        }
    }
}

/// Places up to `missing` processes of fair-share work. Fills one node before the next, and the
/// home pool before the pools below it.
pub(crate) fn place<'a>(
    state: &mut RoundState<'a>,
    pass: &mut PlacementPass<'a>,
    work: WorkIx,
    missing: u64,
) {
    let Some(home) = state.home(work) else { return };
    let mut remaining = missing;
    let forest = state.forest;
    for pool in forest.subtree(home) {
        if remaining == 0 {
            return;
        }
        let goal = PoolGoal {
            work,
            pool: *pool,
            missing: remaining,
            may_join_siblings: true,
        };
        remaining = place_in_pool(state, pass, goal);
    }
    if remaining > 0 {
        pass.mark_exhausted(state, work, home);
    }
}

/// Places fixed-share work, in its home pool only. Prefers nodes without a process of the same
/// service.
fn place_fixed<'a>(state: &mut RoundState<'a>, pass: &mut PlacementPass<'a>, work: WorkIx) {
    let Some(home) = state.home(work) else { return };
    let goal = |missing, may_join_siblings| PoolGoal {
        work,
        pool: home,
        missing,
        may_join_siblings,
    };
    let mut remaining = state.work[work].missing();
    if state.work_record(work).constraints().service.is_some() {
        remaining = place_in_pool(state, pass, goal(remaining, false));
        if state.work[work].process_count() > 0 {
            return;
        }
    }
    place_in_pool(state, pass, goal(remaining, true));
}

/// Processes of one piece of work to place in one pool.
#[derive(Clone, Copy)]
struct PoolGoal {
    work: WorkIx,
    pool: PoolIx,
    /// Number of processes.
    missing: u64,
    /// True if a process may share a node with another of its service.
    may_join_siblings: bool,
}

/// Places up to `missing` processes in one pool. Returns how many remain.
fn place_in_pool<'a>(
    state: &mut RoundState<'a>,
    pass: &mut PlacementPass<'a>,
    goal: PoolGoal,
) -> u64 {
    let PoolGoal {
        work,
        pool,
        missing,
        may_join_siblings,
    } = goal;
    let work_state = &state.work[work];
    let (quanta, shape) = (work_state.process_quanta, work_state.shape);
    let size = state.size(work);
    let is_unconstrained = may_join_siblings && !work_state.is_constrained();
    let has_reservations = work_state.reserved > 0;
    let is_exhausted = |pass: &PlacementPass| {
        pass.exhausted.contains(&(pool, shape))
            || !has_reservations && pass.reserved_for_others.contains(&(pool, shape))
    };
    if missing == 0 || (is_unconstrained && is_exhausted(pass)) {
        return missing;
    }
    if pass.packs_gpus_in(pool) {
        return place_by_gpu_packing(state, pass, goal);
    }
    let mut remaining = missing;
    let mut reserved_for_others = false;
    let mut search = HoleSearch::new(state, &pass.node_index, pool, work);
    while let Some(node) = search.next(&pass.node_index) {
        if !is_usable(state, pass.lends, node) {
            continue;
        }
        let excluded = (!may_join_siblings && has_sibling(state, work, node))
            || state.violates_anti_affinity(work, node);
        let free = &state.nodes[node].free;
        let fitting = free.count_fitting(quanta, size).min(remaining);
        let count = fitting.min(unreserved_processes(state, work, node, fitting));
        reserved_for_others |= count < fitting;
        if excluded || count == 0 {
            continue;
        }
        for _ in 0..count {
            state.grant(work, node, quanta, size);
        }
        pass.update_node(state, node);
        remaining -= count;
        if remaining == 0 {
            return 0;
        }
    }
    if is_unconstrained && !reserved_for_others {
        pass.exhausted.insert((pool, shape));
    } else if is_unconstrained && !has_reservations && size.gpu_milli == 0 {
        // Shapes with GPUs are excluded, because a grant may take other GPUs of a node than those
        // that are reserved.
        pass.reserved_for_others.insert((pool, shape));
    }
    remaining
}

/// Returns how many processes of the work fit into the future space of a node, without the space
/// that is reserved for other work. Returns `fitting` if nothing is reserved for other work.
fn unreserved_processes(state: &RoundState, work: WorkIx, node: NodeIx, fitting: u64) -> u64 {
    let quanta = state.work[work].process_quanta;
    let reservations = &state.nodes[node].reservations;
    if fitting == 0 || !reservations.iter().any(|other| other.work != work) {
        return fitting;
    }
    if state.future_quanta_for(node, Some(work)) < quanta {
        return 0;
    }
    let space = state.future_free_for(node, Some(work));
    space.count_fitting(quanta, state.size(work))
}

/// Does the same as [`place_in_pool`] for pools with GPUs. Places one process after the other, each
/// on the node where it fragments the GPUs least.
fn place_by_gpu_packing<'a>(
    state: &mut RoundState<'a>,
    pass: &mut PlacementPass<'a>,
    goal: PoolGoal,
) -> u64 {
    let PoolGoal {
        work,
        pool,
        missing,
        may_join_siblings,
    } = goal;
    let (quanta, size) = (state.work[work].process_quanta, state.size(work));
    let Some(packing) = pass.gpu_packing.as_mut() else {
        return missing;
    };
    for placed in 0..missing {
        let is_suitable = |node: NodeIx| {
            let node_state = &state.nodes[node];
            let excluded = !may_join_siblings && has_sibling(state, work, node);
            let has_other_reservation = node_state
                .reservations
                .iter()
                .any(|reservation| reservation.work != work);
            let reserved_for_others = || {
                let space = state.future_free_for(node, Some(work));
                space.count_fitting(quanta, size) == 0
            };
            let is_permitted =
                state.admits(work, node) && !state.violates_anti_affinity(work, node);
            !excluded && is_permitted && !(has_other_reservation && reserved_for_others())
        };
        let Some(node) = packing.best_node(state, work, pool, is_suitable) else {
            if packing.is_full(state, work, pool) {
                pass.exhausted.insert((pool, state.work[work].shape));
            }
            return missing - placed;
        };
        state.grant(work, node, quanta, size);
        packing.record_change(node);
        pass.node_index.update_one(state, node);
    }
    0
}

/// Returns true if the node has a process of the same service, or got one in this round.
fn has_sibling(state: &RoundState, work: WorkIx, node: NodeIx) -> bool {
    let node_state = &state.nodes[node];
    let Some(service) = &state.work_record(work).constraints().service else {
        return false;
    };
    let is_sibling = |grant: &usize| {
        let work = state.granted[*grant].work;
        state.work_record(work).constraints().service.as_ref() == Some(service)
    };
    state.node_record(node).services.contains(service) || node_state.granted.iter().any(is_sibling)
}
