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
use super::{Step, Steps};
use crate::{budget::PreemptionBudget, pool_view::PoolView, recent_moves};

type Why = (Refusal, String);

/// An allocation that may be vacated if that serves other work, with its position in the response.
struct Candidate<'a> {
    at: usize,
    id: &'a AllocationId,
    held: &'a Allocation,
}

/// A vacated allocation and its beneficiary.
type Leaver<'a> = (Candidate<'a>, WorkId);

pub(super) fn verify(
    view: &mut PoolView,
    (answer, forced, plan): (&Answer, &[Vacate], &Plan),
    steps: &mut Steps,
) {
    if answer.vacates.is_empty() {
        return;
    }
    let vacated = forced.iter().chain(&plan.vacates);
    let going: BTreeSet<AllocationId> = vacated.map(|it| it.allocation.clone()).collect();
    let mut refused: Vec<(usize, Why)> = Vec::new();
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
            Err(why) => refused.push((at, why)),
        }
    }
    let mut sites = beneficiaries::sites(view, &may_go, (&going, plan, &steps.grants));
    let gives_up = by_node.values().flatten().map(|it| &it.held.work).collect();
    let mut waiting = Waiting::open(view, &gives_up, &steps.grants);
    let mut budget = PreemptionBudget::new(view);
    let mut taken: Vec<Leaver> = Vec::new();
    for (node, candidates) in by_node {
        let Some(site) = sites.get_mut(node) else {
            // Space on other nodes, or on nodes that take no work, serves no work of this pool.
            refused.extend(candidates.iter().map(|it| (it.at, serves_no_work())));
            continue;
        };
        let serves = Serves {
            view,
            site,
            budget: &mut budget,
            waiting: &mut waiting,
        };
        let (went, stay, people) = serves.all(candidates);
        taken.extend(went);
        refused.extend(stay);
        steps.served.extend(people);
    }
    write_steps(view, answer, (taken, refused), steps);
}

/// Adds vacates and refusals in the order of the response.
fn write_steps(
    view: &mut PoolView,
    answer: &Answer,
    (mut taken, mut refused): (Vec<Leaver>, Vec<(usize, Why)>),
    steps: &mut Steps,
) {
    refused.sort_by_key(|(at, _)| *at);
    for (at, why) in refused {
        let step = Step {
            at: format!("/vacates/{at}"),
            what: &answer.vacates[at].allocation,
            node: None,
        };
        steps.refuse(&step, why);
    }
    taken.sort_by_key(|(it, _)| it.at);
    for (candidate, work) in taken {
        let words = &answer.vacates[candidate.at].detail;
        let words = if words.is_empty() {
            "it gives no reason"
        } else {
            words
        };
        let order = Vacate {
            allocation: candidate.id.clone(),
            reason: VacateReason::Preempted,
            detail: format!(
                "the external planner of pool {} preempts it: {words}",
                view.top
            ),
            purge: false,
        };
        let receipt = receipt(view, &candidate, &work);
        view.leave(std::slice::from_ref(&order));
        steps.vacates.push((candidate.at, order, receipt));
    }
}

/// Selects the vacates on one node and their beneficiaries.
struct Serves<'s, 'a> {
    view: &'s PoolView<'a>,
    site: &'s mut CandidateNode<'a>,
    budget: &'s mut PreemptionBudget<'a>,
    waiting: &'s mut Waiting<'a>,
}

/// Vacates with beneficiaries, refusals, and the beneficiaries, one entry per process.
type Selection<'a> = (Vec<Leaver<'a>>, Vec<(usize, Why)>, Vec<WorkId>);

impl<'a> Serves<'_, 'a> {
    fn all(self, mut pending: Vec<Candidate<'a>>) -> Selection<'a> {
        let (mut went, mut stay, mut people) = (Vec::new(), Vec::new(), Vec::new());
        let mut from = 0;
        while !pending.is_empty()
            && let Some((at, order, size)) = self.waiting.next(self.view, self.site, from)
        {
            from = at;
            if self.site.room.fitting(order, &size) > 0 {
                // This process fits without a vacate.
                self.site.take(order, &size);
                self.waiting.serve(at);
                continue;
            }
            let Some(needed) = needed(&self.site.room, &pending, (order, &size)) else {
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
                    stay.push((it.at, (Refusal::OverBudget, detail.clone())));
                }
                continue;
            }
            for it in &chosen {
                self.site.goes(it.held);
            }
            self.site.take(order, &size);
            let work = self.waiting.serve(at).work.clone();
            went.extend(chosen.into_iter().map(|it| (it, work.clone())));
            people.push(work);
        }
        stay.extend(pending.iter().map(|it| (it.at, serves_no_work())));
        (went, stay, people)
    }
}

/// Vacates needed for one process, in the order of the response, and no more than needed.
fn needed(
    room: &NodeSpace,
    pending: &[Candidate],
    (order, size): (u64, &Size),
) -> Option<Vec<bool>> {
    let mut sum = room.clone();
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

fn serves_no_work() -> Why {
    let detail = "no other work of the pool that still lacks a process could have one there";
    (Refusal::ServesNobody, detail.to_owned())
}

fn find<'a>(view: &PoolView<'a>, id: &str) -> Result<(&'a AllocationId, &'a Allocation), Why> {
    let unknown = || {
        (
            Refusal::UnknownAllocation,
            "there is no such allocation".to_owned(),
        )
    };
    let (id, held) = view
        .snapshot
        .allocations
        .get_key_value(id)
        .ok_or_else(unknown)?;
    if !view.held.contains_key(id) {
        let detail = format!("it is not planned for in pool {}", view.top);
        return Err((Refusal::NotItsOwn, detail));
    }
    Ok((id, held))
}

fn may_leave(view: &PoolView, held: &Allocation, again: bool) -> Result<(), Why> {
    if held.leaving || held.purged || again {
        let detail = "it was already ordered to leave".to_owned();
        return Err((Refusal::LeavingAlready, detail));
    }
    if held.fixed || held.kind == WorkKind::Reservation {
        let detail = format!("class {} is never taken back for others", held.class);
        return Err((Refusal::NotPreemptable, detail));
    }
    if recent_moves::is_safe(&view.moved, held) {
        let seconds = recent_moves::PROTECTED_MS / 1_000;
        let detail =
            format!("its work gave up a place less than {seconds} s ago, and has this one since");
        return Err((Refusal::NotPreemptable, detail));
    }
    Ok(())
}

/// The receipt: the lost start time or running time.
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
