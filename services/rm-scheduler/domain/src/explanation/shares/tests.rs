//! Shares add up in any fleet, a cap reports its parts, and idle space has a reason.

use proptest::prelude::*;

use crate::{
    FairShare, Planner,
    input::{
        settings::Settings,
        snapshot::{BlockEffect, Policy, Pool},
    },
    output::plan::{CapParts, GroupQuanta, Idle, PoolShare, Shares},
    tests::fixture::{Fixture, GIB, share, terms},
};

#[derive(Debug, Clone)]
struct NodeSpec {
    quanta: u64,
    /// Index in [`POOLS`].
    pool: usize,
    /// Later change of the node in [`break_nodes`].
    condition: u8,
}

#[derive(Debug, Clone)]
struct WorkSpec {
    /// 0 is a reservation, 1 a service, and greater numbers are jobs.
    kind: u8,
    /// Index in [`CLASSES`].
    class: usize,
    user: u8,
    quanta: u64,
    max_processes: u64,
    tasks: u64,
}

fn node_specs() -> impl Strategy<Value = Vec<NodeSpec>> {
    let node = (1..9_u64, 0..POOLS.len(), 0..12_u8);
    let node = node.prop_map(|(quanta, pool, condition)| NodeSpec {
        quanta,
        pool,
        condition,
    });
    prop::collection::vec(node, 1..8)
}

fn work_specs() -> impl Strategy<Value = Vec<WorkSpec>> {
    let identity = (0..8_u8, 0..CLASSES.len(), 0..3_u8);
    let amounts = (1..6_u64, prop_oneof![Just(99_u64), 0..7_u64], 1..30_u64);
    let work =
        (identity, amounts).prop_map(|((kind, class, user), (quanta, max_processes, tasks))| {
            WorkSpec {
                kind,
                class,
                user,
                quanta,
                max_processes,
                tasks,
            }
        });
    prop::collection::vec(work, 1..10)
}

const POOLS: [&str; 3] = ["default", "below", "apart"];
const CLASSES: [&str; 5] = ["fair", "heavy", "low", "late", "other"];

/// Builds a fleet with two trees of pools. Its jobs grow without limits if it is `eager`.
fn fleet(nodes: &[NodeSpec], work: &[WorkSpec], eager: bool) -> Fixture {
    let mut fixture = if eager {
        Fixture::eager()
    } else {
        Fixture::new()
    };
    fixture.snapshot.tunables.use_prediction = !eager;
    fixture.snapshot.tunables.global_allotment_bytes = Some(7 * GIB);
    let below = Pool {
        parent: Some("default".into()),
        ..Pool::default()
    };
    fixture.snapshot.pools.insert("below".into(), below);
    fixture
        .snapshot
        .pools
        .insert("apart".into(), Pool::default());
    fixture.class("heavy", terms(Policy::FairShare, 10, 300), "default");
    fixture.class("low", terms(Policy::FairShare, 10, 100), "below");
    fixture.class("late", terms(Policy::FairShare, 20, 100), "default");
    fixture.class("other", terms(Policy::FairShare, 10, 100), "apart");
    for (index, node) in nodes.iter().enumerate() {
        fixture.node_in(POOLS[node.pool], &format!("n{index:02}"), node.quanta);
    }
    for (index, spec) in work.iter().enumerate() {
        let (id, user) = (format!("w{index:02}"), format!("u{}", spec.user));
        match spec.kind {
            0 => drop(fixture.reservation(&id, &user, spec.quanta)),
            1 => drop(fixture.service(&id, &user, spec.quanta)),
            _ => {
                let demand = fixture.job_in(CLASSES[spec.class], &id, &user, spec.quanta);
                demand.max_processes = spec.max_processes;
                demand.remaining_tasks = spec.tasks;
            }
        }
    }
    fixture
}

/// Changes the condition of nodes on which work already runs: lost, offline, marked, declining,
/// shrunken, removed, or in an unknown pool.
fn break_nodes(fixture: &mut Fixture, nodes: &[NodeSpec]) {
    for (index, node) in nodes.iter().enumerate() {
        let name = format!("n{index:02}");
        match node.condition {
            0 => fixture.node(&name).lost = true,
            1 => fixture.node(&name).offline = true,
            2 => fixture.block(&name, BlockEffect::Mark),
            3 => fixture.node(&name).takes_work = false,
            4 => fixture.node(&name).capacity.memory_bytes = node.quanta / 2 * GIB,
            5 => drop(fixture.snapshot.nodes.remove(name.as_str())),
            6 => fixture.node(&name).pool = "unknown".into(),
            _ => {}
        }
    }
}

/// Asserts that [`Shares::faults`] finds nothing. Also sums all work independently of it.
fn assert_adds_up(shares: &Shares) {
    assert_eq!(shares.faults(), Vec::<String>::new(), "{shares:#?}");
    let work = shares.classes.values().flat_map(|class| {
        let users = class.users.values();
        users.flat_map(|user| user.work.values())
    });
    let held: u64 = work.map(|work| work.tally.held).sum();
    let pools = shares.pools.values();
    let in_pools: u64 = pools.map(|pool| pool.held + pool.held_closed).sum();
    assert_eq!(
        held + shares.unclassed.held,
        in_pools + shares.outside_pools,
        "{shares:#?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_level_is_the_sum_of_the_level_below(
        nodes in node_specs(),
        work in work_specs(),
        (eager, reference) in (any::<bool>(), any::<bool>()),
    ) {
        let mut fixture = fleet(&nodes, &work, eager);
        if reference {
            fixture.snapshot.tunables.settings = Settings::reference();
        }
        for _ in 0..3 {
            assert_adds_up(&fixture.step().shares);
        }
        break_nodes(&mut fixture, &nodes);
        // Withdrawn work holds its space until its processes have left.
        let first = fixture.snapshot.demand.keys().next().cloned().unwrap();
        fixture.snapshot.demand.remove(&first);
        fixture.departure_rounds = 3;
        for _ in 0..4 {
            assert_adds_up(&fixture.step().shares);
        }
    }
}

/// Plans a round and returns the share of the pool `default`.
fn default_pool(fixture: &Fixture) -> PoolShare {
    let mut shares = FairShare.schedule(&fixture.snapshot).shares;
    shares.pools.remove("default").unwrap()
}

#[test]
fn capacity_pools_priorities_and_classes_add_up_after_a_node_is_marked() {
    let mut fixture = Fixture::eager().nodes(&[6, 4]);
    fixture.service("svc", "c", 1);
    fixture.job("one", "a", 1);
    fixture.job("two", "b", 2);
    fixture.step();
    fixture.block("n01", BlockEffect::Mark);
    let plan = fixture.step();
    let shares = &plan.shares;
    let pool = &shares.pools["default"];
    assert_eq!((pool.total, pool.blocked, pool.usable), (10, 4, 6));
    assert_eq!((shares.capacity, pool.over, pool.free), (6, 0, 0));
    assert_eq!(pool.held + pool.held_closed, 10);
    let quanta_by_priority: Vec<(i64, Option<GroupQuanta>)> = shares
        .priorities
        .iter()
        .map(|group| (group.priority, group.group_quanta))
        .collect();
    let first = 6 - pool.fixed;
    let quanta = |available, assigned| {
        Some(GroupQuanta {
            available,
            assigned,
        })
    };
    // The service holds its space already, so its group takes nothing more.
    let expected = [(1, None), (5, quanta(first, 0)), (10, quanta(first, first))];
    assert_eq!(quanta_by_priority, expected);
    let fair = &shares.classes["fair"];
    assert_eq!(fair.assigned, first);
    assert_eq!(fair.tally.held, 9);
    // Processes on the closed node count towards the entitlement.
    assert_eq!(fair.tally.resting, fair.tally.closed);
}

#[test]
fn a_cap_reports_its_parts() {
    let mut fixture = Fixture::new().nodes(&[64]);
    fixture.job("job", "a", 1).max_processes = 40;
    let cap = |fixture: &Fixture| share(&fixture.plan(), "job").cap;
    let base = CapParts {
        base: 40,
        ..CapParts::default()
    };
    let starting = CapParts {
        initialization: Some(2),
        ..base
    };
    assert_eq!(cap(&fixture), starting);
    fixture.step();
    let doubling = CapParts {
        doubling: Some(4),
        ..base
    };
    assert_eq!(cap(&fixture), doubling);
    fixture.snapshot.tunables.use_prediction = true;
    fixture.demand_mut("job").remaining_tasks = 30;
    let base = CapParts { base: 30, ..base };
    let predicted = CapParts {
        doubling: Some(4),
        // Two processes finish 23 of 30 tasks before another could help. 7 tasks are left.
        prediction: Some(7),
        ..base
    };
    assert_eq!(cap(&fixture), predicted);
    // The available space is reported if it is less than the work could use.
    fixture.node("n00").capacity.memory_bytes = 29 * GIB;
    assert_eq!(cap(&fixture).reach, Some(29));
    fixture.node("n00").capacity.memory_bytes = 30 * GIB;
    assert_eq!(cap(&fixture).reach, None);
}

#[test]
fn idle_space_has_a_reason() {
    let idle = |fixture: &Fixture| default_pool(fixture).idle;
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    let no_demand = Idle {
        no_demand: 8,
        ..Idle::default()
    };
    assert_eq!(idle(&fixture), no_demand);

    fixture.job("large", "a", 3);
    let split = Idle {
        split: 2,
        ..Idle::default()
    };
    assert_eq!(idle(&fixture), split);

    let mut capped = Fixture::new().nodes(&[8]);
    capped.job("starting", "a", 1);
    let expected = Idle {
        capped: 6,
        ..Idle::default()
    };
    assert_eq!(idle(&capped), expected);

    let mut cleared = Fixture::eager().nodes(&[3]);
    cleared.departure_rounds = 9;
    cleared.job("old", "a", 1).max_processes = 2;
    cleared.step();
    cleared.reservation("whole", "b", 3);
    let reserved = Idle {
        reserved: 1,
        ..Idle::default()
    };
    assert_eq!(idle(&cleared), reserved);
}
