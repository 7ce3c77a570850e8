//! Verification of requested vacates. A vacate is accepted if the planner owns the allocation, the
//! allocation may be preempted, and its space serves other work.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    NodeSpace, Plan,
    plan::{Receipt, Vacate, VacateReason, external_planner_effects::Refusal},
    snapshot::{Allocation, external_planners::PlannerResponse},
};
use hayward_vocabulary::{AllocationId, NodeName, Size, WorkId, WorkKind};

use super::beneficiaries::{self, CandidateNode, WaitingWork};
use super::{AcceptedVacate, RefusalDetail, Step, Steps};
use crate::{pool_view::PoolView, preemption_budget::PreemptionBudget, recent_preemptions};

/// An allocation that may be vacated if that serves other work, with its position in the response.
struct Candidate<'a> {
    position: usize,
    id: &'a AllocationId,
    allocation: &'a Allocation,
}

/// A vacated allocation and its beneficiary.
struct Vacated<'a> {
    candidate: Candidate<'a>,
    /// The beneficiary.
    work: WorkId,
}

/// Accepted and refused vacates of a response.
#[derive(Default)]
struct Selection<'a> {
    vacated: Vec<Vacated<'a>>,
    /// Refused vacates by position in the response.
    refused: BTreeMap<usize, RefusalDetail>,
    /// Beneficiaries, one entry per process.
    served: Vec<WorkId>,
}

impl Selection<'_> {
    fn refuse(&mut self, position: usize, refusal: RefusalDetail) {
        self.refused.insert(position, refusal);
    }
}

pub(super) fn verify(
    view: &mut PoolView,
    response: &PlannerResponse,
    forced: &[Vacate],
    plan: &Plan,
    steps: &mut Steps,
) {
    if response.vacates.is_empty() {
        return;
    }
    let vacated = forced.iter().chain(&plan.vacates);
    let leaving: BTreeSet<AllocationId> = vacated.map(|it| it.allocation.clone()).collect();
    let mut selection = Selection::default();
    let mut by_node: BTreeMap<&NodeName, Vec<Candidate>> = BTreeMap::new();
    let mut nodes_by_id: BTreeMap<&AllocationId, &NodeName> = BTreeMap::new();
    for (position, requested) in response.vacates.iter().enumerate() {
        let result = find_allocation(view, &requested.allocation).and_then(|(id, allocation)| {
            let is_repeated = leaving.contains(id) || nodes_by_id.contains_key(id);
            check_vacate(view, allocation, is_repeated).map(|()| (id, allocation))
        });
        match result {
            Ok((id, allocation)) => {
                nodes_by_id.insert(id, &allocation.node);
                let candidates = by_node.entry(&allocation.node).or_default();
                candidates.push(Candidate {
                    position,
                    id,
                    allocation,
                });
            }
            Err(refusal) => selection.refuse(position, refusal),
        }
    }
    let mut candidate_nodes =
        beneficiaries::candidate_nodes(view, &nodes_by_id, &leaving, plan, &steps.grants);
    let victims = by_node
        .values()
        .flatten()
        .map(|it| &it.allocation.work)
        .collect();
    let mut waiting = WaitingWork::new(view, &victims, &steps.grants);
    let mut budget = PreemptionBudget::new(view);
    for (node, candidates) in by_node {
        let Some(candidate_node) = candidate_nodes.get_mut(node) else {
            // Space on other nodes, or on nodes that take no work, serves no work of this pool.
            for it in candidates {
                selection.refuse(it.position, serves_no_work());
            }
            continue;
        };
        let node_selection = NodeSelection {
            view,
            candidate_node,
            budget: &mut budget,
            waiting: &mut waiting,
        };
        node_selection.select(candidates, &mut selection);
    }
    write_steps(view, response, selection, steps);
}

/// Adds vacates and refusals in the order of the response.
fn write_steps(
    view: &mut PoolView,
    response: &PlannerResponse,
    selection: Selection,
    steps: &mut Steps,
) {
    steps.served.extend(selection.served);
    for (position, refusal) in selection.refused {
        let step = Step {
            pointer: format!("/vacates/{position}"),
            subject: &response.vacates[position].allocation,
            node: None,
        };
        steps.refuse(&step, refusal);
    }
    let mut vacated = selection.vacated;
    vacated.sort_by_key(|it| it.candidate.position);
    for Vacated { candidate, work } in vacated {
        let reason = &response.vacates[candidate.position].detail;
        let reason = if reason.is_empty() {
            "it gives no reason"
        } else {
            reason
        };
        let vacate = Vacate {
            allocation: candidate.id.clone(),
            reason: VacateReason::Preempted,
            detail: format!(
                "the external planner of pool {} preempts it: {reason}",
                view.top
            ),
            purge: false,
        };
        let receipt = build_receipt(view, &candidate, &work);
        view.count_vacates(std::slice::from_ref(&vacate));
        steps.vacates.push(AcceptedVacate {
            position: candidate.position,
            vacate,
            receipt,
        });
    }
}

/// Selects the vacates on one node and their beneficiaries.
struct NodeSelection<'s, 'a> {
    view: &'s PoolView<'a>,
    candidate_node: &'s mut CandidateNode<'a>,
    budget: &'s mut PreemptionBudget<'a>,
    waiting: &'s mut WaitingWork<'a>,
}

impl<'a> NodeSelection<'_, 'a> {
    fn select(self, mut pending: Vec<Candidate<'a>>, selection: &mut Selection<'a>) {
        // Index of the first work that may still be a beneficiary.
        let mut start = 0;
        while !pending.is_empty()
            && let Some((index, quanta, size)) =
                self.waiting
                    .next_beneficiary(self.view, self.candidate_node, start)
        {
            start = index;
            if self.candidate_node.free.count_fitting(quanta, &size) > 0 {
                // This process fits without a vacate.
                self.candidate_node.occupy(quanta, &size);
                self.waiting.serve(index);
                continue;
            }
            let Some(needed) = needed_vacates(&self.candidate_node.free, &pending, quanta, &size)
            else {
                start = index + 1;
                continue;
            };
            let (chosen, remaining) = partition(pending, &needed);
            pending = remaining;
            let pool = self.view.snapshot.nodes.get(self.candidate_node.name);
            let pool = pool.map_or(self.view.top, |node| node.pool.as_str());
            let allocations: Vec<&Allocation> = chosen.iter().map(|it| it.allocation).collect();
            if let Err(detail) = self.budget.charge_all(pool, &allocations) {
                for it in chosen {
                    self.candidate_node.retain(it.allocation);
                    let refusal = RefusalDetail::new(Refusal::OverBudget, detail.clone());
                    selection.refuse(it.position, refusal);
                }
                continue;
            }
            for it in &chosen {
                self.candidate_node.release(it.allocation);
            }
            self.candidate_node.occupy(quanta, &size);
            let work = self.waiting.serve(index).work.clone();
            let vacated = chosen.into_iter().map(|candidate| Vacated {
                candidate,
                work: work.clone(),
            });
            selection.vacated.extend(vacated);
            selection.served.push(work);
        }
        for it in pending {
            selection.refuse(it.position, serves_no_work());
        }
    }
}

/// Returns one flag per candidate: true if one process needs the space of this candidate. Selects
/// no more candidates than needed. Returns `None` if all of them together free too little.
fn needed_vacates(
    free: &NodeSpace,
    pending: &[Candidate],
    quanta: u64,
    size: &Size,
) -> Option<Vec<bool>> {
    // Adds candidates until the process fits, and then removes each earlier one that is not needed.
    let mut space = free.clone();
    let last = pending.iter().position(|it| {
        space.give(
            it.allocation.quanta,
            &it.allocation.size,
            &it.allocation.gpus,
        );
        space.count_fitting(quanta, size) > 0
    })?;
    let mut is_needed = vec![false; pending.len()];
    is_needed[last] = true;
    for (it, is_needed) in pending.iter().zip(&mut is_needed).take(last) {
        let allocation = it.allocation;
        space.take(allocation.quanta, &allocation.size, &allocation.gpus);
        *is_needed = space.count_fitting(quanta, size) == 0;
        if *is_needed {
            space.give(allocation.quanta, &allocation.size, &allocation.gpus);
        }
    }
    Some(is_needed)
}

/// Separates the needed candidates from the rest.
fn partition<'a>(
    pending: Vec<Candidate<'a>>,
    is_needed: &[bool],
) -> (Vec<Candidate<'a>>, Vec<Candidate<'a>>) {
    let mut is_needed = is_needed.iter();
    let is_needed = |_: &Candidate| is_needed.next().copied().unwrap_or(false);
    pending.into_iter().partition(is_needed)
}

fn serves_no_work() -> RefusalDetail {
    let detail = "no other work of the pool that still lacks a process could have one there";
    RefusalDetail::new(Refusal::ServesNobody, detail)
}

fn find_allocation<'a>(
    view: &PoolView<'a>,
    id: &str,
) -> Result<(&'a AllocationId, &'a Allocation), RefusalDetail> {
    let unknown = || RefusalDetail::new(Refusal::UnknownAllocation, "there is no such allocation");
    let (id, allocation) = view
        .snapshot
        .allocations
        .get_key_value(id)
        .ok_or_else(unknown)?;
    if !view.allocations.contains_key(id) {
        let detail = format!("it is not planned for in pool {}", view.top);
        return Err(RefusalDetail::new(Refusal::NotItsOwn, detail));
    }
    Ok((id, allocation))
}

fn check_vacate(
    view: &PoolView,
    allocation: &Allocation,
    is_repeated: bool,
) -> Result<(), RefusalDetail> {
    if allocation.leaving || allocation.purged || is_repeated {
        let detail = "it was already ordered to leave".to_owned();
        return Err(RefusalDetail::new(Refusal::LeavingAlready, detail));
    }
    if allocation.fixed || allocation.kind == WorkKind::Reservation {
        let detail = format!("class {} is never taken back for others", allocation.class);
        return Err(RefusalDetail::new(Refusal::NotPreemptable, detail));
    }
    if recent_preemptions::is_protected(&view.preemptions, allocation) {
        let seconds = recent_preemptions::PROTECTED_MS / 1_000;
        let detail =
            format!("its work gave up a place less than {seconds} s ago, and has this one since");
        return Err(RefusalDetail::new(Refusal::NotPreemptable, detail));
    }
    Ok(())
}

/// Builds the receipt. The lost time is the investment, or else the running time of the current
/// task.
fn build_receipt(view: &PoolView, candidate: &Candidate, work: &WorkId) -> Receipt {
    let (id, allocation) = (candidate.id, candidate.allocation);
    let started_at = allocation.running_since.or(allocation.started_at);
    let ran_ms = view
        .snapshot
        .now
        .ms_since(started_at.unwrap_or(allocation.granted_at));
    let item_ms = allocation.item_ms.filter(|item_ms| *item_ms > 0);
    let user = view.work.get(work).map(|item| &item.demand.user);
    let in_flight_ms = item_ms.map_or(ran_ms, |item_ms| ran_ms % item_ms);
    Receipt {
        allocation: id.clone(),
        work: allocation.work.clone(),
        user: allocation.user.clone(),
        node: allocation.node.clone(),
        quanta: allocation.quanta,
        lost_ms: allocation.investment_ms.unwrap_or(in_flight_ms),
        beneficiary: Some(work.clone()),
        for_user: user.cloned(),
    }
}
