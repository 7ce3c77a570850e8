//! Pools that are divided among queues, beside one that is not.

mod groups;

use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_rm_scheduler::replay::Replay;
use hayward_rm_scheduler_api::load::Load;
use hayward_rm_scheduler_api::occupancy::Occupancy;
use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyView};
use hayward_rm_scheduler_api::queues::{QueueEntry, QueueState, Queues};
use hayward_rm_scheduler_api::views::RoundList;
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::{Gang, Queued, Timestamp};
use http::Method;
use http::header::IF_MATCH;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::neighbours::job;
use super::world::{Allocations, World, of, stays};

const GIB: u64 = 1 << 30;

/// Pool `batch` with these queues has the nodes from `n2` on.
fn policy(queues: &Value) -> Value {
    json!({
        "pools": {
            "default": {},
            "batch": { "nodes": ["n2", "n3"], "queues": queues },
        },
        "classes": {
            "normal": { "policy": "FAIR_SHARE", "pool": "default", "default": true },
        },
    })
}

/// `a` and `b` with half of eight quanta each, and `c` for `ben` alone.
fn halves() -> Value {
    let half = json!({
        "submit_acl": "*", "resources": { "guaranteed": { "memory": "4Gi" } },
        "preemption_delay_ms": 1,
    });
    json!({ "queues": { "a": half, "b": half, "c": { "submit_acl": "ben" } } })
}

async fn put(world: &World, query: &str, policy: &Value) -> Result<PolicyAnswer, ClientError> {
    let now: PolicyView = world.client("viewer").get("/v1/policy").await.unwrap();
    let call = world.client("operator");
    let call = call.call(Method::PUT, format!("/v1/policy{query}"));
    let call = call.header(IF_MATCH, &format!("\"{}\"", now.generation));
    Ok(call.body(policy).answer().await?.body)
}

fn faults<T>(outcome: Result<T, ClientError>) -> Vec<(String, String)> {
    let error = outcome.err().expect("it is refused");
    let errors = &error.problem().expect("a problem document").errors;
    let pairs = errors.iter();
    pairs
        .map(|it| (it.pointer.clone(), it.detail.clone()))
        .collect()
}

fn queued(id: &str, (user, queue): (&str, &str), processes: u64) -> DemandEntry {
    let mut demand = job(id, user);
    demand.max_processes = processes;
    demand.submitted_at = Timestamp::from_unix_ms(1_000);
    demand.queued = Some(Box::new(Queued {
        queue: Some(queue.to_owned()),
        ..Queued::default()
    }));
    demand
}

fn gang(id: &str, (user, queue): (&str, &str), (members, quanta): (u64, u64)) -> DemandEntry {
    let mut demand = queued(id, (user, queue), members);
    demand.size.memory_bytes = quanta * GIB;
    let gang = Gang {
        name: "gang".to_owned(),
        min: members,
    };
    demand.queued.as_mut().unwrap().gang = Some(gang);
    demand
}

async fn queue(world: &World, path: &str) -> Option<QueueEntry> {
    // Nothing is told before all neighbours have been heard.
    let found: Queues = world.client("viewer").get("/v1/queues").await.ok()?;
    let pool = found.pools.into_iter().next()?;
    pool.queues.into_iter().find(|it| it.queue == path)
}

fn held(all: &Allocations, work: &str) -> usize {
    of(all, work).iter().filter(|it| stays(it)).count()
}

async fn running(world: &World, work: &str, count: usize) -> Allocations {
    let all = world
        .until(&format!("{count} of {work}"), |all| {
            held(all, work) == count
        })
        .await;
    for entry in of(&all, work) {
        world.report(&entry, ContainerState::Running);
    }
    all
}

async fn all_rounds_replay(world: &World) {
    let list: RoundList = world
        .client("viewer")
        .get("/v1/rounds?limit=1000")
        .await
        .unwrap();
    assert!(list.rounds.iter().all(|round| round.refused.is_empty()));
    for round in list.rounds.iter().filter(|it| it.without_inputs.is_none()) {
        let path = format!("/v1/rounds/{}/inputs", round.round);
        let text: Box<RawValue> = world.client("operator").get(&path).await.unwrap();
        let replay = Replay::read(text.get()).unwrap();
        let told = replay.compare(replay.plan()).unwrap();
        assert!(told.equal, "{}: {:#?}", round.round, told.differences);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pool_is_planned_by_its_own_planner_and_views_tell_both() {
    let world = World::new(&[4, 4, 4]).await;
    put(&world, "", &policy(&halves())).await.unwrap();
    world.around.ask(&job("job_class", "ann"));
    world.around.ask(&queued("job_a", ("ann", "root.a"), 3));
    world.around.ask(&queued("job_c", ("ben", "c"), 9));
    running(&world, "job_class", 4).await;
    running(&world, "job_a", 3).await;
    let all = running(&world, "job_c", 5).await;
    for entry in all.values() {
        let in_queue = entry.work.as_str() != "job_class";
        assert_eq!(entry.node.as_str() != "n1", in_queue, "{entry:?}");
    }
    assert!(of(&all, "job_c").iter().all(|it| it.class == "root.c"));

    let root = queue(&world, "root").await.unwrap();
    assert_eq!(root.used["memory"], 8 * GIB);
    assert_eq!(root.max["memory"], 8 * GIB);
    let (a, c) = (queue(&world, "root.a").await, queue(&world, "root.c").await);
    let (a, c) = (a.unwrap(), c.unwrap());
    assert_eq!(a.guaranteed["memory"], 4 * GIB);
    assert_eq!((a.used["memory"], a.pending.get("memory")), (3 * GIB, None));
    assert_eq!((c.used["memory"], c.pending["memory"]), (5 * GIB, 4 * GIB));
    assert_eq!(root.pending["memory"], 4 * GIB);
    assert_eq!(
        (root.running_applications, root.waiting_applications),
        (2, 0)
    );
    let viewer = world.client("viewer");
    let other = viewer.get::<Queues>("/v1/queues?pool=default").await;
    assert!(other.is_err());

    let shares = world.shares().await.unwrap();
    assert_eq!(
        (shares.capacity, shares.held, shares.divided),
        (4, 4, vec!["batch".into()])
    );
    assert!(shares.pools.iter().all(|pool| pool.pool == "default"));
    let load: Load = viewer.get("/v1/load").await.unwrap();
    let batch = load.pools.iter().find(|it| it.pool == "batch").unwrap();
    assert_eq!(
        (batch.total, batch.free, batch.requested, batch.awarded),
        (8, 0, 12, 8)
    );
    let nodes: Occupancy = viewer.get("/v1/occupancy?node=n2").await.unwrap();
    let node = &nodes.nodes[0];
    assert_eq!((node.held, node.reservable), (4, false));
    assert!(node.classes.is_empty(), "{:?}", node.classes);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_queues_are_refused_with_all_their_faults_where_they_stand() {
    let world = World::new(&[4, 4]).await;
    let mut bad = policy(&json!({
        "queues": { "a": { "weight": 3, "resources": {
            "guaranteed": { "memory": "9G" }, "max": { "memory": "1G", "vcore": "five" } } } },
        "placement": [{ "rule": "fixed" }],
    }));
    bad["pools"]["below"] = json!({ "parent": "batch", "queues": { "queues": { "x": {} } } });
    let told = faults(put(&world, "?dry_run=true", &bad).await);
    let pointers: Vec<&str> = told.iter().map(|it| it.0.as_str()).collect();
    let expected = [
        "/pools/batch/queues/placement/0/value",
        "/pools/batch/queues/queues/a/resources/guaranteed/memory",
        "/pools/batch/queues/queues/a/resources/max/vcore",
        "/pools/batch/queues/queues/a/weight",
        "/pools/below/queues",
    ];
    assert_eq!(pointers, expected, "{told:#?}");
    let good = put(&world, "?dry_run=true", &policy(&halves()))
        .await
        .unwrap();
    assert!(good.changes.iter().any(|it| it.contains("/pools/batch")));
    let queues: Queues = world.client("viewer").get("/v1/queues").await.unwrap();
    assert!(queues.pools.is_empty(), "a dry run changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_submit_is_told_within_a_round() {
    let world = World::new(&[4, 4]).await;
    world.around.ask(&queued("job_early", ("ann", "root.a"), 1));
    let early = world
        .until_verdict("job_early", WaitReason::UnknownClass)
        .await;
    assert!(early.refused && early.detail.contains("no pool has queues"));
    put(&world, "", &policy(&halves())).await.unwrap();
    world.around.ask(&queued("job_c", ("ann", "root.c"), 1));
    let refused = world
        .until_verdict("job_c", WaitReason::NotAuthorised)
        .await;
    assert!(refused.refused, "{refused:?}");
    assert_eq!(refused.detail, "user ann may not submit to queue root.c");
    world.around.ask(&queued("job_d", ("ann", "root.d"), 1));
    let unknown = world.until_verdict("job_d", WaitReason::UnknownClass).await;
    assert!(unknown.refused && unknown.detail.contains("there is no queue root.d"));
    // A class of a pool with queues finds nothing there, and says so.
    let mut other = policy(&halves());
    other["classes"]["batch"] = json!({ "policy": "FAIR_SHARE", "pool": "batch" });
    let answer = put(&world, "", &other).await.unwrap();
    assert!(
        answer
            .notes
            .iter()
            .any(|it| it.starts_with("/classes/batch/pool"))
    );
    let mut demand = job("job_class", "ann");
    demand.class = Some("batch".into());
    world.around.ask(&demand);
    let says = |it: &hayward_rm_scheduler_api::VerdictEntry| it.detail.contains("name a queue");
    world
        .until_told("job_class", "is told of queues", says)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarantee_is_taken_back_from_who_is_over_theirs_and_rounds_replay() {
    let world = World::new(&[1, 4, 4]).await;
    put(&world, "", &policy(&halves())).await.unwrap();
    world.around.ask(&queued("job_a", ("ann", "root.a"), 8));
    running(&world, "job_a", 8).await;
    world.around.ask(&queued("job_b", ("ben", "root.b"), 8));
    // One process at a time is made room for, and each has to be proven gone.
    let mut all = world.allocations().await;
    for _ in 0..40 {
        let done = held(&all, "job_a") == 4 && held(&all, "job_b") == 4;
        if done {
            break;
        }
        let moves = |all: &Allocations| {
            let leaving = all.values().any(|it| it.holds() && !stays(it));
            leaving || held(all, "job_b") == 4
        };
        all = world.until("somebody has to go", moves).await;
        for entry in all.values().filter(|it| it.holds() && !stays(it)) {
            let why = entry.vacate.as_ref().unwrap();
            assert_eq!(why.reason, VacateReason::Preempted);
            assert_eq!(entry.work.as_str(), "job_a");
            world.report(entry, ContainerState::Ended);
        }
        world.round().await;
        all = world.allocations().await;
    }
    assert_eq!((held(&all, "job_a"), held(&all, "job_b")), (4, 4));
    let told = |it: &hayward_rm_scheduler_api::VerdictEntry| {
        let mut receipts = it.receipts.iter();
        receipts.any(|it| {
            it.beneficiary
                .as_ref()
                .is_some_and(|to| to.as_str() == "job_b")
        })
    };
    world.until_told("job_a", "has receipts", told).await;
    for name in ["root.a", "root.b"] {
        let queue = queue(&world, name).await.unwrap();
        assert_eq!(queue.used["memory"], 4 * GIB, "{name}");
    }
    all_rounds_replay(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_that_go_while_they_are_used_drain_also_over_a_restart() {
    let mut world = World::new(&[1, 4, 4]).await;
    put(&world, "", &policy(&halves())).await.unwrap();
    world.around.ask(&queued("job_b", ("ben", "root.b"), 8));
    running(&world, "job_b", 8).await;
    world.around.ask(&queued("job_old", ("ben", "root.b"), 1));
    let waits = |it: &hayward_rm_scheduler_api::VerdictEntry| !it.refused;
    world.until_told("job_old", "waits", waits).await;
    let before = world.allocations().await;

    // A leaf that is used becomes no parent, and all queues at once do not go either.
    let mut parent = halves();
    parent["queues"]["b"]["queues"] = json!({ "below": {} });
    let told = faults(put(&world, "", &policy(&parent)).await);
    assert_eq!(
        told[0].0, "/pools/batch/queues/queues/root/queues/b",
        "{told:?}"
    );
    let mut none = policy(&halves());
    none["pools"]["batch"]
        .as_object_mut()
        .unwrap()
        .remove("queues");
    let told = faults(put(&world, "?dry_run=true", &none).await);
    assert!(
        told[0].0 == "/pools/batch/queues" && told[0].1.contains("root.b"),
        "{told:?}"
    );

    let mut without = halves();
    without["queues"].as_object_mut().unwrap().remove("b");
    put(&world, "", &policy(&without)).await.unwrap();
    for restarts in [false, true] {
        if restarts {
            world.restart().await;
        }
        let b = until("it drains", async || queue(&world, "root.b").await).await;
        assert_eq!((b.state, b.used["memory"]), (QueueState::Draining, 8 * GIB));
        let id = format!("job_new{}", u8::from(restarts));
        let mut late = queued(&id, ("ben", "root.b"), 1);
        late.submitted_at = Timestamp::from_unix_ms(4_000_000_000_000);
        world.around.ask(&late);
        let refused = world.until_verdict(&id, WaitReason::UnknownClass).await;
        assert!(
            refused.refused && refused.detail.contains("draining"),
            "{refused:?}"
        );
        assert!(!world.verdicts().await["job_old"].refused);
    }
    let after = world.allocations().await;
    assert!(
        before.keys().all(|id| stays(&after[id])),
        "nothing was harmed"
    );

    world.around.demand.remove("job_old");
    world.around.demand.remove("job_b");
    world.let_go().await;
    until("it is gone", async || {
        let b = queue(&world, "root.b").await;
        b.is_none().then_some(())
    })
    .await;
    world.settled().await;
    let rows = world
        .rows("select name from rm_scheduler.carried where kind = 'draining'")
        .await;
    assert!(rows.is_empty(), "{rows:?}");
}

/// What is kept, as it is in rows: `reservations`, or the nodes of a `gang`.
async fn kept(world: &World, pointer: &str) -> Option<Value> {
    let sql = "select body::text from rm_scheduler.carried where kind = 'queues'";
    let row = world.rows(sql).await.into_iter().next()?;
    let body: Value = serde_json::from_str(&row).unwrap();
    let kept = body["kept"].pointer(pointer)?.clone();
    kept.as_object()
        .is_some_and(|it| !it.is_empty())
        .then_some(kept)
}

const RESERVATIONS: &str = "/reservations";
const ROOM: &str = "/gang/nodes";

/// I23, I13: plain work takes every hole, until room is kept for the gang; what runs goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_gets_in_behind_plain_work_that_takes_every_hole() {
    let mut world = World::new(&[1, 4, 4]).await;
    put(&world, "", &policy(&halves())).await.unwrap();
    world
        .around
        .ask(&queued("job_plain", ("ben", "root.c"), 20_000));
    running(&world, "job_plain", 8).await;
    world
        .around
        .ask(&gang("job_gang", ("ben", "root.c"), (3, 2)));
    let waits = |it: &hayward_rm_scheduler_api::VerdictEntry| {
        it.reason == WaitReason::GangIncomplete
            && it.detail.contains("space for all of it is reserved")
    };
    let mut room = None;
    // As often as it takes until the gang has waited long enough.
    for _ in 0..100_000 {
        let all = world.allocations().await;
        let mut plain = of(&all, "job_plain");
        plain.retain(stays);
        let oldest = plain.remove(0);
        world.report(&oldest, ContainerState::Ended);
        room = until("the hole is taken, or room is kept", async || {
            let room = kept(&world, ROOM).await;
            let all = world.allocations().await;
            let ended = all.get(oldest.id.as_str()).is_none_or(|it| !it.holds());
            let taken = ended && held(&all, "job_plain") == 8;
            (room.is_some() || taken).then_some(room)
        })
        .await;
        if room.is_some() {
            break;
        }
    }
    let room = room.expect("room is kept");
    world.until_told("job_gang", "has room", waits).await;
    world.restart().await;
    world.settled().await;
    assert_eq!(kept(&world, ROOM).await, Some(room.clone()));
    let found: Queues = world
        .client("viewer")
        .get("/v1/queues?pool=batch")
        .await
        .unwrap();
    assert_eq!(found.pools[0].kept, room.as_object().unwrap().len() as u64);

    // They end one after the other, and the gang starts with the last that is needed.
    let mut all = world.allocations().await;
    for _ in 0..8 {
        let mut plain = of(&all, "job_plain");
        plain.retain(AllocationEntry::holds);
        if let Some(one) = plain.first() {
            world.report(one, ContainerState::Ended);
            let ended = |all: &Allocations| all.get(one.id.as_str()).is_none_or(|it| !it.holds());
            world.until("it has ended", ended).await;
        }
        all = world.allocations().await;
        let members = held(&all, "job_gang");
        assert!(members == 0 || members == 3, "a gang was torn: {members}");
        if members == 3 {
            break;
        }
    }
    let whole = |all: &Allocations| held(all, "job_gang") == 3;
    all = world.until("the gang has started", whole).await;
    assert_eq!(held(&all, "job_gang"), 3);
    assert_eq!(kept(&world, ROOM).await, None);
    all_rounds_replay(&world).await;
}

/// Section 10, 17.1: what the gang is guaranteed is taken for all of it in one round.
#[tokio::test(flavor = "multi_thread")]
async fn a_guaranteed_gang_is_made_room_for_all_at_once() {
    let world = World::new(&[1, 4, 4]).await;
    put(&world, "", &policy(&halves())).await.unwrap();
    world
        .around
        .ask(&queued("job_plain", ("ben", "root.a"), 20_000));
    running(&world, "job_plain", 8).await;
    world
        .around
        .ask(&gang("job_gang", ("ann", "root.b"), (2, 2)));
    let goes = |all: &Allocations| of(all, "job_plain").iter().any(|it| it.vacate.is_some());
    let all = world.until("somebody has to go", goes).await;
    let mut going = of(&all, "job_plain");
    going.retain(|it| it.vacate.is_some());
    assert_eq!(going.len(), 4, "in one commit");
    let told = world
        .until_verdict("job_gang", WaitReason::WaitingForPreemption)
        .await;
    let words = "0 of the 2 processes it lacks fit";
    assert!(told.detail.contains(words), "{}", told.detail);
    let (last, others) = going.split_last().unwrap();
    for entry in others {
        assert_eq!(
            entry.vacate.as_ref().unwrap().reason,
            VacateReason::Preempted
        );
        world.report(entry, ContainerState::Ended);
        world.settled().await;
        let all = world.allocations().await;
        assert_eq!((held(&all, "job_gang"), held(&all, "job_plain")), (0, 4));
    }
    world.report(last, ContainerState::Ended);
    let starts = |all: &Allocations| held(all, "job_gang") == 2;
    let all = world.until("it starts", starts).await;
    assert_eq!(held(&all, "job_plain"), 4);
    all_rounds_replay(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_keeps_its_node_over_a_restart() {
    let mut world = World::new(&[1, 4, 4]).await;
    put(&world, "", &policy(&halves())).await.unwrap();
    world.around.ask(&queued("job_c", ("ben", "root.c"), 8));
    running(&world, "job_c", 8).await;
    let mut large = queued("job_large", ("ben", "root.c"), 1);
    large.size.memory_bytes = 4 * GIB;
    world.around.ask(&large);
    let before = until("a node is kept", async || kept(&world, RESERVATIONS).await).await;
    world.restart().await;
    world.settled().await;
    let found: Queues = world
        .client("viewer")
        .get("/v1/queues?pool=batch")
        .await
        .unwrap();
    assert_eq!(found.pools[0].kept, 1);
    assert_eq!(kept(&world, RESERVATIONS).await, Some(before));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_queues_of_a_pool_go_only_by_order_and_their_work_ends() {
    let world = World::new(&[1, 4, 4]).await;
    put(&world, "", &policy(&halves())).await.unwrap();
    world.around.ask(&queued("job_a", ("ann", "root.a"), 3));
    running(&world, "job_a", 3).await;
    let mut none = policy(&halves());
    let batch = none["pools"]["batch"].as_object_mut().unwrap();
    batch.remove("queues");
    assert!(put(&world, "", &none).await.is_err());
    put(&world, "?drop_classes=true", &none).await.unwrap();
    let told = |all: &Allocations| of(all, "job_a").iter().all(|it| !stays(it));
    let all = world.until("it is told to go", told).await;
    let vacate = of(&all, "job_a").remove(0).vacate.unwrap();
    assert_eq!(vacate.reason, VacateReason::WorkGone);
    world.let_go().await;
    let over = |it: &hayward_rm_scheduler_api::VerdictEntry| it.refused;
    world.until_told("job_a", "is refused", over).await;
}
