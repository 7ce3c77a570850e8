//! One attempt at placing work, in the order given.

use super::{
    by_free_space::Search,
    pass::{PlacementPass, is_usable},
};
use crate::{entitlement::whole_nodes, input::snapshot::Policy, state::RoundState};

/// Processes for which memory is asked for at once, at most.
const RESERVED_AT_ONCE: u64 = 1 << 20;

pub(super) fn place_in_order(state: &mut RoundState, queue: &[(Policy, usize)]) {
    reserve_memory(state, queue);
    let mut pass = None;
    serve(state, &mut pass, queue.iter());
    if let Some(pass) = pass {
        pass.close(state);
    }
}

/// For all that could be granted to these: grown bit by bit, it would be copied as often.
pub(super) fn reserve_memory(state: &mut RoundState, queue: &[(Policy, usize)]) {
    let missing = queue.iter().map(|(_, at)| state.work[*at].missing());
    let missing = missing.fold(0, u64::saturating_add).min(RESERVED_AT_ONCE);
    state.granted.reserve(usize::try_from(missing).unwrap_or(0));
}

/// In this order. The walk is opened for the first who lacks anything.
pub(super) fn serve<'a, 't>(
    state: &mut RoundState<'a>,
    pass: &mut Option<PlacementPass<'a>>,
    queue: impl Iterator<Item = &'t (Policy, usize)>,
) {
    for (policy, at) in queue {
        let work = &state.work[*at];
        if work.missing() == 0 {
            continue;
        }
        let fair = *policy == Policy::FairShare;
        if fair && pass.as_ref().is_some_and(|pass| pass.is_exhausted(work)) {
            continue;
        }
        if work.is_excluded() {
            continue;
        }
        let pass = pass.get_or_insert_with(|| PlacementPass::open(state, *at, false));
        match policy {
            Policy::Reserve => {
                let before = state.granted.len();
                whole_nodes::place(state, *at);
                pass.node_index.update(state);
                if let Some(packing) = &mut pass.gpu_packing {
                    for granted in &state.granted[before..] {
                        packing.changed(granted.node);
                    }
                }
                // What it sends away may leave room to others than those it is meant for.
                pass.reserved_for_others.clear();
            }
            Policy::FixedShare => place_fixed(state, pass, *at),
            Policy::FairShare => {
                let missing = state.work[*at].missing();
                place(state, pass, *at, missing);
            }
        }
    }
}

/// one work fills a node before it moves on, home before the pools below.
pub(crate) fn place<'a>(
    state: &mut RoundState<'a>,
    pass: &mut PlacementPass<'a>,
    at: usize,
    missing: u64,
) {
    let Some(home) = state.home(at) else { return };
    let mut left = missing;
    let forest = state.forest;
    for pool in forest.subtree(home) {
        if left == 0 {
            return;
        }
        left = place_in(state, pass, (at, *pool), left, true);
    }
    if left > 0 {
        pass.note_exhausted(state, at, home);
    }
}

/// home pool only; first where no instance of the same service is, then anywhere [C-10].
fn place_fixed<'a>(state: &mut RoundState<'a>, pass: &mut PlacementPass<'a>, at: usize) {
    let Some(home) = state.home(at) else { return };
    let mut left = state.work[at].missing();
    if state.work_record(at).constraints().service.is_some() {
        left = place_in(state, pass, (at, home), left, false);
        if state.work[at].has() > 0 {
            return;
        }
    }
    place_in(state, pass, (at, home), left, true);
}

/// Places up to `need` processes in one pool; returns how many are left. Unless `beside` says so,
/// never next to an instance of the same service.
fn place_in<'a>(
    state: &mut RoundState<'a>,
    pass: &mut PlacementPass<'a>,
    (at, pool): (usize, usize),
    missing: u64,
    next_to_siblings: bool,
) -> u64 {
    let work = &state.work[at];
    let (quanta, size, shape) = (work.process_quanta, state.size(at), work.shape);
    let (anywhere, is_apart) = (
        next_to_siblings && !work.is_constrained(),
        work.has_anti_affinity,
    );
    let is_meant = work.reserved > 0;
    let in_vain = |pass: &PlacementPass| {
        pass.exhausted.contains(&(pool, shape))
            || !is_meant && pass.reserved_for_others.contains(&(pool, shape))
    };
    if missing == 0 || (anywhere && in_vain(pass)) {
        return missing;
    }
    if pass.gpu_packing.as_ref().is_some_and(|it| it.covers(pool)) {
        return place_packed(state, pass, (at, pool), missing, next_to_siblings);
    }
    let mut left = missing;
    let mut kept_for_others = false;
    let mut search = Search::of(state, &pass.node_index, pool, at);
    while let Some(node) = search.next(&pass.node_index) {
        if !is_usable(state, pass.lends, node) {
            continue;
        }
        let node_state = &state.nodes[node];
        let shunned = (!next_to_siblings && has_sibling(state, at, node))
            || is_apart && state.violates_anti_affinity(at, node);
        let mut count = node_state.free.fitting(quanta, size).min(left);
        if count > 0
            && node_state
                .reservations
                .iter()
                .any(|reservation| reservation.work != at)
        {
            // What is leaving here is meant for others, who may find it where this one does not.
            let unmeant = if state.future_quanta_for(node, Some(at)) < quanta {
                0
            } else {
                let space = state.future_free_for(node, Some(at));
                space.fitting(quanta, size)
            };
            kept_for_others |= unmeant < count;
            count = count.min(unmeant);
        }
        if shunned || count == 0 {
            continue;
        }
        for _ in 0..count {
            state.grant(at, node, quanta, size);
        }
        pass.node_changed(state, node);
        left -= count;
        if left == 0 {
            return 0;
        }
    }
    if anywhere && !kept_for_others {
        pass.exhausted.insert((pool, shape));
    } else if anywhere && !is_meant && size.gpu_milli == 0 {
        // Which gpus a grant takes can differ from those that were meant; sums cannot.
        pass.reserved_for_others.insert((pool, shape));
    }
    left
}

/// As [`place_in`] where gpus are in play: one process after the other, each on the node where what
/// then stays free is of most use.
fn place_packed<'a>(
    state: &mut RoundState<'a>,
    pass: &mut PlacementPass<'a>,
    (at, pool): (usize, usize),
    missing: u64,
    next_to_siblings: bool,
) -> u64 {
    let (quanta, size) = (state.work[at].process_quanta, state.size(at));
    let Some(packing) = pass.gpu_packing.as_mut() else {
        return missing;
    };
    for placed in 0..missing {
        let suits = |node: usize| {
            let node_state = &state.nodes[node];
            let shunned = !next_to_siblings && has_sibling(state, at, node);
            let reservation = node_state
                .reservations
                .iter()
                .any(|reservation| reservation.work != at);
            let kept_for_others = || {
                let space = state.future_free_for(node, Some(at));
                space.fitting(quanta, size) == 0
            };
            let may = state.admits(at, node) && !state.violates_anti_affinity(at, node);
            !shunned && may && !(reservation && kept_for_others())
        };
        let Some(node) = packing.best(state, (at, pool), suits) else {
            if packing.is_full(state, (at, pool)) {
                pass.exhausted.insert((pool, state.work[at].shape));
            }
            return missing - placed;
        };
        state.grant(at, node, quanta, size);
        packing.changed(node);
        pass.node_index.update_one(state, node);
    }
    0
}

/// Is an instance of the same service there, or placed there in this round?
fn has_sibling(state: &RoundState, at: usize, node: usize) -> bool {
    let node_state = &state.nodes[node];
    let Some(service) = &state.work_record(at).constraints().service else {
        return false;
    };
    let is_sibling = |grant: &usize| {
        let work = state.granted[*grant].work;
        state.work_record(work).constraints().service.as_ref() == Some(service)
    };
    state.node_record(node).services.contains(service) || node_state.granted.iter().any(is_sibling)
}
