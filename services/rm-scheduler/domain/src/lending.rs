//! Idle room that is due to nobody is lent.

mod candidates;

use crate::{
    placement::{attempt::place, pass::PlacementPass},
    state::RoundState,
};
use candidates::borrowing;

/// Room that no count claims is lent to whoever can use it: an idle node helps nobody, and it is
/// taken back as soon as somebody due can stand there. Nodes whose room is spoken for are left out.
pub(crate) fn lend_idle(state: &mut RoundState, tree: usize) {
    let mut pass: Option<PlacementPass> = None;
    let mut borrowing = borrowing(state, tree);
    loop {
        let is_in_vain = |at| {
            let pass = pass.as_ref();
            pass.is_some_and(|pass| pass.is_exhausted(&state.work[at]))
        };
        let Some(at) = borrowing.next(state, is_in_vain) else {
            break;
        };
        let work = &state.work[at];
        let more = work.cap.now.saturating_sub(work.has());
        if more > 0 && !state.work_record(at).completing {
            let pass = pass.get_or_insert_with(|| PlacementPass::open(state, at, true));
            place(state, pass, at, more);
        }
    }
    borrowing.close(state);
    if let Some(pass) = pass {
        pass.close(state);
    }
}
