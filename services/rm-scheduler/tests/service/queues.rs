//! Pools with queues next to one without.

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

use super::fixture::{Allocations, Fixture, of, stays};
use super::neighbours::job;

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

async fn put(fixture: &Fixture, query: &str, policy: &Value) -> Result<PolicyAnswer, ClientError> {
    let now: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    let call = fixture.client("operator");
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

async fn queue(fixture: &Fixture, path: &str) -> Option<QueueEntry> {
    // No answer before all neighbours were heard.
    let found: Queues = fixture.client("viewer").get("/v1/queues").await.ok()?;
    let pool = found.pools.into_iter().next()?;
    pool.queues.into_iter().find(|it| it.queue == path)
}

fn held(all: &Allocations, work: &str) -> usize {
    of(all, work).iter().filter(|it| stays(it)).count()
}

async fn running(fixture: &Fixture, work: &str, count: usize) -> Allocations {
    let all = fixture
        .until(&format!("{count} of {work}"), |all| {
            held(all, work) == count
        })
        .await;
    for entry in of(&all, work) {
        fixture.report(&entry, ContainerState::Running);
    }
    all
}

async fn all_rounds_replay(fixture: &Fixture) {
    let list: RoundList = fixture
        .client("viewer")
        .get("/v1/rounds?limit=1000")
        .await
        .unwrap();
    assert!(list.rounds.iter().all(|round| round.refused.is_empty()));
    for round in list.rounds.iter().filter(|it| it.without_inputs.is_none()) {
        let path = format!("/v1/rounds/{}/inputs", round.round);
        let text: Box<RawValue> = fixture.client("operator").get(&path).await.unwrap();
        let replay = Replay::read(text.get()).unwrap();
        let told = replay.compare(replay.plan()).unwrap();
        assert!(told.equal, "{}: {:#?}", round.round, told.differences);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pool_is_planned_by_its_own_planner_and_views_show_both() {
    let fixture = Fixture::new(&[4, 4, 4]).await;
    put(&fixture, "", &policy(&halves())).await.unwrap();
    fixture.around.ask(&job("job_class", "ann"));
    fixture.around.ask(&queued("job_a", ("ann", "root.a"), 3));
    fixture.around.ask(&queued("job_c", ("ben", "c"), 9));
    running(&fixture, "job_class", 4).await;
    running(&fixture, "job_a", 3).await;
    let all = running(&fixture, "job_c", 5).await;
    for entry in all.values() {
        let in_queue = entry.work.as_str() != "job_class";
        assert_eq!(entry.node.as_str() != "n1", in_queue, "{entry:?}");
    }
    assert!(of(&all, "job_c").iter().all(|it| it.class == "root.c"));

    let root = queue(&fixture, "root").await.unwrap();
    assert_eq!(root.used["memory"], 8 * GIB);
    assert_eq!(root.max["memory"], 8 * GIB);
    let (a, c) = (
        queue(&fixture, "root.a").await,
        queue(&fixture, "root.c").await,
    );
    let (a, c) = (a.unwrap(), c.unwrap());
    assert_eq!(a.guaranteed["memory"], 4 * GIB);
    assert_eq!((a.used["memory"], a.pending.get("memory")), (3 * GIB, None));
    assert_eq!((c.used["memory"], c.pending["memory"]), (5 * GIB, 4 * GIB));
    assert_eq!(root.pending["memory"], 4 * GIB);
    assert_eq!(
        (root.running_applications, root.waiting_applications),
        (2, 0)
    );
    let viewer = fixture.client("viewer");
    let other = viewer.get::<Queues>("/v1/queues?pool=default").await;
    assert!(other.is_err());

    let shares = fixture.shares().await.unwrap();
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
async fn bad_queues_are_refused_with_a_pointer_to_each_fault() {
    let fixture = Fixture::new(&[4, 4]).await;
    let mut bad = policy(&json!({
        "queues": { "a": { "weight": 3, "resources": {
            "guaranteed": { "memory": "9G" }, "max": { "memory": "1G", "vcore": "five" } } } },
        "placement": [{ "rule": "fixed" }],
    }));
    bad["pools"]["below"] = json!({ "parent": "batch", "queues": { "queues": { "x": {} } } });
    let told = faults(put(&fixture, "?dry_run=true", &bad).await);
    let pointers: Vec<&str> = told.iter().map(|it| it.0.as_str()).collect();
    let expected = [
        "/pools/batch/queues/placement/0/value",
        "/pools/batch/queues/queues/a/resources/guaranteed/memory",
        "/pools/batch/queues/queues/a/resources/max/vcore",
        "/pools/batch/queues/queues/a/weight",
        "/pools/below/queues",
    ];
    assert_eq!(pointers, expected, "{told:#?}");
    let good = put(&fixture, "?dry_run=true", &policy(&halves()))
        .await
        .unwrap();
    assert!(good.changes.iter().any(|it| it.contains("/pools/batch")));
    let queues: Queues = fixture.client("viewer").get("/v1/queues").await.unwrap();
    assert!(queues.pools.is_empty(), "a dry run changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_access_is_refused_within_a_round() {
    let fixture = Fixture::new(&[4, 4]).await;
    fixture
        .around
        .ask(&queued("job_early", ("ann", "root.a"), 1));
    let early = fixture
        .until_verdict("job_early", WaitReason::UnknownClass)
        .await;
    assert!(early.refused && early.detail.contains("no pool has queues"));
    put(&fixture, "", &policy(&halves())).await.unwrap();
    fixture.around.ask(&queued("job_c", ("ann", "root.c"), 1));
    let refused = fixture
        .until_verdict("job_c", WaitReason::NotAuthorised)
        .await;
    assert!(refused.refused, "{refused:?}");
    assert_eq!(refused.detail, "user ann may not submit to queue root.c");
    fixture.around.ask(&queued("job_d", ("ann", "root.d"), 1));
    let unknown = fixture
        .until_verdict("job_d", WaitReason::UnknownClass)
        .await;
    assert!(unknown.refused && unknown.detail.contains("there is no queue root.d"));
    // A class of a pool with queues finds no node, and its verdict explains it.
    let mut other = policy(&halves());
    other["classes"]["batch"] = json!({ "policy": "FAIR_SHARE", "pool": "batch" });
    let answer = put(&fixture, "", &other).await.unwrap();
    assert!(
        answer
            .notes
            .iter()
            .any(|it| it.starts_with("/classes/batch/pool"))
    );
    let mut demand = job("job_class", "ann");
    demand.class = Some("batch".into());
    fixture.around.ask(&demand);
    let says = |it: &hayward_rm_scheduler_api::VerdictEntry| it.detail.contains("name a queue");
    fixture
        .until_told("job_class", "is told of queues", says)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarantee_is_served_by_preemption_and_rounds_replay() {
    let fixture = Fixture::new(&[1, 4, 4]).await;
    put(&fixture, "", &policy(&halves())).await.unwrap();
    fixture.around.ask(&queued("job_a", ("ann", "root.a"), 8));
    running(&fixture, "job_a", 8).await;
    fixture.around.ask(&queued("job_b", ("ben", "root.b"), 8));
    // Space is made for one process at a time, and each end has to be proven.
    let mut all = fixture.allocations().await;
    for _ in 0..40 {
        let done = held(&all, "job_a") == 4 && held(&all, "job_b") == 4;
        if done {
            break;
        }
        let moves = |all: &Allocations| {
            let leaving = all.values().any(|it| it.holds() && !stays(it));
            leaving || held(all, "job_b") == 4
        };
        all = fixture.until("somebody has to go", moves).await;
        for entry in all.values().filter(|it| it.holds() && !stays(it)) {
            let why = entry.vacate.as_ref().unwrap();
            assert_eq!(why.reason, VacateReason::Preempted);
            assert_eq!(entry.work.as_str(), "job_a");
            fixture.report(entry, ContainerState::Ended);
        }
        fixture.round().await;
        all = fixture.allocations().await;
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
    fixture.until_told("job_a", "has receipts", told).await;
    for name in ["root.a", "root.b"] {
        let queue = queue(&fixture, name).await.unwrap();
        assert_eq!(queue.used["memory"], 4 * GIB, "{name}");
    }
    all_rounds_replay(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_queues_in_use_drain_also_over_a_restart() {
    let mut fixture = Fixture::new(&[1, 4, 4]).await;
    put(&fixture, "", &policy(&halves())).await.unwrap();
    fixture.around.ask(&queued("job_b", ("ben", "root.b"), 8));
    running(&fixture, "job_b", 8).await;
    fixture.around.ask(&queued("job_old", ("ben", "root.b"), 1));
    let waits = |it: &hayward_rm_scheduler_api::VerdictEntry| !it.refused;
    fixture.until_told("job_old", "waits", waits).await;
    let before = fixture.allocations().await;

    // A leaf in use cannot become a parent, and all queues cannot be removed at once.
    let mut parent = halves();
    parent["queues"]["b"]["queues"] = json!({ "below": {} });
    let told = faults(put(&fixture, "", &policy(&parent)).await);
    assert_eq!(
        told[0].0, "/pools/batch/queues/queues/root/queues/b",
        "{told:?}"
    );
    let mut none = policy(&halves());
    none["pools"]["batch"]
        .as_object_mut()
        .unwrap()
        .remove("queues");
    let told = faults(put(&fixture, "?dry_run=true", &none).await);
    assert!(
        told[0].0 == "/pools/batch/queues" && told[0].1.contains("root.b"),
        "{told:?}"
    );

    let mut without = halves();
    without["queues"].as_object_mut().unwrap().remove("b");
    put(&fixture, "", &policy(&without)).await.unwrap();
    for restarts in [false, true] {
        if restarts {
            fixture.restart().await;
        }
        let b = until("it drains", async || queue(&fixture, "root.b").await).await;
        assert_eq!((b.state, b.used["memory"]), (QueueState::Draining, 8 * GIB));
        let id = format!("job_new{}", u8::from(restarts));
        let mut late = queued(&id, ("ben", "root.b"), 1);
        late.submitted_at = Timestamp::from_unix_ms(4_000_000_000_000);
        fixture.around.ask(&late);
        let refused = fixture.until_verdict(&id, WaitReason::UnknownClass).await;
        assert!(
            refused.refused && refused.detail.contains("draining"),
            "{refused:?}"
        );
        assert!(!fixture.verdicts().await["job_old"].refused);
    }
    let after = fixture.allocations().await;
    assert!(
        before.keys().all(|id| stays(&after[id])),
        "nothing was harmed"
    );

    fixture.around.demand.remove("job_old");
    fixture.around.demand.remove("job_b");
    fixture.let_go().await;
    until("it is gone", async || {
        let b = queue(&fixture, "root.b").await;
        b.is_none().then_some(())
    })
    .await;
    fixture.settled().await;
    let rows = fixture
        .rows("select name from rm_scheduler.carried where kind = 'draining'")
        .await;
    assert!(rows.is_empty(), "{rows:?}");
}

/// Stored carry-over: `reservations`, or the nodes of a `gang`.
async fn kept(fixture: &Fixture, pointer: &str) -> Option<Value> {
    let sql = "select body::text from rm_scheduler.carried where kind = 'queues'";
    let row = fixture.rows(sql).await.into_iter().next()?;
    let body: Value = serde_json::from_str(&row).unwrap();
    let kept = body["kept"].pointer(pointer)?.clone();
    kept.as_object()
        .is_some_and(|it| !it.is_empty())
        .then_some(kept)
}

const RESERVATIONS: &str = "/reservations";
const ROOM: &str = "/gang/nodes";

/// Small jobs use all free space until it is reserved for the gang. Running work goes on (I23).
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_small_jobs_does_not_starve_a_gang() {
    let mut fixture = Fixture::new(&[1, 4, 4]).await;
    put(&fixture, "", &policy(&halves())).await.unwrap();
    fixture
        .around
        .ask(&queued("job_plain", ("ben", "root.c"), 20_000));
    running(&fixture, "job_plain", 8).await;
    fixture
        .around
        .ask(&gang("job_gang", ("ben", "root.c"), (3, 2)));
    let waits = |it: &hayward_rm_scheduler_api::VerdictEntry| {
        it.reason == WaitReason::GangIncomplete
            && it.detail.contains("space for all of it is reserved")
    };
    let mut room = None;
    // Until the gang has waited long enough.
    for _ in 0..100_000 {
        let all = fixture.allocations().await;
        let mut plain = of(&all, "job_plain");
        plain.retain(stays);
        let oldest = plain.remove(0);
        fixture.report(&oldest, ContainerState::Ended);
        room = until("the hole is taken, or room is kept", async || {
            let room = kept(&fixture, ROOM).await;
            let all = fixture.allocations().await;
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
    fixture.until_told("job_gang", "has room", waits).await;
    fixture.restart().await;
    fixture.settled().await;
    assert_eq!(kept(&fixture, ROOM).await, Some(room.clone()));
    let found: Queues = fixture
        .client("viewer")
        .get("/v1/queues?pool=batch")
        .await
        .unwrap();
    assert_eq!(found.pools[0].kept, room.as_object().unwrap().len() as u64);

    // They end one after the other, and the gang starts with the last end it needs.
    let mut all = fixture.allocations().await;
    for _ in 0..8 {
        let mut plain = of(&all, "job_plain");
        plain.retain(AllocationEntry::holds);
        if let Some(one) = plain.first() {
            fixture.report(one, ContainerState::Ended);
            let ended = |all: &Allocations| all.get(one.id.as_str()).is_none_or(|it| !it.holds());
            fixture.until("it has ended", ended).await;
        }
        all = fixture.allocations().await;
        let members = held(&all, "job_gang");
        assert!(members == 0 || members == 3, "a gang was torn: {members}");
        if members == 3 {
            break;
        }
    }
    let whole = |all: &Allocations| held(all, "job_gang") == 3;
    all = fixture.until("the gang has started", whole).await;
    assert_eq!(held(&all, "job_gang"), 3);
    assert_eq!(kept(&fixture, ROOM).await, None);
    all_rounds_replay(&fixture).await;
}

/// The guarantee of the gang is preempted for all of it in one round.
#[tokio::test(flavor = "multi_thread")]
async fn space_for_a_guaranteed_gang_is_freed_at_once() {
    let fixture = Fixture::new(&[1, 4, 4]).await;
    put(&fixture, "", &policy(&halves())).await.unwrap();
    fixture
        .around
        .ask(&queued("job_plain", ("ben", "root.a"), 20_000));
    running(&fixture, "job_plain", 8).await;
    fixture
        .around
        .ask(&gang("job_gang", ("ann", "root.b"), (2, 2)));
    let goes = |all: &Allocations| of(all, "job_plain").iter().any(|it| it.vacate.is_some());
    let all = fixture.until("somebody has to go", goes).await;
    let mut going = of(&all, "job_plain");
    going.retain(|it| it.vacate.is_some());
    assert_eq!(going.len(), 4, "in one commit");
    let told = fixture
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
        fixture.report(entry, ContainerState::Ended);
        fixture.settled().await;
        let all = fixture.allocations().await;
        assert_eq!((held(&all, "job_gang"), held(&all, "job_plain")), (0, 4));
    }
    fixture.report(last, ContainerState::Ended);
    let starts = |all: &Allocations| held(all, "job_gang") == 2;
    let all = fixture.until("it starts", starts).await;
    assert_eq!(held(&all, "job_plain"), 4);
    all_rounds_replay(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_of_waiting_work_survives_a_restart() {
    let mut fixture = Fixture::new(&[1, 4, 4]).await;
    put(&fixture, "", &policy(&halves())).await.unwrap();
    fixture.around.ask(&queued("job_c", ("ben", "root.c"), 8));
    running(&fixture, "job_c", 8).await;
    let mut large = queued("job_large", ("ben", "root.c"), 1);
    large.size.memory_bytes = 4 * GIB;
    fixture.around.ask(&large);
    let before = until("a node is kept", async || {
        kept(&fixture, RESERVATIONS).await
    })
    .await;
    fixture.restart().await;
    fixture.settled().await;
    let found: Queues = fixture
        .client("viewer")
        .get("/v1/queues?pool=batch")
        .await
        .unwrap();
    assert_eq!(found.pools[0].kept, 1);
    assert_eq!(kept(&fixture, RESERVATIONS).await, Some(before));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_queues_of_a_pool_are_removed_only_on_request_and_their_work_ends() {
    let fixture = Fixture::new(&[1, 4, 4]).await;
    put(&fixture, "", &policy(&halves())).await.unwrap();
    fixture.around.ask(&queued("job_a", ("ann", "root.a"), 3));
    running(&fixture, "job_a", 3).await;
    let mut none = policy(&halves());
    let batch = none["pools"]["batch"].as_object_mut().unwrap();
    batch.remove("queues");
    assert!(put(&fixture, "", &none).await.is_err());
    put(&fixture, "?drop_classes=true", &none).await.unwrap();
    let told = |all: &Allocations| of(all, "job_a").iter().all(|it| !stays(it));
    let all = fixture.until("it is told to go", told).await;
    let vacate = of(&all, "job_a").remove(0).vacate.unwrap();
    assert_eq!(vacate.reason, VacateReason::WorkGone);
    fixture.let_go().await;
    let over = |it: &hayward_rm_scheduler_api::VerdictEntry| it.refused;
    fixture.until_told("job_a", "is refused", over).await;
}
