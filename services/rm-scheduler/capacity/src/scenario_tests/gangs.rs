//! Scenarios with a gang and plain work, which is in no gang, in one pool. Priority, order and
//! guarantees decide between the gang and the plain work as between any two work items.
//!
//! A gang gets a reservation after a wait of 2 s, and a reservation ends after 300 s.

mod preemption;

use hayward_rm_scheduler_domain::Reason;
use serde_json::json;

use super::VCORE;
use crate::fixture::{Fixture, POOL, gang_named, node_name, queued_mut};

/// Creates a pool with this root and one node of four vcores.
fn fixture(root: &serde_json::Value) -> Fixture {
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 4 * VCORE)]);
    fixture
}

#[test]
fn the_higher_priority_goes_first() {
    for (priority, expected_gang, expected_plain) in [(5, 3, 1), (-5, 0, 4)] {
        let mut fixture = fixture(&json!({"submit_acl": "*", "queues": {"a": {}}}));
        fixture.add_processes("job_plain", "root.a", 4, VCORE);
        fixture.add_gang_part("job_gang", "root.a", gang_named("gang", 3), VCORE);
        let demand = fixture.snapshot.demand.get_mut("job_gang").unwrap();
        queued_mut(demand).priority = priority;
        fixture.settle();
        let counts = (
            fixture.count_running("job_gang"),
            fixture.count_running("job_plain"),
        );
        assert_eq!(
            counts,
            (expected_gang, expected_plain),
            "priority {priority}"
        );
    }
}

/// A gang placed process by process is refused too, because half of it would wait behind others.
#[test]
fn a_queue_ordered_by_shares_refuses_gangs() {
    let queues = json!({"a": {"sort": "fair"}, "b": {}});
    for (queue, min_processes, refused) in [
        ("root.a", 3, true),
        ("root.a", 0, true),
        ("root.b", 0, false),
    ] {
        let mut fixture = fixture(&json!({"submit_acl": "*", "queues": queues}));
        fixture.add_gang_part("job_gang", queue, gang_named("gang", 3), VCORE);
        let demand = fixture.snapshot.demand.get_mut("job_gang").unwrap();
        queued_mut(demand).gang.as_mut().unwrap().min = min_processes;
        fixture.add_processes("job_plain", queue, 1, VCORE);
        let plan = fixture.step();
        let verdict = &plan.verdicts["job_gang"];
        assert_eq!(verdict.refused, refused, "{}", verdict.detail);
        let has_reason = verdict.reason == Reason::PolicyMismatch;
        assert_eq!(has_reason, refused, "{}", verdict.detail);
        assert_eq!(
            fixture.count_running("job_plain"),
            1,
            "other work is served in the queue"
        );
    }
}

/// The gang is placed process by process, like plain work.
#[test]
fn a_gang_without_a_minimum_number_starts_partially() {
    let mut fixture = fixture(&json!({"submit_acl": "*", "queues": {"a": {}}}));
    fixture.add_gang_part("job_gang", "root.a", gang_named("gang", 6), VCORE);
    let demand = fixture.snapshot.demand.get_mut("job_gang").unwrap();
    queued_mut(demand).gang.as_mut().unwrap().min = 0;
    fixture.settle();
    assert_eq!(fixture.count_running("job_gang"), 4);
    let verdict = &fixture.plan().verdicts["job_gang"];
    assert_eq!(
        verdict.reason,
        Reason::ResourcesExhausted,
        "{}",
        verdict.detail
    );
}

#[test]
fn the_older_of_equals_goes_first_and_space_useless_to_the_gang_is_used() {
    let mut fixture = fixture(&json!({"submit_acl": "*", "queues": {"a": {}}}));
    fixture.add_gang_part("job_gang", "root.a", gang_named("gang", 6), VCORE);
    fixture.advance(1_000);
    fixture.add_processes("job_plain", "root.a", 2, VCORE);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_gang"),
            fixture.count_running("job_plain")
        ),
        (0, 2)
    );
    let verdict = &fixture.plan().verdicts["job_gang"];
    assert_eq!(verdict.reason, Reason::GangIncomplete);
    fixture.add_node("n2", &[("vcore", 4 * VCORE)]);
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_gang"),
            fixture.count_running("job_plain")
        ),
        (6, 2)
    );
}

/// Creates the nodes `n0`, `n1` and so on, and plain work in the queue `a` that fills all nodes. It
/// also fills every gap that is freed later.
fn fixture_with_full_nodes(nodes: &[u64], root: &serde_json::Value) -> Fixture {
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    for (index, vcore) in nodes.iter().enumerate() {
        fixture.add_node(&format!("n{index}"), &[("vcore", vcore * VCORE)]);
    }
    fixture.add_processes("job_plain", "root.a", nodes.iter().sum(), VCORE);
    fixture.settle();
    fixture
}

fn two_queues() -> serde_json::Value {
    json!({"submit_acl": "*", "queues": {"a": {}, "b": {}}})
}

/// Returns the number of rounds until the gang has all members. In each round `ending` processes of
/// the plain work end.
fn rounds_until_complete(
    fixture: &mut Fixture,
    gang: &str,
    members: usize,
    ending: usize,
) -> usize {
    for round in 0..100 {
        if fixture.count_running(gang) == members {
            return round;
        }
        assert_eq!(fixture.count_running(gang), 0, "a gang was split");
        fixture.end_processes("job_plain", ending);
        fixture.step();
    }
    panic!("the gang never starts");
}

/// Without a reservation the gang would never see two free vcores on one node (I23).
#[test]
fn a_gang_starts_behind_plain_work_that_fills_every_hole() {
    for queue in ["root.a", "root.b"] {
        let mut fixture = fixture_with_full_nodes(&[4, 4, 4, 4], &two_queues());
        let plain = fixture.snapshot.demand.get_mut("job_plain").unwrap();
        plain.max_processes = 20_000;
        fixture.add_gang_part("job_gang", queue, gang_named("gang", 4), 2 * VCORE);
        let rounds = rounds_until_complete(&mut fixture, "job_gang", 4, 1);
        assert!(rounds <= 24, "{queue}: {rounds} rounds");
        assert!(fixture.reserved_space().is_empty());
        // Space useless to the gang stays in use.
        assert_eq!(fixture.count_running("job_plain"), 8);
    }
}

/// The gang needs all nodes. If reservations of gangs were limited to a tenth of the nodes, as
/// those of single work items are, the gang would never start.
#[test]
fn a_gang_that_needs_every_node_gets_every_node() {
    let mut fixture = fixture_with_full_nodes(&[4; 12], &two_queues());
    fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 12), 4 * VCORE);
    let rounds = rounds_until_complete(&mut fixture, "job_gang", 12, 4);
    assert!(rounds <= 20, "{rounds} rounds");
}

#[test]
fn only_the_needed_space_is_reserved_and_all_other_space_is_used() {
    let mut fixture = fixture_with_full_nodes(&[4, 4], &two_queues());
    fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 3), VCORE);
    fixture.advance(2_000);
    fixture.step();
    let reserved: u64 = fixture
        .reserved_space()
        .iter()
        .map(|(_, count)| count)
        .sum();
    assert_eq!(reserved, 3);
    fixture.end_processes("job_plain", 2);
    let plan = fixture.step();
    assert!(
        plan.grants.is_empty(),
        "two of three processes fit: {plan:#?}"
    );
    let verdict = &plan.verdicts["job_plain"];
    assert_eq!(verdict.reason, Reason::NodesReserved);
    let text = "room on 2 nodes for the gang of work job_gang until ";
    assert!(verdict.detail.contains(text), "{}", verdict.detail);
    let verdict = &plan.verdicts["job_gang"];
    assert_eq!(verdict.reason, Reason::GangIncomplete);
    for text in [
        "2 of the 3 processes it lacks fit; space for all of it is reserved on nodes n0, n1 until ",
        "and what runs there goes on",
    ] {
        assert!(verdict.detail.contains(text), "{}", verdict.detail);
    }
    fixture.end_processes("job_plain", 2);
    fixture.step();
    assert_eq!(
        (
            fixture.count_running("job_gang"),
            fixture.count_running("job_plain")
        ),
        (3, 5)
    );
}

#[test]
fn a_gang_reservation_has_one_lifetime_on_any_nodes() {
    let mut fixture = fixture_with_full_nodes(&[4, 4, 4], &two_queues());
    fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 2), 3 * VCORE);
    fixture.advance(2_000);
    fixture.step();
    assert_eq!(fixture.reserved_space(), [("n0", 1), ("n1", 1)]);
    // A reserved node closes: the reservation moves to another node, and its lifetime continues.
    fixture.advance(200_000);
    fixture.add_node("n0", &[]).takes_work = false;
    fixture.step();
    assert_eq!(fixture.reserved_space(), [("n1", 1), ("n2", 1)]);
    fixture.end_processes("job_plain", 2);
    fixture.step();
    // Processes of the closed node return neither there nor to reserved space.
    assert_eq!(fixture.count_running("job_plain"), 10);
    fixture.advance(100_000);
    let plan = fixture.step();
    assert!(fixture.reserved_space().is_empty());
    let detail = &plan.verdicts["job_gang"].detail;
    assert!(detail.contains("its last reservation lapsed"), "{detail}");
    // The same gang gets no reservation at once, but gets one later.
    fixture.add_node("n0", &[]).takes_work = true;
    for (ms, reserved) in [(10_000, 0), (200_000, 0), (90_000, 2)] {
        fixture.advance(ms);
        fixture.step();
        assert_eq!(fixture.reserved_space().len(), reserved, "after {ms}");
    }
}

#[test]
fn gangs_get_reservations_one_after_the_other() {
    let mut fixture = fixture_with_full_nodes(&[4, 4], &two_queues());
    fixture.add_gang_part("job_first", "root.a", gang_named("first", 2), 4 * VCORE);
    fixture.advance(500);
    fixture.add_gang_part("job_second", "root.b", gang_named("second", 2), 3 * VCORE);
    fixture.advance(2_000);
    let plan = fixture.step();
    let reservation = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert_eq!(reservation.work.as_str(), "job_first");
    let detail = &plan.verdicts["job_second"].detail;
    assert!(
        detail.contains("space is reserved for the gang of work job_first"),
        "{detail}"
    );
    // The reservation lapses, and the other gang gets one.
    fixture.advance(300_000);
    let plan = fixture.step();
    let reservation = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert_eq!(reservation.work.as_str(), "job_second");
    let rounds = rounds_until_complete(&mut fixture, "job_second", 2, 1);
    assert!(rounds <= 8, "{rounds} rounds");
}

/// Within one priority the longest wait goes first. A higher priority goes before a lower one.
#[test]
fn the_highest_priority_gets_the_reservation_first() {
    let mut fixture = fixture_with_full_nodes(&[4, 4], &two_queues());
    fixture.add_gang_part("job_first", "root.a", gang_named("first", 2), 4 * VCORE);
    fixture.add_gang_part("job_urgent", "root.b", gang_named("urgent", 2), 4 * VCORE);
    let demand = fixture.snapshot.demand.get_mut("job_urgent").unwrap();
    queued_mut(demand).priority = 1;
    fixture.advance(2_000);
    let plan = fixture.step();
    let reservation = plan.carried.queues[POOL].gang.as_ref().unwrap();
    assert_eq!(reservation.work.as_str(), "job_urgent");
}

/// Neither the sum of the gang nor any part is too large, but the parts do not fit on the two
/// nodes.
#[test]
fn an_unpackable_gang_gets_no_reservation_and_delays_no_other() {
    let mut fixture = fixture_with_full_nodes(
        &[3, 3],
        &json!({"submit_acl": "*", "queues": {"a": {}, "b":
        {"resources": {"guaranteed": {"vcore": 6}}}}}),
    );
    fixture.add_gang_part("job_one", "root.b", gang_named("never", 2), 2 * VCORE);
    fixture.add_gang_part("job_two", "root.b", gang_named("never", 1), 2 * VCORE);
    fixture.advance(500);
    fixture.add_gang_part("job_fits", "root.a", gang_named("fits", 2), 2 * VCORE);
    for _ in 0..5 {
        fixture.advance(30_000);
        let plan = fixture.step();
        assert!(plan.receipts.is_empty(), "{plan:#?}");
        let reservation = plan.carried.queues[POOL].gang.as_ref().unwrap();
        assert_eq!(reservation.work.as_str(), "job_fits");
    }
}

/// In the first case each part fits alone on all nodes, and so does the sum, but both parts name
/// the same node.
#[test]
fn parts_that_name_too_few_nodes_can_never_start() {
    let cases = [
        (
            vec![("job_one", 1, 3 * VCORE), ("job_two", 1, 3 * VCORE)],
            "the nodes that its parts name may have 5",
        ),
        (
            vec![("job_one", 6, VCORE)],
            "the 1 nodes it may use have room for 5",
        ),
    ];
    for (parts, text) in cases {
        let mut fixture = Fixture::from_queues(&json!({"queues": {"root": two_queues()}}));
        for name in ["n1", "n2"] {
            fixture.add_node(name, &[("vcore", 5 * VCORE)]);
        }
        for (id, count, vcore) in parts {
            fixture.add_gang_part(id, "root.a", gang_named("gang", count), vcore);
            let demand = fixture.snapshot.demand.get_mut(id).unwrap();
            demand.node_list = [node_name("n1")].into();
        }
        fixture.advance(2_000);
        let plan = fixture.step();
        let detail = &plan.verdicts["job_one"].detail;
        assert!(detail.contains(text), "{detail}");
        assert!(detail.contains("can never start"), "{detail}");
        assert!(fixture.reserved_space().is_empty());
    }
}

/// At most ten gangs are examined per round, so that unpackable gangs do not slow the rounds.
#[test]
fn a_limited_number_of_gangs_is_examined_per_round_in_rotation() {
    let mut fixture = fixture_with_full_nodes(&[3, 3], &two_queues());
    for index in 0..35 {
        let gang = format!("never{index:02}");
        for (part, count) in [(0, 2), (1, 1)] {
            let id = format!("job_{gang}_{part}");
            fixture.add_gang_part(&id, "root.b", gang_named(&gang, count), 2 * VCORE);
        }
    }
    fixture.advance(500);
    fixture.add_gang_part("job_fits", "root.a", gang_named("fits", 2), 2 * VCORE);
    fixture.advance(2_000);
    for round in 1..=3 {
        let plan = fixture.step();
        let carried = &plan.carried.queues[POOL];
        assert!(carried.gang.is_none());
        assert_eq!(carried.passed_over.len(), 10 * round);
    }
    let plan = fixture.step();
    let carried = &plan.carried.queues[POOL];
    assert_eq!(carried.gang.as_ref().unwrap().work.as_str(), "job_fits");
    // After that gang ends, all are examined again from the first.
    fixture.snapshot.demand.remove("job_fits");
    for expected in [10, 20, 30, 0, 10] {
        let plan = fixture.step();
        assert_eq!(plan.carried.queues[POOL].passed_over.len(), expected);
    }
}

/// Nodes are useless to work that waits for quota.
#[test]
fn work_that_waits_for_quota_reserves_no_nodes() {
    let root = json!({"submit_acl": "*", "queues": {"a": {},
        "b": {"resources": {"max": {"vcore": 3}}}}});
    let mut fixture = fixture_with_full_nodes(&[4, 4], &root);
    fixture.end_processes("job_plain", 2);
    fixture
        .snapshot
        .demand
        .get_mut("job_plain")
        .unwrap()
        .max_processes = 6;
    fixture.add_processes("job_b", "root.b", 2, VCORE);
    fixture.settle();
    fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 3), VCORE);
    fixture.advance(10_000);
    fixture.step();
    assert!(fixture.reserved_space().is_empty());
}

/// A large process and a gang need whole nodes, and plain work fills every gap. The one that waits
/// longer gets its nodes first, and neither starves the other.
#[test]
fn a_gang_and_a_large_process_do_not_starve_each_other() {
    for gang_first in [true, false] {
        let mut fixture = fixture_with_full_nodes(&[4, 4], &two_queues());
        for gang in [gang_first, !gang_first] {
            if gang {
                fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 2), 4 * VCORE);
            } else {
                fixture.add_processes("job_large", "root.b", 1, 4 * VCORE);
            }
            fixture.advance(100);
        }
        fixture.advance(2_000);
        let mut started = Vec::new();
        for _ in 0..60 {
            for (id, members) in [("job_gang", 2), ("job_large", 1)] {
                if fixture.count_running(id) == members {
                    started.push(id);
                    fixture.snapshot.demand.remove(id);
                }
            }
            if started.len() == 2 {
                break;
            }
            fixture.end_processes("job_plain", 1);
            fixture.step();
        }
        let expected = ["job_gang", "job_large"];
        let expected = if gang_first {
            expected
        } else {
            [expected[1], expected[0]]
        };
        assert_eq!(started, expected);
    }
}

#[test]
fn work_with_one_allowed_node_goes_before_a_reservation_without_victims() {
    let mut fixture = fixture_with_full_nodes(&[4, 4, 4], &two_queues());
    fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 2), 4 * VCORE);
    fixture.advance(2_000);
    fixture.step();
    assert_eq!(fixture.reserved_space(), [("n0", 1), ("n1", 1)]);
    let demand = fixture.add_processes("job_here", "root.b", 1, VCORE);
    queued_mut(demand).required_node = Some(node_name("n0"));
    let plan = fixture.step();
    assert_eq!(plan.receipts.len(), 1);
    assert_eq!(fixture.reserved_space(), [("n1", 1), ("n2", 1)]);
    fixture.settle();
    assert_eq!(fixture.count_running("job_here"), 1);
}

#[test]
fn fractions_of_gpus_avoid_reserved_gpus() {
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": two_queues()}}));
    fixture.add_node("n1", &[("vcore", 9 * VCORE), ("gpu", 3_000)]);
    fixture.add_work("job_whole", "root.a", &[("vcore", VCORE), ("gpu", 3_000)]);
    fixture.settle();
    fixture.add_gang_part("job_gang", "root.b", gang_named("gang", 2), VCORE);
    let demand = fixture.snapshot.demand.get_mut("job_gang").unwrap();
    demand.size.gpu_milli = 1_000;
    fixture.advance(2_000);
    fixture.step();
    assert_eq!(fixture.reserved_space(), [("n1", 2)]);
    let demand = fixture.add_work("job_fraction", "root.a", &[("vcore", VCORE), ("gpu", 600)]);
    demand.max_processes = 3;
    fixture.add_processes("job_cores", "root.a", 1, VCORE);
    fixture.snapshot.demand.remove("job_whole");
    fixture.settle();
    assert_eq!(
        (
            fixture.count_running("job_gang"),
            fixture.count_running("job_fraction")
        ),
        (2, 1)
    );
    assert_eq!(fixture.count_running("job_cores"), 1);
}

#[test]
fn the_verdict_of_an_impossible_gang_has_the_feasible_number() {
    let limited = json!({"resources": {"max": {"vcore": 4}}});
    let root = json!({"submit_acl": "*", "queues": {"a": limited}});
    let mut fixture = fixture(&root);
    fixture.add_gang_part("job_driver", "root.a", gang_named("gang", 1), 2 * VCORE);
    fixture.add_gang_part("job_workers", "root.a", gang_named("gang", 4), VCORE);
    let plan = fixture.step();
    let verdict = &plan.verdicts["job_workers"];
    assert_eq!(
        (verdict.reason, verdict.refused),
        (Reason::QueueQuota, true)
    );
    let detail = "queue root.a may have 4: 4 of them would fit";
    assert!(verdict.detail.contains(detail), "{}", verdict.detail);
    assert_eq!(verdict.unblock, None);
    // A cluster that is too small now may grow.
    let mut fixture = self::fixture(&json!({"submit_acl": "*", "queues": {"a": {}}}));
    fixture.add_gang_part("job_workers", "root.a", gang_named("gang", 5), VCORE);
    let plan = fixture.step();
    assert!(!plan.verdicts["job_workers"].refused);
}
