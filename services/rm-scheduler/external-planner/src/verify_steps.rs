//! Verification of the steps of a response, one by one against the newest snapshot. An invalid step
//! is refused alone.
//!
//! This module checks only what `check` cannot know: the planner of the work, its missing
//! processes, and which space serves which work. `check` enforces all rules about nodes, classes
//! and users. It verifies the accepted steps together with everything else that is planned.

mod beneficiaries;
mod final_check;
mod grants;
mod vacates;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Plan,
    plan::{
        Grant, Receipt, Vacate,
        external_planner_effects::{Refusal, Refused, ResponseEffect},
    },
    snapshot::external_planners::{PlannerResponse, ResponseResult},
};
use hayward_vocabulary::WorkId;

use crate::{pool_view::PoolView, recent_preemptions, response::clip};

/// Maximum number of refusals reported per response. Further refusals are only counted.
const MAX_REFUSALS: usize = 100;
/// Maximum number of characters of a reported name.
const MAX_NAME: usize = 100;

/// Accepted and refused steps of a response.
#[derive(Default)]
pub(super) struct Steps {
    grants: Vec<AcceptedGrant>,
    vacates: Vec<AcceptedVacate>,
    /// Beneficiaries of vacates, with one entry per process.
    served: Vec<WorkId>,
    /// Reported refusals, at most [`MAX_REFUSALS`].
    refused: Vec<Refused>,
    /// Number of all refusals.
    refusals: u64,
    /// Text of the first refusal by work.
    first_refusals: BTreeMap<WorkId, String>,
}

struct AcceptedGrant {
    /// Position in the response.
    position: usize,
    grant: Grant,
}

#[derive(Clone)]
struct AcceptedVacate {
    /// Position in the response.
    position: usize,
    vacate: Vacate,
    receipt: Receipt,
}

/// Reason and text of a refused step.
struct RefusalDetail {
    reason: Refusal,
    detail: String,
}

impl RefusalDetail {
    fn new(reason: Refusal, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }
}

/// Position and names of a step, for the report of its refusal.
struct Step<'a> {
    /// JSON pointer to the step in the response.
    pointer: String,
    /// Work of a grant, or allocation of a vacate.
    subject: &'a str,
    node: Option<&'a str>,
}

impl Steps {
    fn refuse(&mut self, step: &Step, refusal: RefusalDetail) {
        self.refusals += 1;
        if self.refused.len() < MAX_REFUSALS {
            self.refused.push(Refused {
                pointer: step.pointer.clone(),
                name: clip(step.subject, MAX_NAME),
                node: step.node.map(|node| clip(node, MAX_NAME)),
                reason: refusal.reason,
                detail: refusal.detail,
            });
        }
    }

    /// Refuses a step about this work. The first refusal appears in the verdict of the work.
    fn refuse_for(&mut self, work: &WorkId, step: &Step, refusal: RefusalDetail) {
        if !self.first_refusals.contains_key(work) {
            let detail = refusal.detail.clone();
            self.first_refusals.insert(work.clone(), detail);
        }
        self.refuse(step, refusal);
    }
}

/// Adds the forced vacates and the accepted steps of a new response to the plan.
pub(crate) fn apply(
    view: &mut PoolView,
    forced: Vec<Vacate>,
    response: Option<&PlannerResponse>,
    plan: &mut Plan,
) -> Option<ResponseEffect> {
    let mut steps = Steps::default();
    if let Some(response) = response {
        // Work that gets its processes by grants needs no vacates.
        grants::verify(view, response, plan, &mut steps);
        vacates::verify(view, response, &forced, plan, &mut steps);
    }
    final_check::add_to_plan(view, forced, &mut steps, plan);
    let response = response?;
    record_accepted_steps(view, &steps);
    let notes = view.work.iter().filter_map(|(work, item)| {
        let note = response.notes.get(work.as_str());
        let note = note.filter(|_| item.missing() > 0)?;
        Some(((*work).clone(), note.clone()))
    });
    let notes = notes.collect();
    let lacks_process = |work: &WorkId| view.work.get(work).is_some_and(|it| it.missing() > 0);
    steps.first_refusals.retain(|work, _| lacks_process(work));
    Some(ResponseEffect {
        number: response.number,
        granted: steps.grants.len() as u64,
        vacated: steps.vacates.len() as u64,
        refused: steps.refused,
        refusals: steps.refusals,
        result: ResponseResult {
            notes,
            refused: steps.first_refusals,
        },
    })
}

/// Records the accepted steps for later responses.
fn record_accepted_steps(view: &mut PoolView, steps: &Steps) {
    let now = view.snapshot.now;
    for accepted in &steps.grants {
        recent_preemptions::record_grant(&mut view.preemptions, &accepted.grant);
    }
    let mut beneficiaries = BTreeSet::new();
    for accepted in &steps.vacates {
        recent_preemptions::record_preemption(&mut view.preemptions, &accepted.receipt, now);
        beneficiaries.extend(&accepted.receipt.beneficiary);
    }
    let served = steps.served.iter();
    for work in served.filter(|work| beneficiaries.contains(*work)) {
        recent_preemptions::record_freed_space(&mut view.preemptions, work, now);
    }
}
