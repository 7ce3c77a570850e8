//! Properties of random fleets over several rounds: fleets settle, plans pass the check, and the
//! check refuses tampered plans.

use hayward_vocabulary::{Size, WorkKind};
use proptest::prelude::*;

use super::fixture::{Fixture, GIB, terms};
use crate::{
    FairShare, Part, Planner, Snapshot, check,
    index::node_space::NodeSpace,
    input::snapshot::{BlockEffect, Policy, Pool},
    output::plan::Grant,
    prune,
};

#[derive(Debug, Clone)]
pub(crate) struct WorkSpec {
    /// 0 is a reservation, 1 and 2 are services, and greater numbers are jobs.
    kind: u8,
    user: u8,
    class: u8,
    quanta: u64,
    cap: u64,
    tasks: u64,
    /// Whether the work has a node list.
    listed: bool,
    gpu_milli: u64,
}

fn gpu_milli() -> impl Strategy<Value = u64> {
    let gpu_sizes = [300, 600, 1_000, 2_000];
    prop_oneof![3 => Just(0), 1 => prop::sample::select(gpu_sizes.to_vec())]
}

pub(crate) fn work_specs() -> impl Strategy<Value = Vec<WorkSpec>> {
    let work_spec = (
        0..10_u8,
        0..5_u8,
        0..4_u8,
        1..6_u64,
        prop_oneof![Just(1_000_u64), 0..12_u64],
        1..40_u64,
        prop::bool::weighted(0.1),
        gpu_milli(),
    )
        .prop_map(
            |(kind, user, class, quanta, cap, tasks, listed, gpu_milli)| WorkSpec {
                kind,
                user,
                class,
                quanta,
                cap,
                tasks,
                listed,
                gpu_milli,
            },
        );
    prop::collection::vec(work_spec, 1..14)
}

/// Builds a fleet with pools `default` and `below`. Each node has quanta, and a kind: 1 is a node
/// in `below`, and 2 or more is a node with two GPUs.
pub(crate) fn fleet(
    nodes: &[(u64, u8)],
    work_specs: &[WorkSpec],
    departure_rounds: u64,
) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.departure_rounds = departure_rounds;
    let below = Pool {
        parent: Some("default".into()),
        search_order: 1,
        ..Pool::default()
    };
    fixture.snapshot.pools.insert("below".into(), below);
    fixture.class("heavy", terms(Policy::FairShare, 10, 300), "default");
    fixture.class("low", terms(Policy::FairShare, 10, 100), "below");
    fixture.class("late", terms(Policy::FairShare, 20, 100), "default");
    fixture.snapshot.tunables.global_allotment_bytes = Some(9 * GIB);
    for (index, (quanta, kind)) in nodes.iter().enumerate() {
        let name = format!("n{index:02}");
        fixture.node_in(if *kind == 1 { "below" } else { "default" }, &name, *quanta);
        fixture.node(&name).capacity.gpu_milli = if *kind >= 2 { 2_000 } else { 0 };
    }
    for (index, spec) in work_specs.iter().enumerate() {
        add_work(&mut fixture, &format!("w{index:02}"), spec);
    }
    fixture
}

pub(crate) fn add_work(fixture: &mut Fixture, id: &str, spec: &WorkSpec) {
    let user = format!("u{}", spec.user);
    let demand = match spec.kind {
        0 => fixture.reservation(id, &user, spec.quanta),
        1 | 2 => fixture.service(id, &user, spec.quanta),
        _ => {
            let demand = fixture.job(id, &user, spec.quanta);
            demand.class = Some(["fair", "heavy", "low", "late"][usize::from(spec.class)].into());
            demand.max_processes = spec.cap;
            demand.remaining_tasks = spec.tasks;
            demand
        }
    };
    if demand.kind != WorkKind::Reservation {
        demand.size.gpu_milli = spec.gpu_milli;
    }
    if spec.listed {
        demand.node_list = ["n00", "n01"].map(crate::tests::fixture::node_name).into();
    }
}

/// Runs rounds until three in a row change nothing. Panics if this takes more than 40 rounds.
fn settle(fixture: &mut Fixture) {
    let mut unchanged_rounds = 0;
    for _ in 0..40 {
        unchanged_rounds = if fixture.step().is_empty() {
            unchanged_rounds + 1
        } else {
            0
        };
        if unchanged_rounds == 3 {
            return;
        }
    }
    panic!("the fleet does not settle: {:#?}", fixture.plan());
}

/// Returns nodes for [`fleet`]: their quanta and their kind.
pub(crate) fn nodes() -> impl Strategy<Value = Vec<(u64, u8)>> {
    prop::collection::vec((1..9_u64, 0..4_u8), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A node fails, and work comes and goes. `Fixture::plan` checks every plan.
    #[test]
    fn any_fleet_settles_and_every_plan_passes_the_check(
        nodes in nodes(),
        before in work_specs(),
        after in work_specs(),
        departure_rounds in 1..4_u64,
        failed_node in 0..8_usize,
        failure in 0..5_u8,
    ) {
        let mut fixture = fleet(&nodes, &before, departure_rounds);
        settle(&mut fixture);
        let name = format!("n{:02}", failed_node % nodes.len());
        match failure {
            0 => fixture.node(&name).lost = true,
            1 => fixture.node(&name).offline = true,
            2 => fixture.block(&name, BlockEffect::Evacuate),
            3 => fixture.block(&name, BlockEffect::Mark),
            _ => fixture.node(&name).capacity = Size { cpu_milli: 1_000_000, ..Size::default() },
        }
        for (index, spec) in after.iter().enumerate() {
            add_work(&mut fixture, &format!("x{index:02}"), spec);
        }
        fixture.step();
        fixture.snapshot.demand.pop_first();
        settle(&mut fixture);
    }

    /// Jobs may start and grow without limits. Processes have one size, departures are immediate,
    /// and there are no node lists. With mixed sizes, a fleet may take longer: work that is placed
    /// first can fragment the space of other work, and then entitlements change again.
    ///
    /// With several pools, entitlements may exceed the space, so a fleet needs two more rounds
    ///
    #[test]
    fn without_growth_limits_a_fleet_settles_in_few_rounds(
        nodes in nodes(),
        mut before in work_specs(),
        mut after in work_specs(),
    ) {
        for spec in before.iter_mut().chain(&mut after) {
            (spec.quanta, spec.gpu_milli, spec.listed) = (1, 0, false);
            // A reservation is a whole node, and therefore has another size.
            spec.kind = spec.kind.max(1);
        }
        let mut fixture = fleet(&nodes, &before, 1);
        fixture.snapshot.tunables.initialization_cap = 0;
        fixture.snapshot.tunables.expand_by_doubling = false;
        fixture.snapshot.tunables.defragmentation = false;
        // A squatter that goes home leaves in one round and arrives in the next.
        fixture.snapshot.tunables.settings.squatters_go_home = false;
        let nodes_of_fleet = fixture.snapshot.nodes.values();
        let mut pools: Vec<&String> = nodes_of_fleet.map(|node| &node.pool).collect();
        pools.sort();
        pools.dedup();
        let rounds = if pools.len() == 1 { 3 } else { 5 };
        for _ in 0..rounds {
            fixture.step();
        }
        prop_assert!(fixture.plan().is_empty(), "{:#?}", fixture.plan());
        for (index, spec) in after.iter().enumerate() {
            add_work(&mut fixture, &format!("x{index:02}"), spec);
        }
        for _ in 0..rounds {
            fixture.step();
        }
        prop_assert!(fixture.plan().is_empty(), "{:#?}", fixture.plan());
    }

    /// No free space fits a process of work that is below its cap. The invariant requires this only
    /// for work below its entitlement (I-9).
    #[test]
    fn a_settled_fleet_has_no_idle_space_that_work_could_use(
        nodes in nodes(),
        work_specs in work_specs(),
    ) {
        let mut fixture = fleet(&nodes, &work_specs, 1);
        settle(&mut fixture);
        let plan = fixture.plan();
        for (id, demand) in &fixture.snapshot.demand {
            let share = crate::tests::fixture::share(&plan, id.as_str());
            if demand.kind != WorkKind::Job || share.current >= share.wanted {
                continue;
            }
            let is_low_class = demand.class.as_deref() == Some("low");
            for (name, node) in &fixture.snapshot.nodes {
                let permitted = (demand.node_list.is_empty() || demand.node_list.contains(name))
                    && (!is_low_class || node.pool == "below");
                let space = free_space(&fixture.snapshot, name.as_str());
                let granted = fixture.snapshot.quantum.granted(&demand.size);
                prop_assert!(
                    !permitted || space.count_fitting(share.quanta, &granted) == 0,
                    "{id} could use {name}: {plan:#?}"
                );
            }
        }
    }

    #[test]
    fn equal_processes_and_unlimited_demand_are_divided_evenly(
        nodes in prop::collection::vec(1..9_u64, 1..8),
        users in 1..7_u64,
    ) {
        let mut fixture = Fixture::eager().nodes(&nodes);
        for user in 0..users {
            fixture.job(&format!("j{user}"), &format!("u{user}"), 1);
        }
        settle(&mut fixture);
        let plan = fixture.plan();
        let current = |user| crate::tests::fixture::share(&plan, &format!("j{user}")).current;
        let counts: Vec<u64> = (0..users).map(current).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{counts:?}");
        prop_assert_eq!(counts.iter().sum::<u64>(), nodes.iter().sum::<u64>());
    }

    #[test]
    fn tampered_grants_are_refused_and_the_others_stay(
        nodes in nodes(),
        work_specs in work_specs(),
        change in 0..6_u8,
    ) {
        let mut fixture = fleet(&nodes, &work_specs, 1);
        fixture.snapshot.tunables.initialization_cap = 0;
        let plan = fixture.plan();
        prop_assume!(!plan.grants.is_empty());
        let mut tampered = plan.clone();
        tamper(&mut tampered.grants[0], change);
        let violations = check(&fixture.snapshot, &tampered).unwrap_err();
        prop_assert!(violations.iter().all(|violation| matches!(violation.part, Part::Grant(_))));
        let (pruned, refused) = prune(&fixture.snapshot, tampered);
        prop_assert!(!refused.is_empty());
        prop_assert_eq!(check(&fixture.snapshot, &pruned), Ok(()));
        prop_assert!(pruned.grants.len() < plan.grants.len());
    }

    #[test]
    fn the_same_snapshot_gives_the_same_plan(nodes in nodes(), work_specs in work_specs()) {
        let mut fixture = fleet(&nodes, &work_specs, 2);
        fixture.step();
        let text = serde_json::to_string(&fixture.snapshot).unwrap();
        let restored: Snapshot = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(FairShare.schedule(&restored), FairShare.schedule(&fixture.snapshot));
    }
}

/// Returns the space of a node that no allocation holds.
fn free_space(snapshot: &Snapshot, name: &str) -> NodeSpace {
    let node = &snapshot.nodes[name];
    let mut space = NodeSpace::new(
        snapshot.quantum.quanta_of_node(&node.capacity),
        &node.capacity,
    );
    for allocation in snapshot.allocations.values() {
        if allocation.node.as_str() == name {
            space.take(allocation.quanta, &allocation.size, &allocation.gpus);
        }
    }
    space
}

/// Changes one field of a grant, so that the check must refuse it.
fn tamper(grant: &mut Grant, change: u8) {
    match change {
        0 => grant.quanta += 1,
        1 => grant.size.memory_bytes += 1,
        2 => grant.node = crate::tests::fixture::node_name("nowhere"),
        3 => grant.work = crate::tests::fixture::work_id("nothing"),
        4 => grant.class = "nothing".into(),
        _ => grant.fixed = !grant.fixed,
    }
}

/// Regression: space was freed for `x00`. The second placement of the round returned it to the work
/// that had lost it.
#[test]
fn freed_space_does_not_go_back_to_its_donor_forever() {
    let spec = |kind, class, quanta, tasks| WorkSpec {
        kind,
        user: 0,
        class,
        quanta,
        cap: 1000,
        tasks,
        listed: false,
        gpu_milli: 0,
    };
    let nodes = [(1, 0), (6, 2), (5, 2), (5, 2), (6, 0), (1, 2), (8, 1)];
    let before = [spec(0, 0, 1, 1), spec(3, 1, 2, 11), spec(3, 2, 5, 1)];
    let mut fixture = fleet(&nodes, &before, 1);
    settle(&mut fixture);
    fixture.node("n02").lost = true;
    add_work(&mut fixture, "x00", &spec(3, 2, 1, 2));
    fixture.step();
    fixture.snapshot.demand.pop_first();
    settle(&mut fixture);
}

/// Regression: both `w02` and its peer `w01` were donors for `x00`, and each took its space back
/// (W-21).
#[test]
fn donors_do_not_preempt_each_other_in_turn() {
    let spec = |(kind, class), quanta, tasks, listed| WorkSpec {
        kind,
        user: 0,
        class,
        quanta,
        cap: 1000,
        tasks,
        listed,
        gpu_milli: 0,
    };
    let nodes = [(6, 1), (6, 1), (1, 0), (5, 0), (2, 2), (1, 0)];
    let before = [
        spec((0, 0), 3, 1, false),
        spec((3, 2), 1, 9, false),
        spec((3, 3), 1, 6, false),
    ];
    let mut fixture = fleet(&nodes, &before, 1);
    settle(&mut fixture);
    fixture.node("n02").lost = true;
    add_work(&mut fixture, "x00", &spec((3, 0), 1, 8, true));
    add_work(&mut fixture, "x01", &spec((0, 0), 2, 1, false));
    fixture.step();
    fixture.snapshot.demand.pop_first();
    settle(&mut fixture);
}
