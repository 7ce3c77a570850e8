//! Decisions about pools with an external planner, a program that plans a pool over HTTP.
//! [`PlannerRequest`] is the request to this program, [`parse_response`] parses the response, and
//! [`plan`] turns the response into grants and vacates.
//!
//! This crate does no I/O. A response is part of the snapshot, so rounds can be replayed without
//! the program. Each step of a response is verified on its own against the newest snapshot. An
//! invalid step is refused with a reason from a closed list. The accepted steps must pass `check`
//! together with everything else that is planned.
//!
//! Forced vacates (withdrawn work, lost nodes, evacuations) do not depend on the program. Without a
//! response no process is granted.

mod external_pool_trees;
mod forced_vacates;
mod pool_view;
mod preemption_budget;
mod recent_preemptions;
mod request;
mod response;
mod verify_steps;
mod work_verdicts;

use hayward_rm_scheduler_domain::{Plan, Snapshot, plan::external_planner_effects::ResponseEffect};

pub use external_pool_trees::ExternalPoolTrees;
pub use request::{
    PlannerRequest, RequestAllocation, RequestClass, RequestNode, RequestWork, has_missing_work,
    relevant_notes,
};
pub use response::{FORMAT, MAX_BYTES, MAX_STEPS, ResponseFault, clip, parse_response};

use pool_view::PoolView;
use work_verdicts::PlannerState;

/// Adds the decisions about externally planned pools to `plan`, which has the decisions about all
/// other pools.
pub fn plan(snapshot: &Snapshot, plan: &mut Plan) {
    if snapshot.external_planners.is_empty() {
        return;
    }
    let trees = ExternalPoolTrees::new(snapshot);
    for (top, state) in &snapshot.external_planners {
        // 1. Read the pool: work and allocations.
        let mut view = PoolView::new(snapshot, &trees, top);
        // 2. Forced vacates.
        let forced = forced_vacates::forced_vacates(&view);
        view.count_vacates(&forced);
        // 3. Apply the accepted steps of a response that no round has used yet.
        let last_used = snapshot.carried.used_responses.get(top).copied();
        let response = state.response.as_ref();
        let response = response.filter(|it| last_used.is_none_or(|used| it.number > used));
        let outcome: Option<ResponseEffect> =
            verify_steps::apply(&mut view, forced, response, plan);
        // 4. Verdicts.
        let notes = outcome.as_ref().map(|it| &it.result);
        let planner = PlannerState {
            no_response_reason: state.no_response_reason.as_deref(),
            notes: notes.or(state.last_result.as_ref()),
        };
        plan.verdicts
            .extend(work_verdicts::pool_verdicts(&view, planner));
        // A response is used once, even if all its steps are refused.
        let used = outcome.as_ref().map(|it| it.number).or(last_used);
        if let Some(used) = used {
            plan.carried.used_responses.insert(top.clone(), used);
        }
        if !view.preemptions.is_empty() {
            plan.carried
                .recent_preemptions
                .insert(top.clone(), view.preemptions);
        }
        if let Some(outcome) = outcome {
            plan.external_planners.insert(top.clone(), outcome);
        }
    }
    plan.vacates.sort_by(|a, b| a.allocation.cmp(&b.allocation));
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod scenario_tests;
