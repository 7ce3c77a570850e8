//! Converts the state of external planners to the response of `GET /v1/planners`.

use hayward_publication::Moment;
use hayward_rm_scheduler_api::planners::{
    ExternalPlanner, PlannerAnswer, PlannerFailure, PlannerKind, Planners, PoolPlanning,
    RefusedStep, StepRefusal,
};
use hayward_rm_scheduler_domain::plan::external_planner_effects::{
    Refusal, Refused, ResponseEffect,
};

use crate::working_set::Ledger;
use crate::working_set::external_planners::{LastResponse, PlannerState};

/// Returns which planner plans each pool without parent, with the state of external planners.
pub fn list_planners(ledger: &Ledger, moment: &Moment) -> Planners {
    let snapshot = &*ledger.snapshot;
    let roots = snapshot.pools.iter().filter(|(_, it)| it.parent.is_none());
    let pools = roots.map(|(pool, _)| {
        let state = ledger.external_planners.by_pool.get(pool);
        let kind = if state.is_some() {
            PlannerKind::Http
        } else if snapshot.queues.contains_key(pool) {
            PlannerKind::Capacity
        } else {
            PlannerKind::FairShare
        };
        PoolPlanning {
            pool: pool.clone(),
            kind,
            outside: state.map(|state| to_external_planner(state, moment)),
        }
    });
    Planners {
        round: snapshot.round,
        at: moment.now,
        pools: pools.collect(),
    }
}

fn to_external_planner(state: &PlannerState, moment: &Moment) -> ExternalPlanner {
    // Converts a monotonic time. A time in the past becomes the present.
    let wall_time = |at: u64| moment.now.plus_ms(at.saturating_sub(moment.monotonic_ms));
    let asking = state.open_request.is_some();
    ExternalPlanner {
        url: state.planner.url.clone(),
        timeout_ms: state.planner.timeout_ms,
        asking,
        failures: state.failures,
        last_failure: state
            .last_failure
            .as_ref()
            .map(|(at, detail)| PlannerFailure {
                at: *at,
                detail: detail.clone(),
            }),
        next_attempt_at: state.due_ms.filter(|_| !asking).map(wall_time),
        last_answer: state.last_response.as_ref().map(to_planner_answer),
    }
}

fn to_planner_answer(last: &LastResponse) -> PlannerAnswer {
    let effect = last.effect.as_ref();
    let count = |amount: fn(&ResponseEffect) -> u64| effect.map_or(0, |(_, effect)| amount(effect));
    PlannerAnswer {
        at: last.at,
        took_ms: last.took_ms,
        revision: last.revision,
        used_in: effect.map(|(round, _)| *round),
        granted: count(|it| it.granted),
        vacated: count(|it| it.vacated),
        refusals: count(|it| it.refusals),
        refused: effect.map_or_else(Vec::new, |(_, effect)| {
            effect.refused.iter().map(to_refused_step).collect()
        }),
    }
}

fn to_refused_step(step: &Refused) -> RefusedStep {
    RefusedStep {
        at: step.pointer.clone(),
        what: step.name.clone(),
        node: step.node.clone(),
        reason: to_step_refusal(step.reason),
        detail: step.detail.clone(),
    }
}

fn to_step_refusal(refusal: Refusal) -> StepRefusal {
    match refusal {
        Refusal::UnknownWork => StepRefusal::UnknownWork,
        Refusal::NotItsOwn => StepRefusal::NotItsOwn,
        Refusal::NotAuthorised => StepRefusal::NotAuthorised,
        Refusal::NotWanted => StepRefusal::NotWanted,
        Refusal::UnknownNode => StepRefusal::UnknownNode,
        Refusal::OutsidePool => StepRefusal::OutsidePool,
        Refusal::NodeClosed => StepRefusal::NodeClosed,
        Refusal::NotListed => StepRefusal::NotListed,
        Refusal::Avoided => StepRefusal::Avoided,
        Refusal::AntiAffinity => StepRefusal::AntiAffinity,
        Refusal::NoRoom => StepRefusal::NoRoom,
        Refusal::OverAllotment => StepRefusal::OverAllotment,
        Refusal::UnknownAllocation => StepRefusal::UnknownAllocation,
        Refusal::LeavingAlready => StepRefusal::LeavingAlready,
        Refusal::NotPreemptable => StepRefusal::NotPreemptable,
        Refusal::ServesNobody => StepRefusal::ServesNobody,
        Refusal::OverBudget => StepRefusal::OverBudget,
        Refusal::NotAllowed => StepRefusal::NotAllowed,
    }
}
