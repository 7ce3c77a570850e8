//! Converts the state of external planners to a response of the API.

use hayward_publication::Moment;
use hayward_rm_scheduler_api::planners::{
    OutsidePlanner, PlannerAnswer, PlannerFailure, PlannerKind, Planners, PoolPlanning,
    RefusedStep, StepRefusal,
};
use hayward_rm_scheduler_domain::plan::outside::{Refusal, Refused};

use crate::working_set::Ledger;
use crate::working_set::external_planners::{LastAnswer, PlannerState};

/// Returns one entry for each pool without parent.
pub fn planners(ledger: &Ledger, moment: &Moment) -> Planners {
    let snapshot = &*ledger.snapshot;
    let tops = snapshot.pools.iter().filter(|(_, it)| it.parent.is_none());
    let pools = tops.map(|(pool, _)| {
        let known = ledger.external_planners.by_pool.get(pool);
        let kind = if known.is_some() {
            PlannerKind::Http
        } else if snapshot.queues.contains_key(pool) {
            PlannerKind::Capacity
        } else {
            PlannerKind::FairShare
        };
        PoolPlanning {
            pool: pool.clone(),
            kind,
            outside: known.map(|known| outside(known, moment)),
        }
    });
    Planners {
        round: snapshot.round,
        at: moment.now,
        pools: pools.collect(),
    }
}

fn outside(known: &PlannerState, moment: &Moment) -> OutsidePlanner {
    let later = |at: u64| moment.now.plus_ms(at.saturating_sub(moment.monotonic_ms));
    let asking = known.on_its_way.is_some();
    OutsidePlanner {
        url: known.planner.url.clone(),
        timeout_ms: known.planner.timeout_ms,
        asking,
        failures: known.failures,
        last_failure: known.failed.as_ref().map(|(at, detail)| PlannerFailure {
            at: *at,
            detail: detail.clone(),
        }),
        next_attempt_at: known.due_ms.filter(|_| !asking).map(later),
        last_answer: known.last.as_ref().map(answer),
    }
}

fn answer(last: &LastAnswer) -> PlannerAnswer {
    let taken = last.taken.as_ref();
    let count = |amount: fn(&hayward_rm_scheduler_domain::plan::outside::Taken) -> u64| {
        taken.map_or(0, |(_, taken)| amount(taken))
    };
    PlannerAnswer {
        at: last.at,
        took_ms: last.took_ms,
        revision: last.revision,
        used_in: taken.map(|(round, _)| *round),
        granted: count(|it| it.granted),
        vacated: count(|it| it.vacated),
        refusals: count(|it| it.refusals),
        refused: taken.map_or_else(Vec::new, |(_, taken)| {
            taken.refused.iter().map(refused).collect()
        }),
    }
}

fn refused(step: &Refused) -> RefusedStep {
    RefusedStep {
        at: step.at.clone(),
        what: step.what.clone(),
        node: step.node.clone(),
        reason: reason(step.reason),
        detail: step.detail.clone(),
    }
}

fn reason(reason: Refusal) -> StepRefusal {
    match reason {
        Refusal::UnknownWork => StepRefusal::UnknownWork,
        Refusal::NotItsOwn => StepRefusal::NotItsOwn,
        Refusal::NotAuthorised => StepRefusal::NotAuthorised,
        Refusal::NotWanted => StepRefusal::NotWanted,
        Refusal::UnknownNode => StepRefusal::UnknownNode,
        Refusal::OutsidePool => StepRefusal::OutsidePool,
        Refusal::NodeClosed => StepRefusal::NodeClosed,
        Refusal::NotListed => StepRefusal::NotListed,
        Refusal::Avoided => StepRefusal::Avoided,
        Refusal::KeptApart => StepRefusal::KeptApart,
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
