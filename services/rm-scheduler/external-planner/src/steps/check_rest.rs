//! Runs `check` on the accepted steps together with all other plans, and turns its violations into
//! refusals, so that the round drops nothing later.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::{
    Fault, Part, Plan, Violation, check,
    plan::{Vacate, outside::Refusal},
};

use super::{AcceptedGrant, Rejection, Step, Steps};
use crate::pool_view::PoolView;

pub(super) fn into_plan(
    view: &mut PoolView,
    mut forced: Vec<Vacate>,
    steps: &mut Steps,
    plan: &mut Plan,
) {
    if forced.is_empty() && steps.grants.is_empty() && steps.vacates.is_empty() {
        return;
    }
    let others = PlanLength {
        grants: plan.grants.len(),
        vacates: plan.vacates.len(),
    };
    loop {
        let accepted = steps.vacates.iter().map(|it| &it.vacate);
        plan.vacates.extend(forced.iter().chain(accepted).cloned());
        let placed = steps.grants.iter().map(|it| it.grant.clone());
        plan.grants.extend(placed);
        let found = check(view.snapshot, plan).err().unwrap_or_default();
        // Violations of other plans are handled at the end of the round.
        let mine = |it: &&Violation| match it.part {
            Part::Grant(at) => at >= others.grants,
            Part::Vacate(at) => at >= others.vacates,
        };
        let found: Vec<&Violation> = found.iter().filter(mine).collect();
        if found.is_empty() {
            break;
        }
        plan.grants.truncate(others.grants);
        plan.vacates.truncate(others.vacates);
        drop_faulty(view, &found, others, &mut forced, steps);
    }
    let receipts = steps.vacates.iter().map(|it| it.receipt.clone());
    plan.receipts.extend(receipts);
}

/// Number of steps in the plan before the steps of the response are added.
#[derive(Clone, Copy)]
struct PlanLength {
    grants: usize,
    vacates: usize,
}

fn drop_faulty(
    view: &mut PoolView,
    found: &[&Violation],
    others: PlanLength,
    forced: &mut Vec<Vacate>,
    steps: &mut Steps,
) {
    let leaves = forced.len();
    let mut gone_grants = BTreeSet::new();
    let mut gone_forced = BTreeSet::new();
    let mut gone_vacates = BTreeSet::new();
    for violation in found {
        match violation.part {
            Part::Grant(at) => {
                let at = at - others.grants;
                let AcceptedGrant { position, grant } = &steps.grants[at];
                let (work, node) = (grant.work.clone(), grant.node.to_string());
                if let Some(item) = view.work.get_mut(&work) {
                    item.has = item.has.saturating_sub(1);
                }
                let step = Step {
                    at: format!("/grants/{position}"),
                    what: work.as_str(),
                    node: Some(&node),
                };
                steps.refuse_for(&work, &step, rejection(&violation.fault));
                gone_grants.insert(at);
            }
            Part::Vacate(at) if at - others.vacates < leaves => {
                stays(view, &forced[at - others.vacates]);
                gone_forced.insert(at - others.vacates);
            }
            Part::Vacate(at) => {
                let at = at - others.vacates - leaves;
                let accepted = steps.vacates[at].clone();
                stays(view, &accepted.vacate);
                let step = Step {
                    at: format!("/vacates/{}", accepted.position),
                    what: accepted.vacate.allocation.as_str(),
                    node: None,
                };
                steps.refuse(&step, rejection(&violation.fault));
                gone_vacates.insert(at);
            }
        }
    }
    without(&mut steps.grants, &gone_grants);
    without(forced, &gone_forced);
    without(&mut steps.vacates, &gone_vacates);
}

fn stays(view: &mut PoolView, vacate: &Vacate) {
    let held = view.held.get(&vacate.allocation).copied();
    let stays = held.filter(|held| !held.leaving && !held.purged);
    let item = stays.and_then(|held| view.work.get_mut(&held.work));
    if let Some(item) = item {
        item.has += 1;
        item.leaving = item.leaving.saturating_sub(1);
    }
}

fn without<T>(all: &mut Vec<T>, gone: &BTreeSet<usize>) {
    let mut at = 0;
    all.retain(|_| {
        at += 1;
        !gone.contains(&(at - 1))
    });
}

fn rejection(fault: &Fault) -> Rejection {
    let reason = match fault {
        Fault::UnknownWork(_) => Refusal::UnknownWork,
        Fault::UnknownNode(_) => Refusal::UnknownNode,
        Fault::NodeClosed(_) => Refusal::NodeClosed,
        Fault::WrongClass(_) => Refusal::NotAuthorised,
        Fault::OutsidePools { .. } => Refusal::OutsidePool,
        Fault::NotListed(_) => Refusal::NotListed,
        Fault::Avoided(_) => Refusal::Avoided,
        Fault::NotApart(_) => Refusal::KeptApart,
        Fault::NoRoom(_) | Fault::WrongGpus { .. } | Fault::WrongSize { .. } => Refusal::NoRoom,
        Fault::TooMany { .. } => Refusal::NotWanted,
        Fault::OverAllotment { .. } => Refusal::OverAllotment,
        Fault::UnknownAllocation(_) => Refusal::UnknownAllocation,
        Fault::AlreadyLeaving(_) => Refusal::LeavingAlready,
        Fault::NotTakeable(_) => Refusal::NotPreemptable,
        _ => Refusal::NotAllowed,
    };
    Rejection::new(reason, fault.to_string())
}
