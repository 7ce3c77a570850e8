//! What holds for every pool: random trees, limits, gangs and work, and what happens to them.

mod gangs;
mod preemption;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    News, Plan, Planner, Reason,
    monitor::{self, Asked, Memory, Sequence},
    snapshot::queues::Queue,
};
use hayward_vocabulary::invariant::Outcome as Found;
use serde_json::{Value, json};

use crate::{
    Capacity,
    fixture::{POOL, World, queued},
};

const VCORE: u64 = 1_000;
const POOLS: u64 = 300;

/// SplitMix64
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn pick<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[usize::try_from(self.below(N as u64)).unwrap()]
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }
}

fn leaf(draw: &mut Draw) -> Value {
    let mut leaf = json!({"sort": if draw.one_in(2) { "fair" } else { "fifo" }});
    if draw.one_in(2) {
        leaf["resources"]["guaranteed"] = json!({"vcore": 1 + draw.below(3)});
    }
    if draw.one_in(3) {
        leaf["resources"]["max"] = json!({"vcore": 3 + draw.below(5), "memory": 50_000});
    }
    if draw.one_in(4) {
        leaf["preemption"] = json!("disabled");
    }
    if draw.one_in(3) {
        leaf["priority_offset"] = json!(draw.below(3));
    }
    if draw.one_in(4) {
        leaf["limits"] = json!([{"users": ["*"], "max_resources": {"vcore": 3}}]);
    }
    if draw.one_in(4) {
        leaf["max_applications"] = json!(1 + draw.below(3));
    }
    if draw.one_in(4) {
        let limit = json!({"vcore": 2 + draw.below(2)});
        let groups = [["dev"], ["*"]];
        let limits = groups.map(|it| json!({"groups": it, "max_resources": limit}));
        leaf["limits"] = json!(limits);
    }
    if draw.one_in(5) {
        leaf["backoff_asks"] = json!(2);
    }
    leaf
}

fn pool(draw: &mut Draw) -> World {
    let mut queues = json!({});
    for at in 0..=draw.below(3) {
        let mut parent = json!({"queues": {}, "priority_policy":
            if draw.one_in(3) { "fence" } else { "default" }});
        for below in 0..=draw.below(2) {
            parent["queues"][format!("l{below}")] = leaf(draw);
        }
        if draw.one_in(4) {
            parent["preemption"] = json!("fence");
        }
        queues[format!("p{at}")] = parent;
    }
    let policy = if draw.one_in(2) { "fair" } else { "binpacking" };
    let root = json!({"submit_acl": "*", "queues": queues});
    let mut world = World::of(&json!({"queues": {"root": root},
        "node_sort": {"policy": policy}, "reservation_ms": 120_000}));
    for at in 0..=draw.below(5) {
        let vcore = (1 + draw.below(6)) * VCORE;
        let memory = 20_000 + draw.below(50_000);
        let node = world.node(&format!("n{at}"), &[("vcore", vcore)]);
        node.capacity.memory_bytes = memory;
        node.capacity.gpu_milli = draw.below(3) * 1_000;
    }
    for at in 0..3 + draw.below(8) {
        add(&mut world, draw, at);
    }
    world
}

fn add(world: &mut World, draw: &mut Draw, at: u64) {
    let queue = format!("root.p{}.l{}", draw.below(3), draw.below(2));
    let gpu = if draw.one_in(5) {
        draw.pick([500, 1_000, 2_000])
    } else {
        0
    };
    let amounts = [
        ("vcore", (1 + draw.below(3)) * VCORE),
        ("memory", 1_000 + draw.below(9_000)),
        ("gpu", gpu),
    ];
    let (gang, nodes) = (draw.one_in(5), world.snapshot.nodes.len() as u64);
    let demand = world.ask(&format!("job_{at:03}"), &queue, &amounts);
    demand.max_processes = 1 + draw.below(5);
    demand.user = draw.pick(["ann", "bob", "cyd"]).parse().unwrap();
    if draw.one_in(6) {
        demand.avoids = ["n0".parse().unwrap()].into();
    }
    let groups = if demand.user.as_str() == "ann" {
        "dev"
    } else {
        "ops"
    }
    .to_owned();
    let (min, priority) = (demand.max_processes, i32::try_from(draw.below(3)).unwrap());
    let queued = queued(demand);
    queued.priority = priority;
    queued.groups = vec![groups];
    if draw.one_in(2) {
        queued.application = Some(format!("app{}", draw.below(4)));
    }
    if gang {
        let name = "gang".to_owned();
        queued.gang = Some(hayward_rm_scheduler_domain::snapshot::queues::Gang { name, min });
    } else if draw.one_in(8) {
        queued.required_node = Some(format!("n{}", draw.below(nodes)).parse().unwrap());
    }
    queued.preemptable = !draw.one_in(4);
    queued.originator = draw.one_in(6);
}

fn happens(world: &mut World, draw: &mut Draw, round: u64) {
    match draw.below(5) {
        0 => add(world, draw, 100 + round),
        1 => {
            let gone = draw.below(world.snapshot.demand.len().max(1) as u64);
            let gone = world
                .snapshot
                .demand
                .keys()
                .nth(usize::try_from(gone).unwrap())
                .cloned();
            gone.and_then(|work| world.snapshot.demand.remove(&work));
        }
        2 => {
            let open = draw.one_in(2);
            world.snapshot.nodes.values_mut().next().unwrap().takes_work = open;
        }
        3 => {
            let ended = world.snapshot.allocations.keys().next().cloned();
            ended.and_then(|id| world.snapshot.allocations.remove(&id));
        }
        _ => world.pass(draw.below(60_000)),
    }
}

fn each_pool(mut look: impl FnMut(u64, &mut World, &mut Draw)) {
    for seed in 0..POOLS {
        let mut draw = Draw(seed);
        let mut world = pool(&mut draw);
        look(seed, &mut world, &mut draw);
    }
}

/// `World::plan` holds every plan against `check`, which knows nodes, maxima and users.
#[test]
fn no_plan_over_commits_and_none_depends_on_anything_else() {
    each_pool(|seed, world, draw| {
        for round in 0..8 {
            let plan = world.plan();
            assert!(plan == Capacity.schedule(&world.snapshot), "seed {seed}");
            let text = serde_json::to_string(&world.snapshot).unwrap();
            let read = serde_json::from_str(&text).unwrap();
            assert!(
                plan == Capacity.schedule(&read),
                "seed {seed}: as it was kept"
            );
            gangs_are_whole(world, &plan);
            room_is_whole(seed, world, &plan);
            victims_are_lawful(seed, world, &plan);
            world.carry_out(&plan);
            happens(world, draw, round);
            limits_hold(seed, world);
        }
    });
}

/// What is said of a fleet that runs is true of every pool: the live checks accuse nobody.
#[test]
fn the_live_checks_hold_in_every_cycle() {
    each_pool(|seed, world, draw| {
        let (mut sequence, mut memory) = (Sequence::default(), Memory::default());
        sequence.anew(&world.snapshot);
        for round in 0..8_u64 {
            let before = world.snapshot.clone();
            sequence.planned();
            let plan = world.plan();
            world.carry_out(&plan);
            let after = &world.snapshot;
            for (name, node) in &after.nodes {
                sequence.node(name, before.nodes.get(name), node);
            }
            let unplanned = News {
                allocations: News::between(&before, after).allocations,
                ..News::default()
            };
            for (id, held) in &unplanned.allocations {
                sequence.allocation(id, held.is_some());
                let held = held.as_ref().or(before.allocations.get(id));
                sequence.stirs(&held.unwrap().node);
            }
            let asked = Asked {
                snapshot: after,
                verdicts: &plan.verdicts,
                unplanned: &unplanned,
                settled: true,
                sequence: &sequence,
                round,
                now_ms: round,
            };
            for finding in [
                monitor::no_over_commit(after, &sequence),
                monitor::explanations_are_true(&asked),
                monitor::work_conserving(&asked, &mut memory),
                monitor::gangs_are_whole(after, |_| 0, &mut memory, round),
            ] {
                let broken = matches!(finding.outcome, Found::Violated { .. });
                assert!(!broken, "seed {seed}, round {round}: {finding:#?}");
            }
            if round % 4 == 3 {
                happens(world, draw, round);
            }
        }
    });
}

/// What `check` does not know: how many applications run, and whose the groups are.
fn limits_hold(seed: u64, world: &World) {
    let mut apps: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    let mut groups: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let demand = &world.snapshot.demand;
    for held in world
        .snapshot
        .allocations
        .values()
        .filter(|held| !held.leaving)
    {
        let Some(demand) = demand.get(&held.work) else {
            continue;
        };
        let queued = demand.queued.as_ref().unwrap();
        let app = queued.application.as_deref().unwrap_or(held.work.as_str());
        let mine = (app, held.user.as_str());
        apps.entry(&held.class).or_default().insert(mine);
        let group = (held.class.as_str(), queued.groups[0].as_str());
        *groups.entry(group).or_default() += held.size.cpu_milli;
    }
    let root = &world.snapshot.queues[POOL].root;
    for (class, apps) in apps {
        let most = find(root, class).max_applications.unwrap_or(u64::MAX);
        assert!(
            apps.len() as u64 <= most,
            "seed {seed}: {apps:?} run in {class}"
        );
    }
    for ((class, group), used) in groups {
        let own = if group == "dev" { "dev" } else { "*" };
        let mut limits = find(root, class).limits.iter();
        let limit = limits.find(|limit| limit.groups.iter().any(|name| name == own));
        let most = limit.and_then(|limit| limit.max.get("vcore"));
        assert!(
            most.is_none_or(|most| used <= *most),
            "seed {seed}: {group} in {class}"
        );
    }
}

/// Parts of a gang start together: none of them has some while another lacks its least, unless it
/// had lost them.
fn gangs_are_whole(world: &World, plan: &Plan) {
    let mut least: BTreeMap<(&str, &str), (u64, u64, u64)> = BTreeMap::new();
    for (work, demand) in &world.snapshot.demand {
        let queued = demand.queued.as_ref().unwrap();
        let Some(gang) = &queued.gang else { continue };
        let app = queued.application.as_deref().unwrap_or(work.as_str());
        let granted = plan
            .grants
            .iter()
            .filter(|grant| grant.work == *work)
            .count() as u64;
        let before = world.has(work.as_str()) as u64;
        let sums = least.entry((app, demand.user.as_str())).or_default();
        let wanted = gang.min.min(demand.max_processes);
        sums.0 += wanted.saturating_sub(before);
        sums.1 += wanted.saturating_sub(before + granted);
        sums.2 += granted;
    }
    for (lacked, lacks, granted) in least.values() {
        assert!(
            *lacks == 0 || lacks == lacked,
            "a gang was torn: {lacked} {lacks} {granted}"
        );
    }
}

/// I13: room is kept for all that one gang lacks or for none of it, on nodes that could give it.
fn room_is_whole(seed: u64, world: &World, plan: &Plan) {
    let kept = &plan.carried.queues[POOL];
    let Some(room) = &kept.gang else { return };
    let lifetime = world.snapshot.queues[POOL].reservation_ms;
    let age = plan.at.ms_since(room.since);
    assert!(age < lifetime, "seed {seed}: room is kept for ever");
    let of = |work: &str| {
        let queued = world.snapshot.demand[work].queued.as_ref().unwrap();
        let app = queued.application.clone();
        (app.unwrap_or_else(|| work.to_owned()), queued.gang.clone())
    };
    let (app, gang) = of(room.work.as_str());
    let gang = gang.unwrap().name;
    for (work, demand) in &world.snapshot.demand {
        let (its_app, its) = of(work.as_str());
        let mine = its_app == app
            && demand.user == world.snapshot.demand[&room.work].user
            && its.as_ref().is_some_and(|its| its.name == gang);
        let has = room.nodes.values().filter_map(|works| works.get(work));
        let kept: u64 = has.sum();
        let granted = plan.grants.iter().filter(|grant| grant.work == *work);
        let going = plan.vacates.iter();
        let going = going.filter(|it| world.snapshot.allocations[&it.allocation].work == *work);
        let has = world.has(work.as_str()) - going.count() + granted.count();
        let least = its.map_or(0, |its| its.min.min(demand.max_processes));
        let lacks = least.saturating_sub(has as u64);
        assert_eq!(kept, if mine { lacks } else { 0 }, "seed {seed}: {work}");
    }
    for (name, works) in &room.nodes {
        assert!(!kept.reservations.contains_key(name), "seed {seed}: {name}");
        let node = &world.snapshot.nodes[name];
        let wants = works.iter().map(|(work, count)| {
            let size = &world.snapshot.demand[work].size;
            size.cpu_milli * count
        });
        let wants: u64 = wants.sum();
        assert!(
            node.takes_work && wants <= node.capacity.cpu_milli,
            "seed {seed}"
        );
    }
}

/// The laws of 10.1, looked at from outside.
fn victims_are_lawful(seed: u64, world: &World, plan: &Plan) {
    let snapshot = &world.snapshot;
    let mut left: BTreeMap<String, u64> = BTreeMap::new();
    for held in snapshot.allocations.values().filter(|held| !held.leaving) {
        *left.entry(held.class.clone()).or_default() += held.size.cpu_milli;
    }
    for grant in &plan.grants {
        *left.entry(grant.class.to_string()).or_default() += grant.size.cpu_milli;
    }
    let going: BTreeSet<_> = plan.vacates.iter().map(|it| &it.allocation).collect();
    for receipt in &plan.receipts {
        let held = &snapshot.allocations[&receipt.allocation];
        assert!(going.contains(&receipt.allocation), "a receipt for nothing");
        assert!(!held.leaving, "seed {seed}: taken twice");
        let (Some(work), victim) = (&receipt.beneficiary, &snapshot.demand[&held.work]) else {
            continue;
        };
        let asks = snapshot.demand[work].queued.as_ref().unwrap();
        let gives = victim.queued.as_ref().unwrap();
        assert!(asks.preempts || asks.required_node.is_some());
        if asks.required_node.is_some() {
            continue;
        }
        let to = plan.verdicts[work].class.as_deref().unwrap();
        assert!(held.class != to, "seed {seed}: taken from its own queue");
        assert!(gives.required_node.is_none());
        let queue = find(&snapshot.queues[POOL].root, &held.class);
        assert!(
            format!("{:?}", queue.preemption) != "Disabled",
            "seed {seed}: was spared"
        );
        let left = left.get_mut(&held.class).unwrap();
        *left -= held.size.cpu_milli;
        if let Some(guaranteed) = queue.guaranteed.get("vcore") {
            assert!(
                *left >= *guaranteed,
                "seed {seed}: pushed below its guarantee"
            );
        }
    }
}

fn find<'a>(root: &'a Queue, path: &str) -> &'a Queue {
    let names = path.split('.').skip(1);
    names.fold(root, |queue, name| &queue.children[name])
}

/// Without news everything comes to rest, and nothing is taken any more then.
#[test]
fn pools_come_to_rest() {
    each_pool(|seed, world, _| {
        let asked: u64 = world
            .snapshot
            .demand
            .values()
            .map(|it| it.max_processes)
            .sum();
        let mut taken = 0;
        let mut last = 0;
        for round in 0..60 {
            let plan = world.step();
            taken += plan.receipts.len() as u64;
            if !plan.is_empty() {
                last = round;
            }
            world.pass(30_000);
        }
        assert!(last < 50, "seed {seed}: still busy in round {last}");
        assert!(
            taken <= 2 * asked,
            "seed {seed}: {taken} were taken for {asked} asks"
        );
    });
}

/// With nothing but time that stands still, a plan that was carried out leaves nothing to do.
#[test]
fn a_plan_is_complete() {
    each_pool(|seed, world, _| {
        world.step();
        world.snapshot.now = world.snapshot.now.minus_ms(1_000);
        let again = world.plan();
        let granted: Vec<&str> = crate::fixture::placed(&again);
        assert!(
            again.vacates.is_empty() && granted.is_empty(),
            "seed {seed}: {granted:?}"
        );
    });
}

/// Who asks within a guarantee is served before anybody borrows, where nothing else differs.
#[test]
fn guaranteed_before_borrowed() {
    for seed in 0..POOLS {
        let mut draw = Draw(seed);
        let (a, b) = (1 + draw.below(5), 1 + draw.below(5));
        let queue = |it: u64| json!({"resources": {"guaranteed": {"vcore": it}}});
        let root = json!({"submit_acl": "*", "queues": {"a": queue(a), "b": queue(b)}});
        let mut world = World::of(&json!({"queues": {"root": root}}));
        world.node("n1", &[("vcore", (a + b + draw.below(4)) * VCORE)]);
        let wants = [1 + draw.below(12), 1 + draw.below(12)];
        world.asks("job_a", "root.a", (wants[0], VCORE));
        world.asks("job_b", "root.b", (wants[1], VCORE));
        world.settle();
        let has = |id: &str| world.has(id) as u64;
        assert!(has("job_a") >= a.min(wants[0]), "seed {seed}");
        assert!(has("job_b") >= b.min(wants[1]), "seed {seed}");
    }
}

/// Two gangs that each fit alone never stand in each other's way with a part of the room.
#[test]
fn pairs_of_gangs_never_wait_for_each_other() {
    for seed in 0..2_000 {
        let mut draw = Draw(seed);
        let root = json!({"submit_acl": "*", "queues": {"a": {}, "b": {}}});
        let mut world = World::of(&json!({"queues": {"root": root}}));
        let room = 2 + draw.below(5);
        world.node("n1", &[("vcore", room * VCORE)]);
        for id in ["a", "b"] {
            let parts = 1 + draw.below(room - 1);
            let queue = format!("root.{id}");
            world.part(&format!("job_{id}1"), (&queue, id), (parts, VCORE));
            world.part(&format!("job_{id}2"), (&queue, id), (room - parts, VCORE));
        }
        world.settle();
        let has =
            |id: &str| (world.has(&format!("job_{id}1")) + world.has(&format!("job_{id}2"))) as u64;
        let both = [has("a"), has("b")];
        assert!(
            both == [room, 0] || both == [0, room],
            "seed {seed}: {both:?} of {room}"
        );
    }
}

/// What is planned where nobody has a gang is planned as it was before room was kept for gangs.
#[test]
fn gangs_change_nothing_for_who_has_none() {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    each_pool(|_, world, draw| {
        for queues in world.snapshot.queues.values_mut() {
            without_groups(&mut queues.root);
        }
        for round in 0..8 {
            for demand in world.snapshot.demand.values_mut() {
                queued(demand).gang = None;
            }
            let plan = world.plan();
            let mut told = plan.clone();
            // What is kept is said in other words now.
            let verdicts = told.verdicts.values_mut();
            let kept = verdicts.filter(|it| it.reason == Reason::NodesReserved);
            kept.for_each(|it| it.detail = String::new().into());
            told.grants.iter_mut().for_each(|it| it.group = None);
            for byte in serde_json::to_string(&told).unwrap().bytes() {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            world.carry_out(&plan);
            happens(world, draw, round);
        }
    });
    assert_eq!(format!("{digest:016x}"), "faeecbfc0d825a9b");
}

/// Limits of groups were charged otherwise then.
fn without_groups(queue: &mut Queue) {
    queue.limits.retain(|limit| limit.groups.is_empty());
    queue.children.values_mut().for_each(without_groups);
}
