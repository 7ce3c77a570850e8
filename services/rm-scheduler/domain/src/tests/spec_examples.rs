//! Worked examples of the specification (`docs/spec/fair-share.md`), and single rules with numbers.

use hayward_vocabulary::{Quantum, Size};

use super::fixture::{Fixture, GIB, node_name, share, terms, work_id};
use crate::{
    input::snapshot::{Policy, Pool},
    output::plan::{Reason, VacateReason},
};

/// Submits jobs, each given by class, user, quanta and cap (0 means no cap). Asserts that after one
/// round, each has the expected entitlement and as many processes.
#[track_caller]
fn assert_entitlements(mut fixture: Fixture, jobs: &[(&str, &str, u64, u64)], expected: &[u64]) {
    for (index, (class, user, quanta, cap)) in jobs.iter().enumerate() {
        let demand = fixture.job_in(class, &format!("j{index}"), user, *quanta);
        if *cap > 0 {
            demand.max_processes = *cap;
        }
    }
    let plan = fixture.step();
    let ids = (0..jobs.len()).map(|index| format!("j{index}"));
    let entitlements: Vec<u64> = ids.clone().map(|id| share(&plan, &id).counted).collect();
    let current: Vec<u64> = ids.map(|id| share(&plan, &id).current).collect();
    assert_eq!(entitlements, expected, "counted");
    assert_eq!(current, expected, "placed");
    assert!(
        fixture.plan().is_empty(),
        "the second round changes nothing"
    );
}

/// Returns the processes without leaving ones from the records of [`Fixture::record_rounds`].
fn current_processes(records: &[(u64, u64, u64)]) -> Vec<u64> {
    records.iter().map(|(current, ..)| *current).collect()
}

/// Builds a fleet with FAIR_SHARE classes, each given by name, priority and weight.
fn fair_share_fleet(nodes: &[u64], classes: &[(&str, i64, u64)]) -> Fixture {
    let mut fixture = Fixture::eager().nodes(nodes);
    for (name, priority, weight) in classes {
        fixture.class(
            name,
            terms(Policy::FairShare, *priority, *weight),
            "default",
        );
    }
    fixture
}

/// Covers two users, caps, two jobs of one user, and larger processes (X1).
#[test]
fn one_class_is_divided_among_users_and_then_among_jobs() {
    assert_entitlements(
        fair_share_fleet(&[5; 2], &[]),
        &[("fair", "a", 1, 0), ("fair", "b", 1, 0)],
        &[5, 5],
    );
    let x3 = [
        ("fair", "a", 1, 2),
        ("fair", "b", 1, 4),
        ("fair", "c", 1, 0),
    ];
    assert_entitlements(fair_share_fleet(&[6; 3], &[]), &x3, &[2, 4, 12]);
    let x4 = [
        ("fair", "a", 1, 0),
        ("fair", "a", 1, 0),
        ("fair", "b", 1, 0),
    ];
    assert_entitlements(fair_share_fleet(&[4; 3], &[]), &x4, &[3, 3, 6]);
    assert_entitlements(fair_share_fleet(&[5; 3], &[]), &[("fair", "a", 2, 0)], &[6]);
    assert_entitlements(
        fair_share_fleet(&[5; 3], &[]),
        &[("fair", "a", 2, 0), ("fair", "b", 1, 0)],
        &[4, 7],
    );
}

/// Each case is named after its example in the specification.
#[test]
fn classes_are_divided_by_priority_and_weight() {
    let x2 = fair_share_fleet(&[5; 4], &[("p", 10, 100), ("q", 10, 300)]);
    assert_entitlements(x2, &[("p", "a", 1, 0), ("q", "b", 1, 0)], &[5, 15]);
    let x7 = fair_share_fleet(&[5; 4], &[("p", 10, 100), ("q", 10, 100)]);
    assert_entitlements(x7, &[("p", "a", 2, 0), ("q", "b", 1, 0)], &[6, 8]);
    let x8 = fair_share_fleet(&[1; 7], &[("p", 10, 100), ("q", 10, 100), ("r", 10, 100)]);
    assert_entitlements(
        x8,
        &[("p", "a", 1, 0), ("q", "b", 1, 0), ("r", "c", 1, 0)],
        &[3, 2, 2],
    );
    let x9 = fair_share_fleet(&[2; 5], &[("p", 10, 100), ("q", 10, 900)]);
    assert_entitlements(x9, &[("p", "a", 2, 0), ("q", "b", 1, 0)], &[1, 8]);
    let x10 = fair_share_fleet(&[5; 3], &[("p", 6, 10), ("q", 10, 500)]);
    assert_entitlements(x10, &[("p", "a", 2, 4), ("q", "b", 1, 0)], &[4, 7]);
    let x11 = fair_share_fleet(&[4; 6], &[("p", 10, 200), ("q", 10, 100)]);
    assert_entitlements(
        x11,
        &[("p", "a", 1, 0), ("p", "b", 1, 0), ("q", "c", 1, 0)],
        &[8, 8, 8],
    );
}

/// Covers nodes of two sizes, and a process that needs a whole node (X12).
#[test]
fn processes_of_mixed_sizes_fill_the_nodes() {
    assert_entitlements(
        fair_share_fleet(&[4, 4, 2, 2, 2], &[]),
        &[("fair", "a", 3, 0), ("fair", "b", 2, 0)],
        &[2, 3],
    );
    assert_entitlements(
        fair_share_fleet(&[4; 3], &[]),
        &[("fair", "a", 4, 0), ("fair", "b", 1, 0)],
        &[2, 4],
    );
}

/// Worked example of the specification (X14).
#[test]
fn nodes_are_rounded_down_and_processes_up_to_whole_quanta() {
    let mut fixture = Fixture::eager();
    fixture.snapshot.quantum = Quantum(Size::memory(4 * GIB));
    for name in ["n0", "n1", "n2"] {
        fixture.node_in("default", name, 0);
        fixture.node(name).capacity = Size::memory(479 * GIB / 10);
    }
    fixture.job("j", "a", 9);
    let plan = fixture.step();
    assert_eq!(
        (share(&plan, "j").quanta, share(&plan, "j").current),
        (3, 9)
    );
    assert_eq!(plan.grants[0].size, Size::memory(12 * GIB));
    assert_eq!(plan.shares.free, 6);
}

/// Each case is named after its example in the specification.
#[test]
fn a_job_grows_by_doubling_up_to_its_cap() {
    let mut x16 = Fixture::new().nodes(&[5; 5]);
    x16.snapshot.tunables.initialization_cap = 3;
    x16.job("j", "a", 1);
    assert_eq!(x16.current_processes("j", 5), [3, 6, 12, 24, 25]);

    let mut x19 = Fixture::new().nodes(&[4; 3]);
    let job = x19.job("j", "a", 1);
    (job.remaining_tasks, job.threads) = (26, 4);
    assert_eq!(x19.current_processes("j", 4), [2, 4, 7, 7]);
    x19.demand_mut("j").remaining_tasks = 5;
    assert_eq!(x19.current_processes("j", 2), [7, 7]);

    let mut x20 = Fixture::new().nodes(&[4; 3]);
    x20.job("j", "a", 1).max_processes = 9;
    assert_eq!(x20.current_processes("j", 5), [2, 4, 8, 9, 9]);
    x20.demand_mut("j").max_processes = 4;
    assert_eq!(x20.record_rounds(&["j"], 2), [[(4, 9, 4), (4, 4, 4)]]);
}

/// Covers many tasks and few tasks (X17).
#[test]
fn prediction_stops_growth_that_would_come_too_late() {
    for (tasks, expected) in [(150, vec![4, 8, 14, 14]), (70, vec![4, 5, 5])] {
        let mut fixture = Fixture::new().nodes(&[50, 50]);
        fixture.start_ms = 90_000;
        let tunables = &mut fixture.snapshot.tunables;
        tunables.use_prediction = true;
        tunables.prediction_fudge_ms = 60_000;
        tunables.cycle_ms = 40_000;
        tunables.initialization_cap = 4;
        let job = fixture.job("j", "a", 1);
        (job.remaining_tasks, job.threads, job.max_processes) = (tasks, 2, 100);
        let first = fixture.current_processes("j", 1);
        fixture.demand_mut("j").task_ms = Some(25_000);
        let rest = fixture.current_processes("j", expected.len() - 1);
        assert_eq!([first, rest].concat(), expected);
    }
}

/// Worked example of the specification (X21).
#[test]
fn new_work_gets_its_entitlement_one_departure_later() {
    let mut fixture = Fixture::new().nodes(&[4; 3]);
    fixture.job("j1", "a", 1);
    assert_eq!(fixture.current_processes("j1", 5), [2, 4, 8, 12, 12]);
    fixture.job("j2", "b", 2);
    let plan = fixture.step();
    assert_eq!(plan.verdicts["j2"].reason, Reason::WaitingForPreemption);
    assert_eq!(
        (share(&plan, "j1").current, share(&plan, "j1").counted),
        (8, 8)
    );
    assert_eq!(
        (share(&plan, "j2").current, share(&plan, "j2").counted),
        (0, 2)
    );
    let records = fixture.record_rounds(&["j1", "j2"], 3);
    assert_eq!(records[0], [(8, 8, 8), (6, 8, 6), (6, 6, 6)]);
    assert_eq!(records[1], [(2, 2, 2), (2, 2, 3), (3, 3, 3)]);
    assert!(fixture.step().is_empty());
}

/// Worked example of the specification (X22).
#[test]
fn departures_may_take_two_rounds() {
    let mut fixture = Fixture::new().nodes(&[5; 2]);
    fixture.departure_rounds = 2;
    fixture.job("j1", "a", 1);
    fixture.current_processes("j1", 5);
    fixture.job("j2", "b", 1);
    let records = fixture.record_rounds(&["j1", "j2"], 8);
    let j1: Vec<_> = records[0]
        .iter()
        .map(|(current, held, _)| (*current, *held))
        .collect();
    assert_eq!(
        j1,
        [
            (8, 10),
            (8, 10),
            (8, 8),
            (6, 8),
            (6, 8),
            (6, 6),
            (5, 6),
            (5, 6)
        ]
    );
    let j2: Vec<_> = records[1]
        .iter()
        .map(|(current, _, entitlement)| (*current, *entitlement))
        .collect();
    assert_eq!(
        j2,
        [
            (0, 2),
            (0, 2),
            (2, 2),
            (2, 4),
            (2, 4),
            (4, 4),
            (4, 5),
            (4, 5)
        ]
    );
}

/// Worked example of the specification (X23).
#[test]
fn classes_grow_together_and_one_takes_over_when_the_other_ends() {
    let mut fixture = Fixture::new().nodes(&[4; 3]);
    fixture.class("p", terms(Policy::FairShare, 10, 100), "default");
    fixture.class("q", terms(Policy::FairShare, 10, 200), "default");
    fixture.job_in("p", "p1", "a", 1);
    fixture.job_in("q", "q1", "b", 1);
    let records = fixture.record_rounds(&["p1", "q1"], 4);
    assert_eq!(current_processes(&records[0]), [2, 4, 4, 4]);
    assert_eq!(current_processes(&records[1]), [2, 4, 8, 8]);
    fixture.snapshot.demand.remove("q1");
    fixture
        .snapshot
        .allocations
        .retain(|_, allocation| allocation.work.as_str() != "q1");
    assert_eq!(fixture.current_processes("p1", 2), [8, 12]);
}

/// Worked example of the specification (X24).
#[test]
fn a_squatter_leaves_for_work_of_the_home_pool() {
    let mut fixture = Fixture::new();
    fixture.snapshot.pools.insert("top".into(), Pool::default());
    let fast = Pool {
        parent: Some("top".into()),
        search_order: 100,
        ..Pool::default()
    };
    fixture.snapshot.pools.insert("fast".into(), fast);
    fixture.class("on-top", terms(Policy::FairShare, 10, 100), "top");
    fixture.class("on-fast", terms(Policy::FairShare, 10, 100), "fast");
    fixture.node_in("top", "t0", 4);
    fixture.node_in("fast", "f0", 4);
    fixture.job_in("on-top", "j1", "a", 1);
    assert_eq!(fixture.current_processes("j1", 3), [2, 4, 8]);
    fixture.job_in("on-fast", "j2", "b", 1);
    let records = fixture.record_rounds(&["j1", "j2"], 5);
    let j1: Vec<_> = records[0]
        .iter()
        .map(|(current, held, _)| (*current, *held))
        .collect();
    assert_eq!(j1, [(6, 8), (6, 6), (4, 6), (4, 4), (4, 4)]);
    assert_eq!(current_processes(&records[1]), [0, 2, 2, 4, 4]);
}

/// Worked example of the specification (X26).
#[test]
fn a_service_gets_space_from_a_job() {
    let mut fixture = Fixture::new().nodes(&[5; 2]);
    fixture.job("j1", "a", 1);
    fixture.current_processes("j1", 5);
    fixture.service("s", "b", 2);
    let records = fixture.record_rounds(&["j1", "s"], 2);
    assert_eq!(records[0], [(8, 10, 8), (8, 8, 8)]);
    assert_eq!(records[1], [(0, 0, 1), (1, 1, 1)]);
}

/// Worked example of the specification (X27).
#[test]
fn the_allotment_counts_grants_of_the_same_round() {
    let mut fixture = Fixture::new().nodes(&[5; 2]);
    fixture.snapshot.tunables.global_allotment_bytes = Some(3 * GIB);
    fixture.service("s1", "a", 2);
    fixture.service("s2", "a", 2);
    fixture.service("s3", "a", 1);
    let plan = fixture.step();
    assert_eq!(share(&plan, "s1").current, 1);
    assert_eq!(plan.verdicts["s2"].reason, Reason::AllotmentExceeded);
    assert_eq!(share(&plan, "s3").current, 1);
    fixture.snapshot.demand.remove("s1");
    fixture.step();
    assert_eq!(share(&fixture.step(), "s2").current, 1);
}

/// Worked example of the specification (X28).
#[test]
fn a_node_is_cleared_for_a_reservation() {
    let mut fixture = Fixture::new().nodes(&[3; 3]);
    fixture.job("j1", "a", 1);
    fixture.current_processes("j1", 5);
    fixture.reservation("r", "b", 3);
    let plan = fixture.step();
    assert_eq!(
        (share(&plan, "j1").current, share(&plan, "j1").leaving),
        (6, 3)
    );
    assert_eq!(share(&plan, "j1").counted, 6);
    assert_eq!(plan.verdicts["r"].reason, Reason::WaitingForPreemption);
    let plan = fixture.step();
    assert_eq!(
        (share(&plan, "j1").current, share(&plan, "r").current),
        (6, 1)
    );
    assert!(fixture.step().is_empty());
}

/// Worked example of the specification (X29).
#[test]
fn a_node_is_granted_to_one_reservation_only() {
    let mut fixture = Fixture::new().nodes(&[5, 4]);
    fixture.snapshot.tunables.reserve_overage_bytes = Some(GIB);
    fixture.reservation("r1", "a", 4);
    fixture.reservation("r2", "a", 3);
    let plan = fixture.step();
    assert_eq!(plan.grants.len(), 1);
    assert_eq!(
        (plan.grants[0].node.as_str(), plan.grants[0].quanta),
        ("n01", 4)
    );
    assert_eq!(plan.verdicts["r2"].reason, Reason::ResourcesExhausted);
    fixture.reservation("r3", "a", 4);
    let plan = fixture.step();
    assert_eq!(
        (plan.grants[0].work.as_str(), plan.grants[0].node.as_str()),
        ("r3", "n00")
    );
    fixture.reservation("r4", "a", 9);
    assert_eq!(fixture.step().verdicts["r4"].reason, Reason::NoHostOfSize);
}

/// Each instance goes to the node with the fewest instances of its service (R-10.3).
#[test]
fn instances_of_one_service_spread_over_nodes() {
    let mut fixture = Fixture::new().nodes(&[4, 4]);
    for id in ["svc_x.0", "svc_x.1", "svc_x.2"] {
        fixture.service(id, "a", 1).service = Some(work_id("svc_x"));
    }
    let nodes: Vec<String> = fixture
        .step()
        .grants
        .iter()
        .map(|grant| grant.node.to_string())
        .collect();
    assert_eq!(nodes, ["n00", "n01", "n00"]);
}

/// Space is granted again only when the leaving allocation is gone (R-10.6).
#[test]
fn withdrawn_work_holds_its_space_until_it_is_gone() {
    let mut fixture = Fixture::eager().nodes(&[4]);
    fixture.departure_rounds = 2;
    fixture.job("j1", "a", 4);
    fixture.step();
    fixture.snapshot.demand.remove("j1");
    fixture.job("j2", "b", 4);
    let plan = fixture.step();
    assert_eq!(plan.vacates[0].reason, VacateReason::WorkGone);
    assert!(plan.grants.is_empty());
    assert_eq!(plan.verdicts["j2"].reason, Reason::WaitingForPreemption);
    assert!(fixture.step().is_empty());
    assert_eq!(fixture.step().grants.len(), 1);
}

/// Work with an unknown class, an unsuitable policy or a barred user is refused. A service that
/// names a FAIR_SHARE class is served by the default class instead (R-7.5).
#[test]
fn refusals_have_a_reason() {
    let mut fixture = Fixture::new().nodes(&[4]);
    fixture.job_in("nowhere", "unknown", "a", 1);
    fixture.reservation("mismatch", "a", 1).class = Some("fair".into());
    fixture.service("moved", "a", 1).class = Some("fair".into());
    fixture.class("closed", terms(Policy::FairShare, 10, 100), "default");
    fixture
        .snapshot
        .classes
        .get_mut("closed")
        .unwrap()
        .users
        .insert("x".into());
    fixture.job_in("closed", "barred", "a", 1);
    let plan = fixture.plan();
    let reason = |id: &str| (plan.verdicts[id].reason, plan.verdicts[id].refused);
    assert_eq!(reason("unknown"), (Reason::UnknownClass, true));
    assert_eq!(reason("mismatch"), (Reason::PolicyMismatch, true));
    assert_eq!(reason("barred"), (Reason::NotAuthorised, true));
    assert_eq!(plan.verdicts["moved"].class.as_deref(), Some("fixed"));
}

#[test]
fn fit_is_tested_on_every_dimension_and_unfit_work_is_not_counted() {
    let mut fixture = Fixture::eager().nodes(&[8, 8]);
    fixture.node("n01").capacity.gpu_milli = 2_000;
    fixture.job("gpu", "a", 1).size.gpu_milli = 1_000;
    fixture.job("plain", "b", 1);
    fixture.job("huge", "c", 9);
    fixture
        .job("listed", "d", 1)
        .node_list
        .insert(node_name("elsewhere"));
    let plan = fixture.step();
    assert_eq!(share(&plan, "gpu").current, 2);
    assert_eq!(share(&plan, "plain").current, 14);
    assert_eq!(plan.verdicts["huge"].reason, Reason::NoHostLargeEnough);
    assert_eq!(plan.verdicts["listed"].reason, Reason::NoListedMachine);
    assert!(fixture.plan().is_empty());
}

#[test]
fn a_stored_round_can_be_replayed() {
    let mut fixture = Fixture::new().nodes(&[4, 4]);
    fixture.job("j1", "a", 1);
    fixture.step();
    let stored = serde_json::to_string(&fixture.snapshot).unwrap();
    let snapshot: crate::Snapshot = serde_json::from_str(&stored).unwrap();
    let plan = fixture.plan();
    assert_eq!(crate::Planner::schedule(&crate::FairShare, &snapshot), plan);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<crate::Plan>(&text).unwrap(), plan);
}
