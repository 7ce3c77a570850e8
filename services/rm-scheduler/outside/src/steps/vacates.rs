//! Orders to leave: only what is its own, may be taken back, and makes room for somebody.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::{
    plan::{Receipt, Vacate, VacateReason, outside::Refusal},
    snapshot::{Allocation, outside::Answer},
};
use hayward_vocabulary::{AllocationId, WorkId, WorkKind};

use super::{Step, Steps};
use crate::{book::Book, budget::Purse};

pub(super) fn look_at(book: &mut Book, (answer, forced): (&Answer, &[Vacate]), steps: &mut Steps) {
    if answer.vacates.is_empty() {
        return;
    }
    let waiting: Vec<WorkId> = {
        let lacks = book.work.iter().filter(|(_, wish)| wish.missing() > 0);
        // Two are enough to know of any that another one waits.
        lacks.map(|(work, _)| (*work).clone()).take(2).collect()
    };
    let mut told: BTreeSet<AllocationId> = forced.iter().map(|it| it.allocation.clone()).collect();
    let mut purse = Purse::open(book);
    for (at, leave) in answer.vacates.iter().enumerate() {
        let step = Step {
            at: format!("/vacates/{at}"),
            what: &leave.allocation,
            node: None,
        };
        let found = find(book, &leave.allocation)
            .and_then(|(id, held)| {
                may_leave(book, (&id, held), (&waiting, &told)).map(|()| (id, held))
            })
            .and_then(|(id, held)| pay(book, (&id, held), &mut purse).map(|()| (id, held)));
        let (id, held) = match found {
            Ok(found) => found,
            Err(why) => {
                steps.refuse(&step, why);
                continue;
            }
        };
        told.insert(id.clone());
        let words = if leave.detail.is_empty() {
            "it gives no reason"
        } else {
            &leave.detail
        };
        let order = Vacate {
            allocation: id,
            reason: VacateReason::Preempted,
            detail: format!(
                "the outside planner of pool {} takes it back: {words}",
                book.top
            ),
            purge: false,
        };
        let receipt = receipt(book, (&order.allocation, held));
        book.leave(std::slice::from_ref(&order));
        steps.vacates.push((at, order, receipt));
    }
}

type Why = (Refusal, String);

fn find<'a>(book: &Book<'a>, id: &str) -> Result<(AllocationId, &'a Allocation), Why> {
    let unknown = || {
        (
            Refusal::UnknownAllocation,
            "there is no such allocation".to_owned(),
        )
    };
    let (id, held) = book
        .snapshot
        .allocations
        .get_key_value(id)
        .ok_or_else(unknown)?;
    if !book.held.contains_key(id) {
        let detail = format!("it is not planned for in pool {}", book.top);
        return Err((Refusal::NotItsOwn, detail));
    }
    Ok((id.clone(), held))
}

fn may_leave(
    book: &Book,
    (id, held): (&AllocationId, &Allocation),
    (waiting, told): (&[WorkId], &BTreeSet<AllocationId>),
) -> Result<(), Why> {
    if held.leaving || held.purged || told.contains(id) {
        let detail = "it has been told to leave already".to_owned();
        return Err((Refusal::LeavingAlready, detail));
    }
    if held.fixed || held.kind == WorkKind::Reservation {
        let detail = format!("class {} is never taken back for others", held.class);
        return Err((Refusal::NotPreemptable, detail));
    }
    // Room elsewhere is no room of this pool.
    let node = book.snapshot.nodes.get(&held.node);
    let here = node.is_some_and(|node| book.trees.of_pool(&node.pool) == Some(book.top));
    let serves = here && waiting.iter().any(|work| *work != held.work);
    if !serves {
        let detail = "no other work of the pool waits for room there".to_owned();
        return Err((Refusal::ServesNobody, detail));
    }
    Ok(())
}

fn pay<'a>(
    book: &Book,
    (_, held): (&AllocationId, &'a Allocation),
    purse: &mut Purse<'a>,
) -> Result<(), Why> {
    let node = book.snapshot.nodes.get(&held.node);
    let pool = node.map_or(book.top, |node| node.pool.as_str());
    let paid = purse.pay(pool, held);
    paid.map_err(|detail| (Refusal::OverBudget, detail))
}

/// What is lost with it: time of starting, or of what is in flight.
fn receipt(book: &Book, (id, held): (&AllocationId, &Allocation)) -> Receipt {
    let began = held.running_since.or(held.started_at);
    let ran = book.snapshot.now.ms_since(began.unwrap_or(held.granted_at));
    let item = held.item_ms.filter(|item| *item > 0);
    let in_flight = item.map_or(ran, |item| ran % item);
    Receipt {
        allocation: id.clone(),
        work: held.work.clone(),
        user: held.user.clone(),
        node: held.node.clone(),
        order: held.order,
        lost_ms: held.investment_ms.unwrap_or(in_flight),
        beneficiary: None,
        for_user: None,
    }
}
