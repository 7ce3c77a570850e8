//! Unsettled work: work that waits or is refused. The verdict on such work can change without a
//! change of the work itself. It is checked in every round in which its tree is not idle.

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

/// Unsettled work by tree of pools. The tree is `None` for work without a pool.
#[derive(Default)]
pub(super) struct Unsettled(BTreeMap<Option<PoolIx>, Vec<UnsettledWork>>);

struct UnsettledWork {
    work: WorkIx,
    /// Inputs of the verdict. `None` if the verdict depends on more than a [`Basis`] holds.
    basis: Option<Basis>,
}

/// Inputs of the verdict on ordinary waiting work, without its row and without inputs that are the
/// same for all work.
struct Basis {
    shape: ShapeIx,
    /// Reason of the wait. `None` if no step of the round set one.
    wait: Option<Reason>,
    nearest: Option<NearestNode>,
}

impl Unsettled {
    /// Removes and returns work whose verdict may have changed, with the reason why it waits. Also
    /// removes dirty work, without returning it.
    pub fn take_changed(
        &mut self,
        state: &RoundState,
        builder: &mut VerdictBuilder,
    ) -> Vec<ChangedWork> {
        let mut changed = Vec::new();
        for (tree, work) in &mut self.0 {
            if is_idle_tree(state, *tree) {
                continue;
            }
            work.retain(|unsettled| {
                if state.work.is_dirty(unsettled.work) {
                    return false;
                }
                let wait = state.wait_reason(unsettled.work);
                let is_unchanged = unsettled.has_same_verdict(state, wait, builder);
                if !is_unchanged {
                    changed.push(ChangedWork {
                        work: unsettled.work,
                        wait,
                    });
                }
                is_unchanged
            });
        }
        changed
    }

    /// Adds work that this round reports, if it is unsettled.
    pub fn add(
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
        if is_idle_tree(state, tree) {
            // [`Self::take_changed`] skipped this tree, so the work may still be in the list.
            listed.retain(|unsettled| unsettled.work != work);
        }
        let basis = basis_for(state, work, wait, builder);
        listed.push(UnsettledWork { work, basis });
    }
}

impl UnsettledWork {
    /// Returns whether the verdict on this work is unchanged. The work must not be dirty.
    fn has_same_verdict(
        &self,
        state: &RoundState,
        wait: Option<Reason>,
        builder: &mut VerdictBuilder,
    ) -> bool {
        let Some(basis) = &self.basis else {
            return false;
        };
        let unblock_finder = &mut builder.unblock_finder;
        let mut nearest = || unblock_finder.nearest_for_shape(state, self.work, basis.shape);
        basis.wait == wait
            && !state.index.nodes_changed
            && state.find_budget_stop(self.work).is_none()
            && NearestNode::give_same_verdict(basis.nearest.as_ref(), nearest().as_ref())
    }
}

/// Returns the inputs of the verdict, if the work is ordinary waiting work.
fn basis_for(
    state: &RoundState,
    work: WorkIx,
    wait: Option<Reason>,
    builder: &mut VerdictBuilder,
) -> Option<Basis> {
    let work_state = &state.work[work];
    let is_ordinary = state.policy(work) == Some(Policy::FairShare)
        && !state.work_record(work).is_constrained()
        && state.find_budget_stop(work).is_none();
    // The verdict on work that can never start also names amounts, which a basis does not hold.
    let has_host = work_state.reach > 0 && wait != Some(Reason::NoHostLargeEnough);
    let shape = work_state.shape;
    (is_ordinary && has_host).then(|| Basis {
        shape,
        wait,
        nearest: builder.unblock_finder.nearest_for_shape(state, work, shape),
    })
}

fn is_idle_tree(state: &RoundState, tree: Option<PoolIx>) -> bool {
    tree.is_some_and(|tree| state.outcomes[tree].is_reused)
}
