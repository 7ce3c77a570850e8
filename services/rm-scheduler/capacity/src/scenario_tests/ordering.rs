//! Scenarios of the serve order of queues and applications. The configuration writes one vcore as
//! 1, and sizes count it as 1,000.

use hayward_rm_scheduler_domain::Plan;
use serde_json::{Value, json};

use super::VCORE;
use crate::{
    fixture::{Fixture, POOL, granted_works, queued_mut},
    queue_tree::ROOT,
    round_state::RoundState,
    serve_order::ServeOrder,
};

/// Calls `read` with the state at the start of a round.
fn read_serve_order<R>(fixture: &Fixture, read: impl FnOnce(&RoundState, &ServeOrder) -> R) -> R {
    let queues = &fixture.snapshot.queues[POOL];
    let mut round = RoundState::open(&fixture.snapshot, POOL, queues);
    let serve_order = ServeOrder::new(&mut round);
    read(&round, &serve_order)
}

/// Returns the serve order of four queues `q0` to `q3`. Each has a guarantee, running work that
/// uses the amount in `used`, and one waiting work item.
fn serve_order_with_guarantees(by_priority: bool, used: [u64; 4]) -> Vec<String> {
    let queue = |amount: u64| {
        json!({"resources": {"guaranteed": {"memory": amount,
        "vcore": format!("{amount}m")}}})
    };
    let queues = json!({"q0": queue(500), "q1": queue(300), "q2": queue(200), "q3": queue(200)});
    let root = json!({"submit_acl": "*", "sort_by_priority": by_priority, "queues": queues});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("memory", 10_000), ("vcore", 10_000)]);
    for (index, used) in used.into_iter().enumerate() {
        let queue = format!("root.q{index}");
        fixture.add_work(
            &format!("job_{index}"),
            &queue,
            &[("memory", used), ("vcore", used)],
        );
    }
    fixture.settle();
    for index in 0..4 {
        let id = format!("job_more{index}");
        let demand = fixture.add_work(
            &id,
            &format!("root.q{index}"),
            &[("vcore", 1), ("memory", 1)],
        );
        queued_mut(demand).priority = if index == 3 { 3 } else { 1 };
    }
    read_serve_order(&fixture, |round, serve_order| {
        let path = |index: &usize| round.tree.entries[*index].path.clone();
        serve_order.children(ROOT).iter().map(path).collect()
    })
}

/// The queue with the smallest used fraction of its guarantee is served first. With priorities, the
/// waiting work of `q3` goes before all other work.
#[test]
fn queues_are_served_by_the_share_of_their_guarantee() {
    let paths = |names: [&str; 4]| names.map(|name| format!("root.{name}")).to_vec();
    let order = serve_order_with_guarantees(false, [300, 200, 100, 100]);
    assert_eq!(order, paths(["q3", "q2", "q0", "q1"]));
    let used = [200, 300, 100, 100];
    assert_eq!(
        serve_order_with_guarantees(false, used),
        paths(["q0", "q3", "q2", "q1"])
    );
    assert_eq!(
        serve_order_with_guarantees(true, used),
        paths(["q3", "q0", "q2", "q1"])
    );
}

#[test]
fn priority_offsets_add_up_to_the_root() {
    let root = json!({"submit_acl": "*", "queues": {"parent": {"priority_offset": 5,
        "queues": {"leaf": {"priority_offset": 3}}}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    let exported_priorities = |fixture: &Fixture| {
        read_serve_order(fixture, |round, serve_order| {
            let priority =
                |path: &str| serve_order.exported_priority(round.tree.find(path).unwrap());
            (priority("root.parent.leaf"), priority("root.parent"))
        })
    };
    assert_eq!(exported_priorities(&fixture), (None, None));
    fixture.add_work("job_1", "root.parent.leaf", &[("vcore", 1)]);
    assert_eq!(exported_priorities(&fixture), (Some(3), Some(8)));
    queued_mut(fixture.add_work("job_2", "root.parent.leaf", &[("vcore", 1)])).priority = 5;
    assert_eq!(exported_priorities(&fixture), (Some(8), Some(13)));
    fixture.snapshot.demand.remove("job_2");
    assert_eq!(exported_priorities(&fixture), (Some(3), Some(8)));
    fixture.snapshot.demand.remove("job_1");
    assert_eq!(exported_priorities(&fixture), (None, None));
}

#[test]
fn priorities_respect_fences() {
    let with_fence = |offset: i32, queues: Value| {
        let mut fenced = json!({"priority_policy": "fence", "priority_offset": offset});
        fenced["queues"] = queues;
        fenced
    };
    let system = json!({"queues": {"normal": {}, "high": {"priority_offset": 1000},
        "low": {"priority_offset": -1000}}});
    let a = with_fence(10, json!({"a1": {}, "a2": {}}));
    let b = with_fence(0, json!({"b1": {}, "b2": {}}));
    let tenants = with_fence(0, json!({"a": a, "b": b}));
    let queues = json!({"system": system, "tenants": tenants});
    let root = json!({"submit_acl": "*", "queues": queues});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 100 * VCORE)]);
    // Queue and priority of each work item, in the expected serve order. A priority counts only
    // within the nearest fence.
    let expected = [
        ("system.high", 1),
        ("system.normal", 10),
        ("system.normal", 2),
        ("tenants.a.a1", 8),
        ("tenants.a.a2", 6),
        ("tenants.a.a1", 5),
        ("tenants.a.a2", 4),
        ("tenants.b.b1", 9),
        ("tenants.b.b2", 8),
        ("tenants.b.b1", 7),
        ("system.low", 3),
    ];
    for (queue, priority) in expected.iter().rev() {
        let id = format!("job_{}-{priority}", queue.replace('.', "-"));
        let demand = fixture.add_work(&id, &format!("root.{queue}"), &[("vcore", 1)]);
        queued_mut(demand).priority = *priority;
    }
    let plan = fixture.step();
    let expected =
        expected.map(|(queue, priority)| format!("job_{}-{priority}", queue.replace('.', "-")));
    assert_eq!(granted_works(&plan), expected);
}

/// The larger waiting amount goes first among equals, so the tenants get 7 of the 13 vcores.
#[test]
fn a_fence_separates_the_priorities_of_tenants() {
    let tenants = json!({"priority_policy": "fence", "queues": {
        "group-a": {"priority_offset": 20}, "group-b": {"priority_offset": 5}}});
    let system = json!({"queues": {"normal": {}}});
    let queues = json!({"system": system, "tenants": tenants});
    let root = json!({"submit_acl": "*", "queues": queues});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 13 * VCORE)]);
    for index in 0..7 {
        for leaf in ["system.normal", "tenants.group-a", "tenants.group-b"] {
            let id = format!("job_{}-{index}", leaf.replace('.', "-"));
            fixture.add_work(&id, &format!("root.{leaf}"), &[("vcore", VCORE)]);
        }
    }
    fixture.settle();
    let running = |leaf: &str| fixture.queue(&format!("root.{leaf}")).running_applications;
    let counts = (
        running("system.normal"),
        running("tenants.group-a"),
        running("tenants.group-b"),
    );
    assert_eq!(counts, (6, 7, 0));
}

/// Plans two applications that could each fill the only node.
fn plan_two_applications(sort: &str) -> Plan {
    let root = json!({"submit_acl": "*", "queues": {"a": {"sort": sort}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", 4 * VCORE)]);
    fixture.add_processes("job_old", "root.a", 4, VCORE);
    fixture.add_processes("job_young", "root.a", 4, VCORE);
    fixture.step()
}

#[test]
fn fifo_serves_the_oldest_and_fair_the_smallest_share() {
    assert_eq!(
        granted_works(&plan_two_applications("fifo")),
        ["job_old"; 4]
    );
    let fair = ["job_old", "job_young", "job_old", "job_young"];
    assert_eq!(granted_works(&plan_two_applications("fair")), fair);
}

#[test]
fn priority_goes_before_age() {
    let root = json!({"submit_acl": "*", "queues": {"a": {}}});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root}}));
    fixture.add_node("n1", &[("vcore", VCORE)]);
    fixture.add_work("job_old", "root.a", &[("vcore", VCORE)]);
    queued_mut(fixture.add_work("job_young", "root.a", &[("vcore", VCORE)])).priority = 1;
    assert_eq!(granted_works(&fixture.step()), ["job_young"]);
}
