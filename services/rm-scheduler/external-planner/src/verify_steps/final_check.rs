//! Runs `check` on the accepted steps together with all other plans, and turns its violations into
//! refusals, so that the round drops nothing later.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::{
    Fault, Part, Plan, Violation, check,
    plan::{Vacate, external_planner_effects::Refusal},
};

use super::{AcceptedGrant, RefusalDetail, Step, Steps};
use crate::pool_view::PoolView;

/// Adds the forced vacates and the accepted steps to the plan. Repeats the check without the faulty
/// steps until `check` finds no violation among the remaining steps.
pub(super) fn add_to_plan(
    view: &mut PoolView,
    mut forced: Vec<Vacate>,
    steps: &mut Steps,
    plan: &mut Plan,
) {
    if forced.is_empty() && steps.grants.is_empty() && steps.vacates.is_empty() {
        return;
    }
    let existing = PlanLength {
        grants: plan.grants.len(),
        vacates: plan.vacates.len(),
    };
    loop {
        let accepted = steps.vacates.iter().map(|it| &it.vacate);
        plan.vacates.extend(forced.iter().chain(accepted).cloned());
        let grants = steps.grants.iter().map(|it| it.grant.clone());
        plan.grants.extend(grants);
        let violations = check(view.snapshot, plan).err().unwrap_or_default();
        // Violations of other plans are handled at the end of the round.
        let is_own = |it: &&Violation| match it.part {
            Part::Grant(index) => index >= existing.grants,
            Part::Vacate(index) => index >= existing.vacates,
        };
        let own: Vec<&Violation> = violations.iter().filter(is_own).collect();
        if own.is_empty() {
            break;
        }
        plan.grants.truncate(existing.grants);
        plan.vacates.truncate(existing.vacates);
        drop_faulty(view, &own, existing, &mut forced, steps);
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
    violations: &[&Violation],
    existing: PlanLength,
    forced: &mut Vec<Vacate>,
    steps: &mut Steps,
) {
    let forced_count = forced.len();
    let mut dropped_grants = BTreeSet::new();
    let mut dropped_forced = BTreeSet::new();
    let mut dropped_vacates = BTreeSet::new();
    for violation in violations {
        match violation.part {
            Part::Grant(index) => {
                let index = index - existing.grants;
                let AcceptedGrant { position, grant } = &steps.grants[index];
                let (work, node) = (grant.work.clone(), grant.node.to_string());
                if let Some(item) = view.work.get_mut(&work) {
                    item.current = item.current.saturating_sub(1);
                }
                let step = Step {
                    pointer: format!("/grants/{position}"),
                    subject: work.as_str(),
                    node: Some(&node),
                };
                steps.refuse_for(&work, &step, to_refusal(&violation.fault));
                dropped_grants.insert(index);
            }
            Part::Vacate(index) if index - existing.vacates < forced_count => {
                undo_vacate(view, &forced[index - existing.vacates]);
                dropped_forced.insert(index - existing.vacates);
            }
            Part::Vacate(index) => {
                let index = index - existing.vacates - forced_count;
                let accepted = steps.vacates[index].clone();
                undo_vacate(view, &accepted.vacate);
                let step = Step {
                    pointer: format!("/vacates/{}", accepted.position),
                    subject: accepted.vacate.allocation.as_str(),
                    node: None,
                };
                steps.refuse(&step, to_refusal(&violation.fault));
                dropped_vacates.insert(index);
            }
        }
    }
    remove_indices(&mut steps.grants, &dropped_grants);
    remove_indices(forced, &dropped_forced);
    remove_indices(&mut steps.vacates, &dropped_vacates);
}

fn undo_vacate(view: &mut PoolView, vacate: &Vacate) {
    let allocation = view.allocations.get(&vacate.allocation).copied();
    let staying = allocation.filter(|allocation| !allocation.leaving && !allocation.purged);
    let item = staying.and_then(|allocation| view.work.get_mut(&allocation.work));
    if let Some(item) = item {
        item.current += 1;
        item.leaving = item.leaving.saturating_sub(1);
    }
}

fn remove_indices<T>(items: &mut Vec<T>, dropped: &BTreeSet<usize>) {
    let mut index = 0;
    items.retain(|_| {
        index += 1;
        !dropped.contains(&(index - 1))
    });
}

fn to_refusal(fault: &Fault) -> RefusalDetail {
    let reason = match fault {
        Fault::UnknownWork(_) => Refusal::UnknownWork,
        Fault::UnknownNode(_) => Refusal::UnknownNode,
        Fault::NodeClosed(_) => Refusal::NodeClosed,
        Fault::WrongClass(_) => Refusal::NotAuthorised,
        Fault::OutsidePools { .. } => Refusal::OutsidePool,
        Fault::NotListed(_) => Refusal::NotListed,
        Fault::Avoided(_) => Refusal::Avoided,
        Fault::NotApart(_) => Refusal::AntiAffinity,
        Fault::NoRoom(_) | Fault::WrongGpus { .. } | Fault::WrongSize { .. } => Refusal::NoRoom,
        Fault::TooMany { .. } => Refusal::NotWanted,
        Fault::OverAllotment { .. } => Refusal::OverAllotment,
        Fault::UnknownAllocation(_) => Refusal::UnknownAllocation,
        Fault::AlreadyLeaving(_) => Refusal::LeavingAlready,
        Fault::NotPreemptable(_) => Refusal::NotPreemptable,
        _ => Refusal::NotAllowed,
    };
    RefusalDetail::new(reason, fault.to_string())
}
