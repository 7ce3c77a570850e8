//! Unsettled work, which waits or is refused. Its verdict can depend on anything, so it is checked
//! in every round in which its tree is not idle.

use std::collections::BTreeMap;

use super::ChangedWork;
use crate::{
    explanation::{
        unblock::NearestNode,
        verdict::{VerdictBuilder, is_unsettled},
    },
    ids::{PoolIx, ShapeIx, WorkIx},
    input::snapshot::Policy,
    output::plan::Reason,
    state::RoundState,
};

/// Unsettled work by tree.
#[derive(Default)]
pub(super) struct Unsettled(BTreeMap<Option<PoolIx>, Vec<Work>>);

struct Work {
    work: WorkIx,
    /// Basis of the verdict. `None` if the verdict depends on more than a basis.
    rests_on: Option<Basis>,
}

/// Inputs of the verdict on ordinary waiting work. Its row and the inputs that are the same for all
/// work are not included.
struct Basis {
    shape: ShapeIx,
    wait: Option<Reason>,
    near: Option<NearestNode>,
}

impl Unsettled {
    /// Removes and returns work whose verdict may have changed, with the reason why it waits. Also
    /// removes dirty work, without returning it.
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
                let stays = it.is_reported_the_same(state, wait, builder);
                if !stays {
                    all.push(ChangedWork {
                        work: it.work,
                        wait,
                    });
                }
                stays
            });
        }
        all
    }

    /// Adds work that this round reports, if it is unsettled.
    pub fn note(
        &mut self,
        state: &RoundState,
        work: WorkIx,
        wait: Option<Reason>,
        builder: &mut VerdictBuilder,
    ) {
        if !is_unsettled(state, work, wait) {
            return;
        }
        let tree = state.tree_of(work);
        let listed = self.0.entry(tree).or_default();
        if rests(state, tree) {
            // [`Self::moved`] skipped this tree, so the work may still be in the list.
            listed.retain(|it| it.work != work);
        }
        let rests_on = basis(state, work, wait, builder);
        listed.push(Work { work, rests_on });
    }
}

impl Work {
    /// Returns whether the verdict on this work is unchanged. The work must not be dirty.
    fn is_reported_the_same(
        &self,
        state: &RoundState,
        wait: Option<Reason>,
        builder: &mut VerdictBuilder,
    ) -> bool {
        let Some(basis) = &self.rests_on else {
            return false;
        };
        let explainer = &mut builder.explainer;
        let mut near = || explainer.nearest_to_shape(state, self.work, basis.shape);
        basis.wait == wait
            && !state.index.nodes_changed
            && state.find_budget_stop(self.work).is_none()
            && NearestNode::differ_nowhere(basis.near.as_ref(), near().as_ref())
    }
}

fn basis(
    state: &RoundState,
    work: WorkIx,
    wait: Option<Reason>,
    builder: &mut VerdictBuilder,
) -> Option<Basis> {
    let work_state = &state.work[work];
    let is_plain = state.policy(work) == Some(Policy::FairShare)
        && !state.work_record(work).is_constrained()
        && state.find_budget_stop(work).is_none();
    // The verdict on work that can never start also names amounts, so it depends on more than a
    // basis.
    let has_host = work_state.reach > 0 && wait != Some(Reason::NoHostLargeEnough);
    let shape = work_state.shape;
    (is_plain && has_host).then(|| Basis {
        shape,
        wait,
        near: builder.explainer.nearest_to_shape(state, work, shape),
    })
}

fn rests(state: &RoundState, tree: Option<PoolIx>) -> bool {
    tree.is_some_and(|tree| state.outcomes[tree].is_reused)
}
