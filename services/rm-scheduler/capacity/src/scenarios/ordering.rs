//! Whose turn it is: S15, S16, S17, S25 and section 8.

use hayward_rm_scheduler_domain::Plan;
use serde_json::{Value, json};

use super::VCORE;
use crate::{
    fixture::{POOL, World, placed, queued},
    round_state::Books,
    serve_order::Line,
    tree::ROOT,
};

fn line<R>(world: &World, read: impl FnOnce(&Books, &Line) -> R) -> R {
    let queues = &world.snapshot.queues[POOL];
    let mut books = Books::open(&world.snapshot, POOL, queues);
    let line = Line::of(&mut books);
    read(&books, &line)
}

/// Queues with guarantees, what they use, and one more ask in each.
fn guaranteed(by_priority: bool, used: [u64; 4]) -> Vec<String> {
    let queue = |amount: u64| {
        json!({"resources": {"guaranteed": {"memory": amount,
        "vcore": format!("{amount}m")}}})
    };
    let queues = json!({"q0": queue(500), "q1": queue(300), "q2": queue(200), "q3": queue(200)});
    let root = json!({"submit_acl": "*", "sort_by_priority": by_priority, "queues": queues});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("memory", 10_000), ("vcore", 10_000)]);
    for (at, used) in used.into_iter().enumerate() {
        let queue = format!("root.q{at}");
        world.ask(
            &format!("job_{at}"),
            &queue,
            &[("memory", used), ("vcore", used)],
        );
    }
    world.settle();
    for at in 0..4 {
        let id = format!("job_more{at}");
        let demand = world.ask(&id, &format!("root.q{at}"), &[("vcore", 1), ("memory", 1)]);
        queued(demand).priority = if at == 3 { 3 } else { 1 };
    }
    line(&world, |books, line| {
        let path = |at: &usize| books.tree.spots[*at].path.clone();
        line.children(ROOT).iter().map(path).collect()
    })
}

#[test]
fn s15_queues_go_by_share_of_their_guarantee() {
    let paths = |names: [&str; 4]| names.map(|name| format!("root.{name}")).to_vec();
    let first = guaranteed(false, [300, 200, 100, 100]);
    assert_eq!(first, paths(["q3", "q2", "q0", "q1"]));
    let used = [200, 300, 100, 100];
    assert_eq!(guaranteed(false, used), paths(["q0", "q3", "q2", "q1"]));
    assert_eq!(guaranteed(true, used), paths(["q3", "q0", "q2", "q1"]));
}

#[test]
fn s16_offsets_add_up_on_the_way_to_the_root() {
    let root = json!({"submit_acl": "*", "queues": {"parent": {"priority_offset": 5,
        "queues": {"leaf": {"priority_offset": 3}}}}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    let exported = |world: &World| {
        line(world, |books, line| {
            let at = |path: &str| line.exported(books.tree.find(path).unwrap());
            (at("root.parent.leaf"), at("root.parent"))
        })
    };
    assert_eq!(exported(&world), (None, None));
    world.ask("job_1", "root.parent.leaf", &[("vcore", 1)]);
    assert_eq!(exported(&world), (Some(3), Some(8)));
    queued(world.ask("job_2", "root.parent.leaf", &[("vcore", 1)])).priority = 5;
    assert_eq!(exported(&world), (Some(8), Some(13)));
    world.snapshot.demand.remove("job_2");
    assert_eq!(exported(&world), (Some(3), Some(8)));
    world.snapshot.demand.remove("job_1");
    assert_eq!(exported(&world), (None, None));
}

#[test]
fn s17_priorities_over_a_tree_with_fences() {
    let fence = |offset: i32, queues: Value| {
        let mut fenced = json!({"priority_policy": "fence", "priority_offset": offset});
        fenced["queues"] = queues;
        fenced
    };
    let system = json!({"queues": {"normal": {}, "high": {"priority_offset": 1000},
        "low": {"priority_offset": -1000}}});
    let a = fence(10, json!({"a1": {}, "a2": {}}));
    let b = fence(0, json!({"b1": {}, "b2": {}}));
    let tenants = fence(0, json!({"a": a, "b": b}));
    let queues = json!({"system": system, "tenants": tenants});
    let root = json!({"submit_acl": "*", "queues": queues});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", 100 * VCORE)]);
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
        let demand = world.ask(&id, &format!("root.{queue}"), &[("vcore", 1)]);
        queued(demand).priority = *priority;
    }
    let plan = world.step();
    let expected = expected.map(|(queue, at)| format!("job_{}-{at}", queue.replace('.', "-")));
    assert_eq!(placed(&plan), expected);
}

/// Where all is alike the larger demand goes first (8.3), so of 13 places the tenants get the odd
/// one; the text of S25 gives it to the other side and does not say why.
#[test]
fn s25_a_fence_among_tenants() {
    let tenants = json!({"priority_policy": "fence", "queues": {
        "group-a": {"priority_offset": 20}, "group-b": {"priority_offset": 5}}});
    let system = json!({"queues": {"normal": {}}});
    let queues = json!({"system": system, "tenants": tenants});
    let root = json!({"submit_acl": "*", "queues": queues});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", 13 * VCORE)]);
    for at in 0..7 {
        for leaf in ["system.normal", "tenants.group-a", "tenants.group-b"] {
            let id = format!("job_{}-{at}", leaf.replace('.', "-"));
            world.ask(&id, &format!("root.{leaf}"), &[("vcore", VCORE)]);
        }
    }
    world.settle();
    let running = |leaf: &str| world.queue(&format!("root.{leaf}")).running_applications;
    let counts = (
        running("system.normal"),
        running("tenants.group-a"),
        running("tenants.group-b"),
    );
    assert_eq!(counts, (6, 7, 0));
}

fn two_apps(sort: &str) -> Plan {
    let root = json!({"submit_acl": "*", "queues": {"a": {"sort": sort}}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", 4 * VCORE)]);
    world.asks("job_old", "root.a", (4, VCORE));
    world.asks("job_young", "root.a", (4, VCORE));
    world.step()
}

#[test]
fn s8_2_fifo_serves_the_oldest_and_fair_the_poorest() {
    assert_eq!(placed(&two_apps("fifo")), ["job_old"; 4]);
    let fair = ["job_old", "job_young", "job_old", "job_young"];
    assert_eq!(placed(&two_apps("fair")), fair);
}

#[test]
fn s8_2_priority_goes_before_age() {
    let root = json!({"submit_acl": "*", "queues": {"a": {}}});
    let mut world = World::of(&json!({"queues": {"root": root}}));
    world.node("n1", &[("vcore", VCORE)]);
    world.ask("job_old", "root.a", &[("vcore", VCORE)]);
    queued(world.ask("job_young", "root.a", &[("vcore", VCORE)])).priority = 1;
    assert_eq!(placed(&world.step()), ["job_young"]);
}
