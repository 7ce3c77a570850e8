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
    explanation::unblock::Explainer, input::snapshot::Policy, output::plan::Reason, state::Books,
};
use attempt::{reserve_memory, serve};
use serve_order::{all_in_turn, lacking_in_turn};

pub(crate) use by_free_space::FreeNodes;
pub(crate) use node_index::Rooms;

/// for one tree. Returns who lacks something or has more than it may, in turn, as
/// it is then.
pub(crate) fn place_counted(books: &mut Books, tree: usize) -> Vec<(Policy, usize)> {
    let placed_before = books.pending.len();
    let told_before = books.vacates.len();
    let lacking = lacking_in_turn(books, tree);
    let turns = &*in_need(books, tree, &lacking);
    let was_needy = books.was_needy.numbers.clone();
    let was_needy = |turn: &&(Policy, usize)| was_needy.contains(turn.1);
    reserve_memory(books, turns);
    let mut walk = None;
    serve(books, &mut walk, turns.iter().filter(was_needy));
    // What was in vain is so still.
    serve(books, &mut walk, turns.iter());
    if let Some(walk) = walk {
        walk.close(books);
    }
    if books.settings.pack {
        // Who was needy was served first.
        let in_turn = || {
            !turns
                .iter()
                .skip_while(was_needy)
                .any(|turn| was_needy(&turn))
        };
        repack::improve(books, turns, placed_before, in_turn);
    }
    let mut explainer = Explainer::default();
    for (_, at) in turns {
        if let Some(reason) = why_nothing(books, *at, &mut explainer) {
            books.note_wait(*at, reason);
        }
    }
    // Who is given something does not come to lack anything by that.
    if books.vacates.len() > told_before {
        return lacking_in_turn(books, tree);
    }
    debug_assert!(lacking == lacking_in_turn(books, tree));
    lacking
}

/// Those whose turns can change anything: they lack something, or have nothing and are told why. A
/// reservation can take something from anybody, so where one is to be placed all may come to lack
/// something.
fn in_need<'l>(
    books: &Books,
    tree: usize,
    lacking: &'l [(Policy, usize)],
) -> Cow<'l, [(Policy, usize)]> {
    let is_missing = |at: usize| books.requests[at].missing() > 0;
    let is_whole = |(policy, at): &(Policy, usize)| *policy == Policy::Reserve && is_missing(*at);
    if lacking.iter().any(is_whole) {
        return Cow::Owned(all_in_turn(books, tree));
    }
    let needs = |(_, at): &(Policy, usize)| is_missing(*at) || books.requests[*at].has() == 0;
    // Mostly all do.
    if lacking.iter().all(needs) {
        return Cow::Borrowed(lacking);
    }
    Cow::Owned(lacking.iter().copied().filter(needs).collect())
}

/// why it has no process after its turn.
fn why_nothing(books: &Books, at: usize, explainer: &mut Explainer) -> Option<Reason> {
    let request = &books.requests[at];
    if request.has() > 0 || request.is_out() || request.cap.now == 0 && request.reach > 0 {
        return None;
    }
    if let Some(reason) = explainer.never(books, at) {
        let fair = books.policy(at) == Some(Policy::FairShare);
        if fair || reason == Reason::NoListedMachine {
            return Some(reason);
        }
    }
    Some(match request.counted {
        0 => Reason::ZeroShare,
        _ if books.is_kept_from_room(at) => Reason::KeptApart,
        _ => Reason::WaitingForPreemption,
    })
}
