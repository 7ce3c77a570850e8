use std::collections::BTreeMap;

use hayward_vocabulary::{Timestamp, UserName};
use proptest::prelude::*;

use super::{HOUR_MS, Hour, allowed};
use crate::{
    Plan, Reason,
    input::{settings::Settings, snapshot::BlockEffect},
    output::plan::{Receipt, Unblock, VacateReason},
    tests::{
        fixture::{World, share},
        properties::{self, Ask},
    },
};

fn budgets(world: &mut World, pool: Option<u64>, user: Option<u64>) {
    let settings = &mut world.snapshot.tunables.settings;
    settings.preemption_pool_percent_per_hour = pool;
    settings.preemption_user_percent_per_hour = user;
}

/// Ann has all eight quanta when ben comes, who is due four of them.
fn newcomer(pool: Option<u64>, user: Option<u64>) -> World {
    let mut world = World::eager().nodes(&[4, 4]);
    budgets(&mut world, pool, user);
    world.job("old", "ann", 1);
    world.step();
    world.job("new", "ben", 1);
    world
}

fn rounds(world: &mut World, rounds: usize) -> (Plan, Vec<Receipt>) {
    let mut receipts = Vec::new();
    for _ in 0..rounds {
        receipts.extend(world.step().receipts);
    }
    (world.plan(), receipts)
}

#[test]
fn b_5_beyond_the_budget_of_its_pool_work_waits_and_says_so() {
    let mut world = newcomer(Some(25), None);
    let (plan, receipts) = rounds(&mut world, 6);
    assert!(plan.is_empty(), "it comes to rest: {plan:#?}");
    // A quarter of eight quanta.
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
    let named = ["allowed", "spent", "needed"].map(|it| numbers[&format!("budget_{it}_quanta")]);
    assert_eq!(named, [2, 2, 1]);
    // Three of eight.
    let raise = |percent| Unblock::RaisePreemptionBudget {
        user: false,
        percent,
    };
    assert_eq!(verdict.unblock, Some(raise(38)));
    budgets(&mut world, Some(37), None);
    assert_eq!(world.plan().receipts, []);
    budgets(&mut world, Some(38), None);
    assert_eq!(world.plan().receipts.len(), 1, "the change is enough");
}

#[test]
fn b_5_the_budget_of_one_user_is_of_the_whole_tree() {
    let mut world = newcomer(None, Some(25));
    let (plan, receipts) = rounds(&mut world, 6);
    assert_eq!((receipts.len(), share(&plan, "new").current), (2, 2));
    let verdict = &plan.verdicts["new"];
    assert!(
        verdict.detail.contains("a user whose processes"),
        "{verdict:?}"
    );
    assert!(!verdict.detail.contains("ann"), "S12: {verdict:?}");
    let raise = Unblock::RaisePreemptionBudget {
        user: true,
        percent: 38,
    };
    assert_eq!(verdict.unblock, Some(raise));
    // What another loses is another budget.
    world.job("more", "cid", 1);
    let (plan, receipts) = rounds(&mut world, 6);
    assert!(receipts.iter().all(|it| it.user.as_str() == "ben"));
    assert_eq!(share(&plan, "old").current, 6);
}

#[test]
fn b_5_beyond_it_work_starts_as_others_end() {
    let mut world = newcomer(Some(0), None);
    let (plan, receipts) = rounds(&mut world, 3);
    assert_eq!((receipts.len(), share(&plan, "new").current), (0, 0));
    assert_eq!(plan.verdicts["new"].reason, Reason::WaitingForPreemption);
    for started in 1..=4 {
        // One of hers ends by itself.
        let old = |it: &crate::input::snapshot::Allocation| it.work.as_str() == "old";
        let found = world.snapshot.allocations.iter().find(|(_, it)| old(it));
        let id = found.unwrap().0.clone();
        world.snapshot.allocations.remove(&id);
        let (plan, receipts) = rounds(&mut world, 1);
        assert_eq!((receipts.len(), share(&plan, "new").current), (0, started));
    }
    // It has its due now.
    assert!(!world.plan().verdicts["new"].waits);
}

#[test]
fn b_5_what_was_taken_back_an_hour_ago_is_forgotten() {
    let mut world = newcomer(Some(25), None);
    rounds(&mut world, 6);
    world.snapshot.tunables.cycle_ms = u64::try_from(HOUR_MS).unwrap();
    let (plan, _) = rounds(&mut world, 4);
    assert_eq!(share(&plan, "new").current, 4);
    assert!(!plan.verdicts["new"].waits);
}

#[test]
fn b_5_a_promised_node_is_not_cleared_in_part() {
    let mut world = newcomer(Some(25), None);
    world.snapshot.demand.remove("new");
    world.reservation("whole", "cid", 4);
    let (plan, receipts) = rounds(&mut world, 3);
    assert_eq!(receipts, [], "four have to leave, and two may");
    assert_eq!(plan.verdicts["whole"].reason, Reason::WaitingForPreemption);
    assert_eq!(
        plan.verdicts["whole"].unblock,
        Some(Unblock::RaisePreemptionBudget {
            user: false,
            percent: 50
        })
    );
    budgets(&mut world, Some(50), None);
    let (plan, receipts) = rounds(&mut world, 3);
    assert_eq!((receipts.len(), share(&plan, "whole").current), (4, 1));
}

#[test]
fn b_5_what_leaves_for_other_reasons_is_not_held_back() {
    let mut world = newcomer(Some(0), Some(0));
    world.block("n00", BlockEffect::Evacuate);
    let plan = world.plan();
    assert_eq!(plan.vacates.len(), 4);
    assert!(
        plan.vacates
            .iter()
            .all(|it| it.reason == VacateReason::Blocked)
    );
    world.node("n01").offline = true;
    assert_eq!(world.plan().vacates.len(), 8);
    world.snapshot.demand.remove("old");
    assert_eq!(world.plan().vacates.len(), 8);
}

#[test]
fn b_5_the_reference_sheds_within_the_budget_that_is_set() {
    let mut world = newcomer(None, None);
    world.snapshot.tunables.settings = Settings::reference();
    assert_eq!(rounds(&mut world, 6).1.len(), 4, "it has none of its own");
    let mut world = newcomer(None, None);
    world.snapshot.tunables.settings = Settings::reference();
    budgets(&mut world, Some(25), None);
    let (plan, receipts) = rounds(&mut world, 6);
    assert_eq!((receipts.len(), share(&plan, "new").current), (2, 2));
    assert_eq!(plan.verdicts["new"].reason, Reason::WaitingForPreemption);
}

#[test]
fn an_hour_passes_minute_by_minute() {
    let (mut hour, ann) = (Hour::default(), UserName::new("ann").unwrap());
    let at = |ms| Timestamp::from_unix_ms(ms);
    hour.note(Hour::minute(at(59_999)), ("p", &ann), 3);
    hour.note(Hour::minute(at(60_000)), ("p", &ann), 4);
    assert_eq!(hour.taken_back()["p"][&ann], 7);
    // All of the first minute has to be an hour ago.
    assert_eq!(hour.ends(), Some(at(60_000 + HOUR_MS)));
    assert!(!hour.pass(at(59_999 + HOUR_MS)));
    assert!(hour.pass(at(60_000 + HOUR_MS)));
    assert_eq!(hour.taken_back()["p"][&ann], 4);
    assert!(hour.pass(at(120_000 + HOUR_MS)));
    assert_eq!(hour, Hour::default());
}

/// Quanta taken back for somebody, by pool and by user of a tree, in all rounds.
#[derive(Default)]
struct Taken {
    pools: BTreeMap<String, u64>,
    users: BTreeMap<UserName, u64>,
}

impl Taken {
    fn add(&mut self, world: &World, plan: &Plan) {
        for receipt in plan.receipts.iter().filter(|it| it.beneficiary.is_some()) {
            let pool = world.snapshot.nodes[&receipt.node].pool.clone();
            *self.pools.entry(pool).or_default() += receipt.order;
            *self.users.entry(receipt.user.clone()).or_default() += receipt.order;
        }
    }
}

fn quanta(world: &World, pool: Option<&str>) -> u64 {
    let nodes = world.snapshot.nodes.values();
    let nodes = nodes.filter(|node| pool.is_none_or(|pool| node.pool == pool));
    let quantum = &world.snapshot.quantum;
    nodes.map(|node| quantum.node_order(&node.capacity)).sum()
}

fn lives(world: &mut World, after: &[Ask], mut each: impl FnMut(&World, &Plan)) {
    for round in 0..30_usize {
        if let Some(ask) = after.get(round / 2).filter(|_| round % 2 == 0) {
            properties::add(world, &format!("x{round:02}"), ask);
        }
        if round % 7 == 6 {
            world.snapshot.demand.pop_first();
        }
        let plan = world.plan();
        each(world, &plan);
        world.carry_out(&plan);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Half a minute of any fleet: never more than the budgets, whoever comes and goes.
    #[test]
    fn b_5_never_beyond_a_budget(
        nodes in properties::nodes(),
        before in properties::asks(),
        after in properties::asks(),
        departure in 1..4_u64,
        (pool, user) in (0..120_u64, 0..120_u64),
        reference in prop::bool::weighted(0.2),
    ) {
        let mut world = properties::fleet(&nodes, &before, departure);
        if reference {
            world.snapshot.tunables.settings = Settings::reference();
        }
        budgets(&mut world, Some(pool), Some(user));
        let mut taken = Taken::default();
        lives(&mut world, &after, |world, plan| taken.add(world, plan));
        for (name, taken) in &taken.pools {
            let most = allowed(quanta(&world, Some(name)), pool);
            prop_assert!(*taken <= most, "pool {name} gave up {taken} of {most}");
        }
        for (name, taken) in &taken.users {
            let most = allowed(quanta(&world, None), user);
            prop_assert!(*taken <= most, "user {name} gave up {taken} of {most}");
        }
    }

    /// A budget nobody comes near changes nothing.
    #[test]
    fn b_5_budgets_that_are_not_reached_change_no_plan(
        nodes in properties::nodes(),
        before in properties::asks(),
        after in properties::asks(),
    ) {
        let mut world = properties::fleet(&nodes, &before, 1);
        budgets(&mut world, Some(1_000_000), Some(1_000_000));
        let mut free = properties::fleet(&nodes, &before, 1);
        budgets(&mut free, None, None);
        let mut plans = Vec::new();
        lives(&mut world, &after, |_, plan| plans.push(plan.clone()));
        let mut plans = plans.into_iter();
        let mut same = true;
        lives(&mut free, &after, |_, plan| same &= plans.next().as_ref() == Some(plan));
        prop_assert!(same);
    }

    /// Without any budget nothing is taken back for anybody, and the fleet comes to rest.
    #[test]
    fn b_5_without_budget_every_fleet_rests(
        nodes in properties::nodes(),
        before in properties::asks(),
        after in properties::asks(),
    ) {
        let mut world = properties::fleet(&nodes, &before, 1);
        budgets(&mut world, Some(0), Some(0));
        let mut taken = Taken::default();
        lives(&mut world, &after, |world, plan| taken.add(world, plan));
        prop_assert!(taken.pools.is_empty());
        for _ in 0..10 {
            world.step();
        }
        prop_assert!(world.plan().is_empty(), "{:#?}", world.plan());
    }
}
