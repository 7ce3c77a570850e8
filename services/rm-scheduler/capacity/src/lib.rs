//! The `capacity` planner (D7): pools divided among hierarchical queues with guarantees, limits,
//! priorities, gangs and preemption, by the application protocol, sections 6 to 11.
//!
//! [`Capacity`] plans the pools that have [`Queues`] and the work that is [`Queued`], and nothing
//! else; its plans have the form of every planner's, and `check` looks at them with the same
//! distrust. The class of what it grants is the path of the queue. [`config`] reads and judges what
//! people write, [`reload`] says what becomes of queues when it changes, [`view`] shows them.
//!
//! It owns nothing, reads no clock and draws no number: the same snapshot gives the same plan.
//! Shares are compared exactly, in integers. What one round has to know of the one before is in
//! the snapshot too, and all of it ends by itself.

pub mod amount;
mod by_pool;
pub mod config;
mod cycle;
mod delays;
mod future_nodes;
mod gang;
mod limits;
mod nodes;
mod order;
mod placement;
mod preempt;
pub mod reload;
mod reserve;
mod resource_vec;
mod round_state;
mod serve_order;
mod tree;
mod verdict;
mod view;

use hayward_rm_scheduler_domain::{
    Plan, Planner, Reason, Snapshot, Verdict,
    plan::{Numbers, Vacate, VacateReason},
    snapshot::{
        Demand,
        queues::{Queued, Queues},
    },
};

pub use by_pool::{ByPool, Rounds};
pub use delays::delays;
pub use view::{QueueView, used, view};

use round_state::Books;

#[derive(Debug, Clone, Copy, Default)]
pub struct Capacity;

impl Planner for Capacity {
    fn schedule(&self, snapshot: &Snapshot) -> Plan {
        let mut plan = Plan {
            round: snapshot.round,
            at: snapshot.now,
            ..Plan::default()
        };
        for (pool, queues) in &snapshot.queues {
            plan_pool(snapshot, (pool, queues), &mut plan);
        }
        for (work, demand) in &snapshot.demand {
            if let Some(queued) = demand.queued.as_deref().filter(|it| is_lost(snapshot, it)) {
                let mut held = snapshot.allocations.values();
                let holds = held.any(|held| held.work == *work);
                let verdict = without_pool(snapshot, (demand, queued), holds);
                plan.verdicts.insert(work.clone(), Box::new(verdict));
            }
        }
        plan.vacates.extend(without_queues(snapshot));
        plan.vacates.sort_by(|a, b| a.allocation.cmp(&b.allocation));
        plan
    }
}

/// What is held for work whose pool has no queues any more: an operator dropped them all.
fn without_queues(snapshot: &Snapshot) -> impl Iterator<Item = Vacate> {
    let held = snapshot.allocations.iter();
    held.filter_map(|(id, held)| {
        let demand = snapshot.demand.get(&held.work)?;
        let lost = demand.queued.as_deref().filter(|it| is_lost(snapshot, it));
        let stays = !held.leaving && !held.purged;
        lost.filter(|_| stays).map(|_| Vacate {
            allocation: id.clone(),
            reason: VacateReason::WorkGone,
            detail: "its pool has no queues any more".to_owned(),
            purge: false,
        })
    })
}

/// Pools share nothing, so each is planned by itself.
fn plan_pool(snapshot: &Snapshot, (pool, queues): (&str, &Queues), plan: &mut Plan) {
    // 1. Who asks in which queue, what is held, and what has to leave whatever anybody wants.
    let mut books = Books::open(snapshot, pool, queues);
    // 2. Those for whom a node is kept.
    reserve::serve(&mut books);
    // 3. Everybody else, turn by turn.
    cycle::run(&mut books);
    // 4. Who is under a guarantee takes from who is over one.
    preempt::run(&mut books);
    preempt::enforce(&mut books);
    // 5. Who waited long enough gets a node kept.
    reserve::renew(&mut books);
    // 6. Why each has what it has.
    plan.verdicts.extend(verdict::all(&books));
    plan.grants.extend(books.grants());
    plan.vacates.extend(books.vacates.into_values());
    plan.receipts.extend(books.receipts);
    plan.carried.queues.insert(pool.to_owned(), books.kept);
}

fn is_lost(snapshot: &Snapshot, queued: &Queued) -> bool {
    let pool = queued.pool.as_ref().or(snapshot.queues.keys().next());
    pool.is_none_or(|pool| !snapshot.queues.contains_key(pool))
}

fn without_pool(snapshot: &Snapshot, (demand, queued): (&Demand, &Queued), holds: bool) -> Verdict {
    let there: Vec<&str> = snapshot.queues.keys().map(String::as_str).collect();
    let detail = match &queued.pool {
        Some(pool) => format!("pool {pool} has no queues; those with queues are {there:?}"),
        None => "no pool has queues".to_owned(),
    };
    Verdict {
        reason: Reason::UnknownClass,
        waits: true,
        refused: !holds,
        class: None,
        detail: detail.into(),
        numbers: Numbers {
            wanted_processes: demand.max_processes,
            ..Numbers::default()
        },
        also: Vec::new(),
        unblock: None,
    }
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod scenarios;
