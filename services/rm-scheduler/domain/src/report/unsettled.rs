//! Work of which something is said in every round in which its tree does not rest: it waits or is
//! refused, as that can depend on anything.

use std::collections::BTreeMap;

use super::Moved;
use crate::{
    explanation::{
        unblock::Near,
        verdict::{Finder, is_unsettled},
    },
    input::snapshot::Policy,
    output::plan::Reason,
    state::Books,
};

/// By tree.
#[derive(Default)]
pub(super) struct Unsettled(BTreeMap<Option<usize>, Vec<Work>>);

struct Work {
    at: usize,
    /// Absent where it depends on more than that.
    rests_on: Option<Basis>,
}

/// What is said of work that waits rests on this beside its row and what is the same for all.
struct Basis {
    shape: usize,
    wait: Option<Reason>,
    near: Option<Near>,
}

impl Unsettled {
    /// Takes out who may have to be told something else, with what it waits for. Who is stirred is
    /// taken out as well.
    pub fn moved(&mut self, books: &Books, finder: &mut Finder) -> Vec<Moved> {
        let mut all = Vec::new();
        for (tree, work) in &mut self.0 {
            if rests(books, *tree) {
                continue;
            }
            work.retain(|it| {
                if books.requests.is_stirred(it.at) {
                    return false;
                }
                let wait = books.wait_of(it.at);
                let stays = it.is_told_the_same(books, wait, finder);
                if !stays {
                    all.push((it.at, wait));
                }
                stays
            });
        }
        all
    }

    /// Notes work that was told of in this round.
    pub fn note(&mut self, books: &Books, moved: Moved, finder: &mut Finder) {
        if !is_unsettled(books, moved) {
            return;
        }
        let (at, tree) = (moved.0, books.tree_of(moved.0));
        let work = self.0.entry(tree).or_default();
        if rests(books, tree) {
            // Nobody was taken out there, and hardly anybody comes.
            work.retain(|it| it.at != at);
        }
        let rests_on = basis(books, moved, finder);
        work.push(Work { at, rests_on });
    }
}

impl Work {
    /// Is it told the same as before? It is not stirred.
    fn is_told_the_same(&self, books: &Books, wait: Option<Reason>, finder: &mut Finder) -> bool {
        let Some(basis) = &self.rests_on else {
            return false;
        };
        let at_shape = (self.at, basis.shape);
        let mut near = || finder.explainer.nearest_to_shape(books, at_shape);
        basis.wait == wait
            && !books.register.nodes_moved
            && books.brake_on(self.at).is_none()
            && Near::are_told_the_same(basis.near.as_ref(), near().as_ref())
    }
}

fn basis(books: &Books, (at, wait): Moved, finder: &mut Finder) -> Option<Basis> {
    let request = &books.requests[at];
    let is_plain = books.policy(at) == Some(Policy::FairShare)
        && !books.demand(at).is_picky()
        && books.brake_on(at).is_none();
    // What keeps it out for good is said with its numbers.
    let has_host = request.reach > 0 && wait != Some(Reason::NoHostLargeEnough);
    let shape = request.shape;
    (is_plain && has_host).then(|| Basis {
        shape,
        wait,
        near: finder.explainer.nearest_to_shape(books, (at, shape)),
    })
}

fn rests(books: &Books, tree: Option<usize>) -> bool {
    tree.is_some_and(|tree| books.outcomes[tree].is_kept)
}
