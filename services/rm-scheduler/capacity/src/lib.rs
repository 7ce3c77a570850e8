//! The `capacity` planner: pools divided among hierarchical queues with guarantees, limits,
//! priorities, gangs and preemption.
//!
//! [`Capacity`] plans only the pools with [`Queues`] and the work with [`Queued`]. The plans have
//! the same form as those of the other planners, and `check` verifies them independently. The class
//! of a grant is the path of its queue.
//!
//! [`config`] parses and validates the configuration, [`reload`] handles changes of the
//! configuration, and [`queue_views`] shows queues.
//!
//! The planner is pure: the same snapshot gives the same plan. Shares are compared exactly, as
//! fractions of integers. State of earlier rounds is part of the snapshot, and all of it expires.

pub mod amount;
mod composite_planner;
pub mod config;
mod future_free_space;
mod gang_placement;
mod impossible_gangs;
mod nodes;
mod owner_limits;
mod place_work;
mod placement_rules;
mod preempt;
mod queue_tree;
mod queue_views;
pub mod reload;
mod replan_delays;
mod reserve;
mod resource_vec;
mod round_state;
mod serve_order;
mod sort_keys;
mod verdict;

use hayward_rm_scheduler_domain::{
    Plan, Planner, Reason, Snapshot, Verdict,
    plan::{Numbers, Vacate, VacateReason},
    snapshot::{
        Demand,
        queues::{Queued, Queues},
    },
};

pub use composite_planner::{CompositePlanner, Rounds};
pub use queue_views::{QueueView, queue_views, used_leaves};
pub use replan_delays::replan_delays;

use round_state::RoundState;

/// The planner of pools with queues.
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
            plan_pool(snapshot, pool, queues, &mut plan);
        }
        for (work, demand) in &snapshot.demand {
            if let Some(queued) = demand
                .queued
                .as_deref()
                .filter(|it| has_no_queue_pool(snapshot, it))
            {
                let mut allocations = snapshot.allocations.values();
                let has_allocation = allocations.any(|allocation| allocation.work == *work);
                let verdict = explain_missing_pool(snapshot, demand, queued, has_allocation);
                plan.verdicts.insert(work.clone(), Box::new(verdict));
            }
        }
        plan.vacates.extend(vacate_without_queues(snapshot));
        plan.vacates.sort_by(|a, b| a.allocation.cmp(&b.allocation));
        plan
    }
}

/// Vacates the allocations of queued work whose pool no longer has queues.
fn vacate_without_queues(snapshot: &Snapshot) -> impl Iterator<Item = Vacate> {
    let allocations = snapshot.allocations.iter();
    allocations.filter_map(|(id, allocation)| {
        let demand = snapshot.demand.get(&allocation.work)?;
        let queued_without_queues = demand
            .queued
            .as_deref()
            .filter(|it| has_no_queue_pool(snapshot, it));
        let is_staying = !allocation.leaving && !allocation.purged;
        queued_without_queues
            .filter(|_| is_staying)
            .map(|_| Vacate {
                allocation: id.clone(),
                reason: VacateReason::WorkGone,
                detail: "its pool no longer has queues".to_owned(),
                purge: false,
            })
    })
}

/// Plans one pool; pools are independent.
fn plan_pool(snapshot: &Snapshot, pool: &str, queues: &Queues, plan: &mut Plan) {
    // 1. Read the snapshot: queues, applications, allocations, and forced vacates.
    let mut round = RoundState::open(snapshot, pool, queues);
    // 2. Serve active reservations.
    reserve::serve(&mut round);
    // 3. Place all other work, in serve order.
    place_work::run(&mut round);
    // 4. Preempt: queues below their guarantee get space from queues above theirs. Then reduce
    // queues above their maximum.
    preempt::run(&mut round);
    preempt::enforce(&mut round);
    // 5. Reserve nodes for work that has waited long enough.
    reserve::renew(&mut round);
    // 6. Write verdicts.
    plan.verdicts.extend(verdict::all_verdicts(&round));
    plan.grants.extend(round.grants());
    plan.vacates.extend(round.vacates.into_values());
    plan.receipts.extend(round.receipts);
    plan.carried.queues.insert(pool.to_owned(), round.carried);
}

fn has_no_queue_pool(snapshot: &Snapshot, queued: &Queued) -> bool {
    let pool = queued.pool.as_ref().or(snapshot.queues.keys().next());
    pool.is_none_or(|pool| !snapshot.queues.contains_key(pool))
}

fn explain_missing_pool(
    snapshot: &Snapshot,
    demand: &Demand,
    queued: &Queued,
    has_allocation: bool,
) -> Verdict {
    let pools_with_queues: Vec<&str> = snapshot.queues.keys().map(String::as_str).collect();
    let detail = match &queued.pool {
        Some(pool) => {
            format!("pool {pool} has no queues; those with queues are {pools_with_queues:?}")
        }
        None => "no pool has queues".to_owned(),
    };
    Verdict {
        reason: Reason::UnknownClass,
        waits: true,
        refused: !has_allocation,
        class: None,
        detail,
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
mod property_tests;
#[cfg(test)]
mod scenario_tests;
