//! Tests of preemption budgets (B5). A budget is the percentage of quanta that may be preempted in
//! an hour: in one pool, or from one user in a tree of pools.
//!
//! `Fixture::eager().nodes(&[4, 4])` is a fleet of two nodes with 4 quanta each. `step` decides one
//! round and carries out its plan.

use std::collections::BTreeMap;

use hayward_vocabulary::{Timestamp, UserName};
use proptest::prelude::*;

use super::{HOUR_MS, HourlyPreemptions, allowed};
use crate::{
    Plan, Reason,
    input::{settings::Settings, snapshot::BlockEffect},
    output::plan::{Receipt, Unblock, VacateReason},
    tests::{
        fixture::{Fixture, share},
        properties::{self, WorkSpec},
    },
};

/// Sets the budgets in percent. `None` means that there is no limit.
fn set_budgets(fixture: &mut Fixture, pool: Option<u64>, user: Option<u64>) {
    let settings = &mut fixture.snapshot.tunables.settings;
    settings.preemption_pool_percent_per_hour = pool;
    settings.preemption_user_percent_per_hour = user;
}

/// Returns a fleet where the job of ann holds all eight quanta. The job of ben then arrives and is
/// entitled to four.
fn fleet_with_new_job(pool: Option<u64>, user: Option<u64>) -> Fixture {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    set_budgets(&mut fixture, pool, user);
    fixture.job("old", "ann", 1);
    fixture.step();
    fixture.job("new", "ben", 1);
    fixture
}

/// Runs rounds. Returns the plan of one more round, which is not carried out, and all receipts.
fn run_rounds(fixture: &mut Fixture, count: usize) -> (Plan, Vec<Receipt>) {
    let mut receipts = Vec::new();
    for _ in 0..count {
        receipts.extend(fixture.step().receipts);
    }
    (fixture.plan(), receipts)
}

/// The new job gets two processes, and its verdict names the budget that stops it (B5).
#[test]
fn work_beyond_the_budget_of_its_pool_waits_with_a_reason() {
    let mut fixture = fleet_with_new_job(Some(25), None);
    let (plan, receipts) = run_rounds(&mut fixture, 6);
    assert!(plan.is_empty(), "the fleet settles: {plan:#?}");
    // The budget is a quarter of eight quanta.
    assert_eq!((receipts.len(), share(&plan, "new").current), (2, 2));
    let verdict = &plan.verdicts["new"];
    assert_eq!(
        (verdict.reason, verdict.waits),
        (Reason::WaitingForPreemption, true)
    );
    assert!(
        verdict.detail.contains("2 of 2 quanta an hour"),
        "{verdict:?}"
    );
    let numbers = verdict.numbers.by_name();
    let budget_numbers =
        ["allowed", "spent", "needed"].map(|name| numbers[&format!("budget_{name}_quanta")]);
    assert_eq!(budget_numbers, [2, 2, 1]);
    // Three of eight quanta are 38 percent.
    let raise = |percent| Unblock::RaisePreemptionBudget {
        user: false,
        percent,
    };
    assert_eq!(verdict.unblock, Some(raise(38)));
    set_budgets(&mut fixture, Some(37), None);
    assert_eq!(fixture.plan().receipts, []);
    set_budgets(&mut fixture, Some(38), None);
    assert_eq!(fixture.plan().receipts.len(), 1, "the change is enough");
}

/// The budget of the old job's user stops the preemption (B5).
#[test]
fn the_budget_of_a_user_applies_to_the_whole_tree() {
    let mut fixture = fleet_with_new_job(None, Some(25));
    let (plan, receipts) = run_rounds(&mut fixture, 6);
    assert_eq!((receipts.len(), share(&plan, "new").current), (2, 2));
    let verdict = &plan.verdicts["new"];
    assert!(
        verdict.detail.contains("a user whose processes"),
        "{verdict:?}"
    );
    assert!(
        !verdict.detail.contains("ann"),
        "the verdict names no other user: {verdict:?}"
    );
    let raise = Unblock::RaisePreemptionBudget {
        user: true,
        percent: 38,
    };
    assert_eq!(verdict.unblock, Some(raise));
    // Each user has a separate budget.
    fixture.job("more", "cid", 1);
    let (plan, receipts) = run_rounds(&mut fixture, 6);
    assert!(
        receipts
            .iter()
            .all(|receipt| receipt.user.as_str() == "ben")
    );
    assert_eq!(share(&plan, "old").current, 6);
}

/// With a budget of zero, the new job gets only the space of processes that end (B5).
#[test]
fn work_beyond_the_budget_starts_when_other_processes_end() {
    let mut fixture = fleet_with_new_job(Some(0), None);
    let (plan, receipts) = run_rounds(&mut fixture, 3);
    assert_eq!((receipts.len(), share(&plan, "new").current), (0, 0));
    assert_eq!(plan.verdicts["new"].reason, Reason::WaitingForPreemption);
    for started in 1..=4 {
        // One process of the old job ends by itself.
        let mut allocations = fixture.snapshot.allocations.iter();
        let of_old_job = allocations.find(|(_, allocation)| allocation.work.as_str() == "old");
        let (id, _) = of_old_job.unwrap();
        let id = id.clone();
        fixture.snapshot.allocations.remove(&id);
        let (plan, receipts) = run_rounds(&mut fixture, 1);
        assert_eq!((receipts.len(), share(&plan, "new").current), (0, started));
    }
    // The new job has its entitlement now.
    assert!(!fixture.plan().verdicts["new"].waits);
}

/// With rounds an hour apart, each round has a new budget (B5).
#[test]
fn preemptions_of_more_than_an_hour_ago_do_not_count() {
    let mut fixture = fleet_with_new_job(Some(25), None);
    run_rounds(&mut fixture, 6);
    fixture.snapshot.tunables.cycle_ms = u64::try_from(HOUR_MS).unwrap();
    let (plan, _) = run_rounds(&mut fixture, 4);
    assert_eq!(share(&plan, "new").current, 4);
    assert!(!plan.verdicts["new"].waits);
}

/// A whole node is cleared only if the budget covers all its allocations (B5).
#[test]
fn a_reserved_node_is_not_cleared_in_part() {
    let mut fixture = fleet_with_new_job(Some(25), None);
    fixture.snapshot.demand.remove("new");
    fixture.reservation("whole", "cid", 4);
    let (plan, receipts) = run_rounds(&mut fixture, 3);
    assert_eq!(
        receipts,
        [],
        "four processes hold the node, and two may leave"
    );
    assert_eq!(plan.verdicts["whole"].reason, Reason::WaitingForPreemption);
    assert_eq!(
        plan.verdicts["whole"].unblock,
        Some(Unblock::RaisePreemptionBudget {
            user: false,
            percent: 50
        })
    );
    set_budgets(&mut fixture, Some(50), None);
    let (plan, receipts) = run_rounds(&mut fixture, 3);
    assert_eq!((receipts.len(), share(&plan, "whole").current), (4, 1));
}

/// Evacuations, offline nodes and withdrawn work are no preemptions (B5).
#[test]
fn the_budget_does_not_limit_departures_for_other_reasons() {
    let mut fixture = fleet_with_new_job(Some(0), Some(0));
    fixture.block("n00", BlockEffect::Evacuate);
    let plan = fixture.plan();
    assert_eq!(plan.vacates.len(), 4);
    assert!(
        plan.vacates
            .iter()
            .all(|vacate| vacate.reason == VacateReason::Blocked)
    );
    fixture.node("n01").offline = true;
    assert_eq!(fixture.plan().vacates.len(), 8);
    fixture.snapshot.demand.remove("old");
    assert_eq!(fixture.plan().vacates.len(), 8);
}

/// The reference settings have no budget, but a configured budget applies with them too (B5).
#[test]
fn the_reference_rules_keep_a_configured_budget() {
    let mut fixture = fleet_with_new_job(None, None);
    fixture.snapshot.tunables.settings = Settings::reference();
    let (_, receipts) = run_rounds(&mut fixture, 6);
    assert_eq!(receipts.len(), 4, "there is no budget");
    let mut fixture = fleet_with_new_job(None, None);
    fixture.snapshot.tunables.settings = Settings::reference();
    set_budgets(&mut fixture, Some(25), None);
    let (plan, receipts) = run_rounds(&mut fixture, 6);
    assert_eq!((receipts.len(), share(&plan, "new").current), (2, 2));
    assert_eq!(plan.verdicts["new"].reason, Reason::WaitingForPreemption);
}

#[test]
fn preemptions_expire_minute_by_minute() {
    let (mut hour, ann) = (HourlyPreemptions::default(), UserName::new("ann").unwrap());
    let time = |ms| Timestamp::from_unix_ms(ms);
    hour.record(HourlyPreemptions::minute(time(59_999)), "p", &ann, 3);
    hour.record(HourlyPreemptions::minute(time(60_000)), "p", &ann, 4);
    assert_eq!(hour.preempted_quanta()["p"][&ann], 7);
    // The whole first minute must be an hour ago.
    assert_eq!(hour.next_expiry(), Some(time(60_000 + HOUR_MS)));
    assert!(!hour.expire_minutes(time(59_999 + HOUR_MS)));
    assert!(hour.expire_minutes(time(60_000 + HOUR_MS)));
    assert_eq!(hour.preempted_quanta()["p"][&ann], 4);
    assert!(hour.expire_minutes(time(120_000 + HOUR_MS)));
    assert_eq!(hour, HourlyPreemptions::default());
}

/// Quanta preempted for a beneficiary in all rounds, by pool and by user.
#[derive(Default)]
struct PreemptedSums {
    pools: BTreeMap<String, u64>,
    users: BTreeMap<UserName, u64>,
}

impl PreemptedSums {
    fn add(&mut self, fixture: &Fixture, plan: &Plan) {
        for receipt in plan
            .receipts
            .iter()
            .filter(|receipt| receipt.beneficiary.is_some())
        {
            let pool = fixture.snapshot.nodes[&receipt.node].pool.clone();
            *self.pools.entry(pool).or_default() += receipt.quanta;
            *self.users.entry(receipt.user.clone()).or_default() += receipt.quanta;
        }
    }
}

fn fleet_quanta(fixture: &Fixture, pool: Option<&str>) -> u64 {
    let nodes = fixture.snapshot.nodes.values();
    let nodes = nodes.filter(|node| pool.is_none_or(|pool| node.pool == pool));
    let quantum = &fixture.snapshot.quantum;
    nodes
        .map(|node| quantum.quanta_of_node(&node.capacity))
        .sum()
}

/// Runs thirty rounds and calls `observe` with each plan. Every second round adds a piece of work
/// of `after`, and every seventh round withdraws one.
fn run_fleet(fixture: &mut Fixture, after: &[WorkSpec], mut observe: impl FnMut(&Fixture, &Plan)) {
    for round in 0..30_usize {
        if let Some(spec) = after.get(round / 2).filter(|_| round % 2 == 0) {
            properties::add_work(fixture, &format!("x{round:02}"), spec);
        }
        if round % 7 == 6 {
            fixture.snapshot.demand.pop_first();
        }
        let plan = fixture.plan();
        observe(fixture, &plan);
        fixture.carry_out(&plan);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// In all rounds together, no pool and no user loses more than one hour allows (B5).
    #[test]
    fn preemption_never_exceeds_a_budget(
        nodes in properties::nodes(),
        before in properties::work_specs(),
        after in properties::work_specs(),
        departure in 1..4_u64,
        (pool, user) in (0..120_u64, 0..120_u64),
        reference in prop::bool::weighted(0.2),
    ) {
        let mut fixture = properties::fleet(&nodes, &before, departure);
        if reference {
            fixture.snapshot.tunables.settings = Settings::reference();
        }
        set_budgets(&mut fixture, Some(pool), Some(user));
        let mut preempted = PreemptedSums::default();
        run_fleet(&mut fixture, &after, |fixture, plan| preempted.add(fixture, plan));
        for (name, preempted) in &preempted.pools {
            let max = allowed(fleet_quanta(&fixture, Some(name)), pool);
            prop_assert!(*preempted <= max, "{preempted} of {max} quanta of pool {name}");
        }
        for (name, preempted) in &preempted.users {
            let max = allowed(fleet_quanta(&fixture, None), user);
            prop_assert!(*preempted <= max, "{preempted} of {max} quanta of user {name}");
        }
    }

    /// A very large budget gives the same plans as no budget (B5).
    #[test]
    fn budgets_that_are_not_reached_change_no_plan(
        nodes in properties::nodes(),
        before in properties::work_specs(),
        after in properties::work_specs(),
    ) {
        let mut fixture = properties::fleet(&nodes, &before, 1);
        set_budgets(&mut fixture, Some(1_000_000), Some(1_000_000));
        let mut unlimited = properties::fleet(&nodes, &before, 1);
        set_budgets(&mut unlimited, None, None);
        let mut plans = Vec::new();
        run_fleet(&mut fixture, &after, |_, plan| plans.push(plan.clone()));
        let mut plans = plans.into_iter();
        let mut all_equal = true;
        run_fleet(&mut unlimited, &after, |_, plan| {
            all_equal &= plans.next().as_ref() == Some(plan);
        });
        prop_assert!(all_equal);
    }

    /// With a budget of zero no process is preempted, and plans become empty in the end (B5).
    #[test]
    fn a_budget_of_zero_stops_preemption_and_every_fleet_settles(
        nodes in properties::nodes(),
        before in properties::work_specs(),
        after in properties::work_specs(),
    ) {
        let mut fixture = properties::fleet(&nodes, &before, 1);
        set_budgets(&mut fixture, Some(0), Some(0));
        let mut preempted = PreemptedSums::default();
        run_fleet(&mut fixture, &after, |fixture, plan| preempted.add(fixture, plan));
        prop_assert!(preempted.pools.is_empty());
        for _ in 0..10 {
            fixture.step();
        }
        prop_assert!(fixture.plan().is_empty(), "{:#?}", fixture.plan());
    }
}
