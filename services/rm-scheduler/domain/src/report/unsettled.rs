//! Work of which something is said in every round in which its tree does not rest: it waits or is
//! refused, as that can depend on anything.

use std::collections::BTreeMap;

use super::ChangedWork;
use crate::{
    explanation::{
        unblock::NearestNode,
        verdict::{VerdictBuilder, is_unsettled},
    },
    input::snapshot::Policy,
    output::plan::Reason,
    state::RoundState,
};

/// By tree.
#[derive(Default)]
pub(super) struct Unsettled(BTreeMap<Option<usize>, Vec<Work>>);

struct Work {
    work: usize,
    /// Absent where it depends on more than that.
    rests_on: Option<Basis>,
}

/// What is said of work that waits rests on this beside its row and what is the same for all.
struct Basis {
    shape: usize,
    wait: Option<Reason>,
    near: Option<NearestNode>,
}

impl Unsettled {
    /// Takes out who may have to be told something else, with what it waits for. Who is stirred is
    /// taken out as well.
    pub fn moved(&mut self, state: &RoundState, builder: &mut VerdictBuilder) -> Vec<ChangedWork> {
        let mut all = Vec::new();
        for (tree, work) in &mut self.0 {
            if rests(state, *tree) {
                continue;
            }
            work.retain(|it| {
                if state.work.is_dirty(it.work) {
                    return false;
                }
                let wait = state.wait_reason(it.work);
                let stays = it.is_told_the_same(state, wait, builder);
                if !stays {
                    all.push((it.work, wait));
                }
                stays
            });
        }
        all
    }

    /// Notes work that was told of in this round.
    pub fn note(&mut self, state: &RoundState, moved: ChangedWork, builder: &mut VerdictBuilder) {
        if !is_unsettled(state, moved) {
            return;
        }
        let (at, tree) = (moved.0, state.tree_of(moved.0));
        let work = self.0.entry(tree).or_default();
        if rests(state, tree) {
            // Nobody was taken out there, and hardly anybody comes.
            work.retain(|it| it.work != at);
        }
        let rests_on = basis(state, moved, builder);
        work.push(Work { work: at, rests_on });
    }
}

impl Work {
    /// Is it told the same as before? It is not stirred.
    fn is_told_the_same(
        &self,
        state: &RoundState,
        wait: Option<Reason>,
        builder: &mut VerdictBuilder,
    ) -> bool {
        let Some(basis) = &self.rests_on else {
            return false;
        };
        let at_shape = (self.work, basis.shape);
        let mut near = || builder.explainer.nearest_to_shape(state, at_shape);
        basis.wait == wait
            && !state.index.nodes_changed
            && state.budget_stop_of(self.work).is_none()
            && NearestNode::differ_nowhere(basis.near.as_ref(), near().as_ref())
    }
}

fn basis(
    state: &RoundState,
    (at, wait): ChangedWork,
    builder: &mut VerdictBuilder,
) -> Option<Basis> {
    let work = &state.work[at];
    let is_plain = state.policy(at) == Some(Policy::FairShare)
        && !state.work_record(at).is_constrained()
        && state.budget_stop_of(at).is_none();
    // What keeps it out for good is said with its numbers.
    let has_host = work.reach > 0 && wait != Some(Reason::NoHostLargeEnough);
    let shape = work.shape;
    (is_plain && has_host).then(|| Basis {
        shape,
        wait,
        near: builder.explainer.nearest_to_shape(state, (at, shape)),
    })
}

fn rests(state: &RoundState, tree: Option<usize>) -> bool {
    tree.is_some_and(|tree| state.outcomes[tree].is_reused)
}
