//! Step 8: lends idle space beyond entitlements.
//!
//! Input: the free space that is left after placement, preemption and defragmentation.
//! Output: more grants, for fair-share work that can use more processes than its entitlement.
//!
//! Lent space is vacated as soon as entitled work fits there. Nodes with reservations lend no
//! space. Work is served in serve order. Work of one shape (equal size and rules) is skipped once
//! no node fits that shape.

mod candidates;

use crate::{
    ids::PoolIx,
    placement::{attempt::place, pass::PlacementPass},
    state::RoundState,
};
use candidates::collect_candidates;

/// Grants the idle space of one tree.
pub(crate) fn lend_idle(state: &mut RoundState, tree: PoolIx) {
    if !state.settings.lend_idle {
        return;
    }
    let mut pass: Option<PlacementPass> = None;
    let mut candidates = collect_candidates(state, tree);
    loop {
        let is_exhausted = |work| {
            let pass = pass.as_ref();
            pass.is_some_and(|pass| pass.is_exhausted(&state.work[work]))
        };
        let Some(work) = candidates.next(state, is_exhausted) else {
            break;
        };
        let work_state = &state.work[work];
        let wanted = work_state
            .cap
            .lent
            .saturating_sub(work_state.process_count());
        if wanted > 0 && !state.work_record(work).completing {
            let pass = pass.get_or_insert_with(|| PlacementPass::open(state, work, true));
            place(state, pass, work, wanted);
        }
    }
    candidates.close(state);
    if let Some(pass) = pass {
        pass.close(state);
    }
}
