//! Verification of vacates: only own allocations that may be preempted and that free space for
//! other work.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    NodeSpace, Plan,
    plan::{Receipt, Vacate, VacateReason, outside::Refusal},
    snapshot::{Allocation, outside::Answer},
};
use hayward_vocabulary::{AllocationId, NodeName, Size, WorkId, WorkKind};

use super::beneficiaries::{self, CandidateNode, Waiting};
use super::{AcceptedVacate, Rejection, Step, Steps};
use crate::{budget::PreemptionBudget, pool_view::PoolView, recent_moves};

/// An allocation that may be vacated if that serves other work, with its position in the response.
struct Candidate<'a> {
    at: usize,
    id: &'a AllocationId,
    held: &'a Allocation,
}

/// A vacated allocation and its beneficiary.
struct Vacated<'a> {
    candidate: Candidate<'a>,
    work: WorkId,
}

/// Result for all vacates of a response.
#[derive(Default)]
struct Selection<'a> {
    vacated: Vec<Vacated<'a>>,
    /// Refused vacates by position in the response.
    refused: BTreeMap<usize, Rejection>,
    /// Beneficiaries, one entry per process.
    served: Vec<WorkId>,
}

impl Selection<'_> {
    fn refuse(&mut self, at: usize, rejection: Rejection) {
        self.refused.insert(at, rejection);
    }
}

pub(super) fn verify(
    view: &mut PoolView,
    answer: &Answer,
    forced: &[Vacate],
    plan: &Plan,
    steps: &mut Steps,
) {
    if answer.vacates.is_empty() {
        return;
    }
    let vacated = forced.iter().chain(&plan.vacates);
    let going: BTreeSet<AllocationId> = vacated.map(|it| it.allocation.clone()).collect();
    let mut selection = Selection::default();
    let mut by_node: BTreeMap<&NodeName, Vec<Candidate>> = BTreeMap::new();
    let mut may_go: BTreeMap<&AllocationId, &NodeName> = BTreeMap::new();
    for (at, leave) in answer.vacates.iter().enumerate() {
        let found = find(view, &leave.allocation).and_then(|(id, held)| {
            let again = going.contains(id) || may_go.contains_key(id);
            may_leave(view, held, again).map(|()| (id, held))
        });
        match found {
            Ok((id, held)) => {
                may_go.insert(id, &held.node);
                let candidates = by_node.entry(&held.node).or_default();
                candidates.push(Candidate { at, id, held });
            }
            Err(rejection) => selection.refuse(at, rejection),
        }
    }
    let mut sites = beneficiaries::sites(view, &may_go, &going, plan, &steps.grants);
    let gives_up = by_node.values().flatten().map(|it| &it.held.work).collect();
    let mut waiting = Waiting::open(view, &gives_up, &steps.grants);
    let mut budget = PreemptionBudget::new(view);
    for (node, candidates) in by_node {
        let Some(site) = sites.get_mut(node) else {
            // Space on other nodes, or on nodes that take no work, serves no work of this pool.
            for it in candidates {
                selection.refuse(it.at, serves_no_work());
            }
            continue;
        };
        let serves = Serves {
            view,
            site,
            budget: &mut budget,
            waiting: &mut waiting,
        };
        serves.select(candidates, &mut selection);
    }
    write_steps(view, answer, selection, steps);
}

/// Adds vacates and refusals in the order of the response.
fn write_steps(view: &mut PoolView, answer: &Answer, selection: Selection, steps: &mut Steps) {
    steps.served.extend(selection.served);
    for (at, rejection) in selection.refused {
        let step = Step {
            at: format!("/vacates/{at}"),
            what: &answer.vacates[at].allocation,
            node: None,
        };
        steps.refuse(&step, rejection);
    }
    let mut vacated = selection.vacated;
    vacated.sort_by_key(|it| it.candidate.at);
    for Vacated { candidate, work } in vacated {
        let words = &answer.vacates[candidate.at].detail;
        let words = if words.is_empty() {
            "it gives no reason"
        } else {
            words
        };
        let vacate = Vacate {
            allocation: candidate.id.clone(),
            reason: VacateReason::Preempted,
            detail: format!(
                "the external planner of pool {} preempts it: {words}",
                view.top
            ),
            purge: false,
        };
        let receipt = receipt(view, &candidate, &work);
        view.leave(std::slice::from_ref(&vacate));
        steps.vacates.push(AcceptedVacate {
            position: candidate.at,
            vacate,
            receipt,
        });
    }
}

/// Selects the vacates on one node and their beneficiaries.
struct Serves<'s, 'a> {
    view: &'s PoolView<'a>,
    site: &'s mut CandidateNode<'a>,
    budget: &'s mut PreemptionBudget<'a>,
    waiting: &'s mut Waiting<'a>,
}

impl<'a> Serves<'_, 'a> {
    fn select(self, mut pending: Vec<Candidate<'a>>, selection: &mut Selection<'a>) {
        let mut from = 0;
        while !pending.is_empty()
            && let Some((at, order, size)) = self.waiting.next(self.view, self.site, from)
        {
            from = at;
            if self.site.free.fitting(order, &size) > 0 {
                // This process fits without a vacate.
                self.site.take(order, &size);
                self.waiting.serve(at);
                continue;
            }
            let Some(needed) = needed(&self.site.free, &pending, order, &size) else {
                from = at + 1;
                continue;
            };
            let (chosen, rest) = split(pending, &needed);
            pending = rest;
            let pool = self.view.snapshot.nodes.get(self.site.name);
            let pool = pool.map_or(self.view.top, |node| node.pool.as_str());
            let all: Vec<&Allocation> = chosen.iter().map(|it| it.held).collect();
            if let Err(detail) = self.budget.charge_all(pool, &all) {
                for it in chosen {
                    self.site.stays(it.held);
                    let rejection = Rejection::new(Refusal::OverBudget, detail.clone());
                    selection.refuse(it.at, rejection);
                }
                continue;
            }
            for it in &chosen {
                self.site.goes(it.held);
            }
            self.site.take(order, &size);
            let work = self.waiting.serve(at).work.clone();
            let vacated = chosen.into_iter().map(|candidate| Vacated {
                candidate,
                work: work.clone(),
            });
            selection.vacated.extend(vacated);
            selection.served.push(work);
        }
        for it in pending {
            selection.refuse(it.at, serves_no_work());
        }
    }
}

/// Returns which vacates one process needs, in the order of the response. No more than needed are
/// selected.
fn needed(free: &NodeSpace, pending: &[Candidate], order: u64, size: &Size) -> Option<Vec<bool>> {
    let mut sum = free.clone();
    let enough = pending.iter().position(|it| {
        sum.give(it.held.order, &it.held.size, &it.held.gpus);
        sum.fitting(order, size) > 0
    })?;
    let mut goes = vec![false; pending.len()];
    goes[enough] = true;
    for (it, goes) in pending.iter().zip(&mut goes).take(enough) {
        let held = it.held;
        sum.take(held.order, &held.size, &held.gpus);
        *goes = sum.fitting(order, size) == 0;
        if *goes {
            sum.give(held.order, &held.size, &held.gpus);
        }
    }
    Some(goes)
}

fn split<'a>(
    pending: Vec<Candidate<'a>>,
    goes: &[bool],
) -> (Vec<Candidate<'a>>, Vec<Candidate<'a>>) {
    let mut goes = goes.iter();
    let goes = |_: &Candidate| goes.next().copied().unwrap_or(false);
    pending.into_iter().partition(goes)
}

fn serves_no_work() -> Rejection {
    let detail = "no other work of the pool that still lacks a process could have one there";
    Rejection::new(Refusal::ServesNobody, detail)
}

fn find<'a>(
    view: &PoolView<'a>,
    id: &str,
) -> Result<(&'a AllocationId, &'a Allocation), Rejection> {
    let unknown = || Rejection::new(Refusal::UnknownAllocation, "there is no such allocation");
    let (id, held) = view
        .snapshot
        .allocations
        .get_key_value(id)
        .ok_or_else(unknown)?;
    if !view.held.contains_key(id) {
        let detail = format!("it is not planned for in pool {}", view.top);
        return Err(Rejection::new(Refusal::NotItsOwn, detail));
    }
    Ok((id, held))
}

fn may_leave(view: &PoolView, held: &Allocation, again: bool) -> Result<(), Rejection> {
    if held.leaving || held.purged || again {
        let detail = "it was already ordered to leave".to_owned();
        return Err(Rejection::new(Refusal::LeavingAlready, detail));
    }
    if held.fixed || held.kind == WorkKind::Reservation {
        let detail = format!("class {} is never taken back for others", held.class);
        return Err(Rejection::new(Refusal::NotPreemptable, detail));
    }
    if recent_moves::is_safe(&view.moved, held) {
        let seconds = recent_moves::PROTECTED_MS / 1_000;
        let detail =
            format!("its work gave up a place less than {seconds} s ago, and has this one since");
        return Err(Rejection::new(Refusal::NotPreemptable, detail));
    }
    Ok(())
}

/// Builds the receipt, with the lost start time or running time.
fn receipt(view: &PoolView, candidate: &Candidate, work: &WorkId) -> Receipt {
    let (id, held) = (candidate.id, candidate.held);
    let began = held.running_since.or(held.started_at);
    let ran = view.snapshot.now.ms_since(began.unwrap_or(held.granted_at));
    let item = held.item_ms.filter(|item| *item > 0);
    let user = view.work.get(work).map(|item| &item.demand.user);
    let in_flight = item.map_or(ran, |item| ran % item);
    Receipt {
        allocation: id.clone(),
        work: held.work.clone(),
        user: held.user.clone(),
        node: held.node.clone(),
        order: held.order,
        lost_ms: held.investment_ms.unwrap_or(in_flight),
        beneficiary: Some(work.clone()),
        for_user: user.cloned(),
    }
}
