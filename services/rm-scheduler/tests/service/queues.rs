//! Tests of a pool whose space is divided among queues. The other pool of the fleet has no queues.

mod gangs;
mod user_groups;

use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_rm_scheduler::replay::Replay;
use hayward_rm_scheduler_api::load::Load;
use hayward_rm_scheduler_api::occupancy::Occupancy;
use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyView};
use hayward_rm_scheduler_api::queues::{QueueEntry, QueueState, Queues};
use hayward_rm_scheduler_api::views::RoundList;
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, VerdictEntry, WaitReason};
use hayward_service::FieldFault;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::{Gang, Queued, Timestamp};
use http::Method;
use http::header::IF_MATCH;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::fixture::{Allocations, Fixture, allocations_of, is_staying};
use super::neighbours::job;

const GIB: u64 = 1 << 30;

/// Returns a policy whose pool `batch` has these queues and the nodes `n2` and `n3`.
fn policy_with_queues(queues: &Value) -> Value {
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

/// Returns three queues. `a` and `b` are each guaranteed half of eight quanta. Only `ben` may use
/// `c`.
fn two_half_queues() -> Value {
    let half = json!({
        "submit_acl": "*", "resources": { "guaranteed": { "memory": "4Gi" } },
        "preemption_delay_ms": 1,
    });
    json!({ "queues": { "a": half, "b": half, "c": { "submit_acl": "ben" } } })
}

async fn set_policy(
    fixture: &Fixture,
    query: &str,
    policy: &Value,
) -> Result<PolicyAnswer, ClientError> {
    let now: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    let call = fixture.client("operator");
    let call = call.call(Method::PUT, format!("/v1/policy{query}"));
    let call = call.header(IF_MATCH, &format!("\"{}\"", now.generation));
    Ok(call.body(policy).send_for_response().await?.body)
}

fn faults_of<T>(outcome: Result<T, ClientError>) -> Vec<FieldFault> {
    let error = outcome.err().expect("it is refused");
    let problem = error.problem().expect("a problem document");
    problem.errors.clone()
}

fn queued_job(id: &str, user: &str, queue: &str, processes: u64) -> DemandEntry {
    let mut demand = job(id, user);
    demand.max_processes = processes;
    demand.submitted_at = Timestamp::from_unix_ms(1_000);
    demand.queued = Some(Box::new(Queued {
        queue: Some(queue.to_owned()),
        ..Queued::default()
    }));
    demand
}

async fn find_queue(fixture: &Fixture, path: &str) -> Option<QueueEntry> {
    // The route fails until all neighbours have answered.
    let found: Queues = fixture.client("viewer").get("/v1/queues").await.ok()?;
    let pool = found.pools.into_iter().next()?;
    pool.queues.into_iter().find(|it| it.queue == path)
}

fn count_held(all: &Allocations, work: &str) -> usize {
    allocations_of(all, work)
        .iter()
        .filter(|it| is_staying(it))
        .count()
}

async fn until_running(fixture: &Fixture, work: &str, count: usize) -> Allocations {
    let all = fixture
        .until(&format!("{count} processes of {work}"), |all| {
            count_held(all, work) == count
        })
        .await;
    for entry in allocations_of(&all, work) {
        fixture.report(&entry, ContainerState::Running);
    }
    all
}

async fn replay_all_rounds(fixture: &Fixture) {
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
        let comparison = replay.compare(replay.plan()).unwrap();
        assert!(
            comparison.equal,
            "{}: {:#?}",
            round.round, comparison.differences
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pool_is_planned_by_its_own_planner_and_views_show_both() {
    let fixture = Fixture::new(&[4, 4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&two_half_queues()))
        .await
        .unwrap();
    fixture.neighbours.submit(&job("job_class", "ann"));
    fixture
        .neighbours
        .submit(&queued_job("job_a", "ann", "root.a", 3));
    fixture
        .neighbours
        .submit(&queued_job("job_c", "ben", "c", 9));
    until_running(&fixture, "job_class", 4).await;
    until_running(&fixture, "job_a", 3).await;
    let all = until_running(&fixture, "job_c", 5).await;
    for entry in all.values() {
        let in_queue = entry.work.as_str() != "job_class";
        assert_eq!(entry.node.as_str() != "n1", in_queue, "{entry:?}");
    }
    assert!(
        allocations_of(&all, "job_c")
            .iter()
            .all(|it| it.class == "root.c")
    );

    let root = find_queue(&fixture, "root").await.unwrap();
    assert_eq!(root.used["memory"], 8 * GIB);
    assert_eq!(root.max["memory"], 8 * GIB);
    let queue_a = find_queue(&fixture, "root.a").await.unwrap();
    assert_eq!(queue_a.guaranteed["memory"], 4 * GIB);
    assert_eq!(queue_a.used["memory"], 3 * GIB);
    assert_eq!(queue_a.pending.get("memory"), None);
    let queue_c = find_queue(&fixture, "root.c").await.unwrap();
    assert_eq!(queue_c.used["memory"], 5 * GIB);
    assert_eq!(queue_c.pending["memory"], 4 * GIB);
    assert_eq!(root.pending["memory"], 4 * GIB);
    let applications = (root.running_applications, root.waiting_applications);
    assert_eq!(applications, (2, 0));
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
    let mut invalid = policy_with_queues(&json!({
        "queues": { "a": { "weight": 3, "resources": {
            "guaranteed": { "memory": "9G" }, "max": { "memory": "1G", "vcore": "five" } } } },
        "placement": [{ "rule": "fixed" }],
    }));
    invalid["pools"]["below"] = json!({ "parent": "batch", "queues": { "queues": { "x": {} } } });
    let errors = faults_of(set_policy(&fixture, "?dry_run=true", &invalid).await);
    let pointers: Vec<&str> = errors.iter().map(|it| it.pointer.as_str()).collect();
    let expected = [
        "/pools/batch/queues/placement/0/value",
        "/pools/batch/queues/queues/a/resources/guaranteed/memory",
        "/pools/batch/queues/queues/a/resources/max/vcore",
        "/pools/batch/queues/queues/a/weight",
        "/pools/below/queues",
    ];
    assert_eq!(pointers, expected, "{errors:#?}");
    let accepted = set_policy(
        &fixture,
        "?dry_run=true",
        &policy_with_queues(&two_half_queues()),
    )
    .await
    .unwrap();
    assert!(
        accepted
            .changes
            .iter()
            .any(|it| it.contains("/pools/batch"))
    );
    let queues: Queues = fixture.client("viewer").get("/v1/queues").await.unwrap();
    assert!(queues.pools.is_empty(), "a dry run changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_access_is_refused_within_a_round() {
    let fixture = Fixture::new(&[4, 4]).await;
    fixture
        .neighbours
        .submit(&queued_job("job_early", "ann", "root.a", 1));
    let early = fixture
        .until_verdict("job_early", WaitReason::UnknownClass)
        .await;
    assert!(early.refused && early.detail.contains("no pool has queues"));
    set_policy(&fixture, "", &policy_with_queues(&two_half_queues()))
        .await
        .unwrap();
    fixture
        .neighbours
        .submit(&queued_job("job_c", "ann", "root.c", 1));
    let refused = fixture
        .until_verdict("job_c", WaitReason::NotAuthorised)
        .await;
    assert!(refused.refused, "{refused:?}");
    assert_eq!(refused.detail, "user ann may not submit to queue root.c");
    fixture
        .neighbours
        .submit(&queued_job("job_d", "ann", "root.d", 1));
    let unknown = fixture
        .until_verdict("job_d", WaitReason::UnknownClass)
        .await;
    assert!(unknown.refused && unknown.detail.contains("there is no queue root.d"));
    // A class of a pool with queues finds no node, and its verdict explains it.
    let mut other = policy_with_queues(&two_half_queues());
    other["classes"]["batch"] = json!({ "policy": "FAIR_SHARE", "pool": "batch" });
    let answer = set_policy(&fixture, "", &other).await.unwrap();
    assert!(
        answer
            .notes
            .iter()
            .any(|it| it.starts_with("/classes/batch/pool"))
    );
    let mut demand = job("job_class", "ann");
    demand.class = Some("batch".into());
    fixture.neighbours.submit(&demand);
    let names_queues = |it: &VerdictEntry| it.detail.contains("name a queue");
    fixture
        .until_verdict_matches("job_class", "names the queues", names_queues)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarantee_is_served_by_preemption_and_rounds_replay() {
    let fixture = Fixture::new(&[1, 4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&two_half_queues()))
        .await
        .unwrap();
    fixture
        .neighbours
        .submit(&queued_job("job_a", "ann", "root.a", 8));
    until_running(&fixture, "job_a", 8).await;
    fixture
        .neighbours
        .submit(&queued_job("job_b", "ben", "root.b", 8));
    // The scheduler preempts for one process at a time, and waits for the end of each victim.
    let mut all = fixture.allocations().await;
    for _ in 0..40 {
        let done = count_held(&all, "job_a") == 4 && count_held(&all, "job_b") == 4;
        if done {
            break;
        }
        let has_progress = |all: &Allocations| {
            let leaving = all.values().any(|it| it.holds() && !is_staying(it));
            leaving || count_held(all, "job_b") == 4
        };
        all = fixture.until("a leaving allocation", has_progress).await;
        for entry in all.values().filter(|it| it.holds() && !is_staying(it)) {
            let why = entry.vacate.as_ref().unwrap();
            assert_eq!(why.reason, VacateReason::Preempted);
            assert_eq!(entry.work.as_str(), "job_a");
            fixture.report(entry, ContainerState::Ended);
        }
        fixture.force_round().await;
        all = fixture.allocations().await;
    }
    assert_eq!(
        (count_held(&all, "job_a"), count_held(&all, "job_b")),
        (4, 4)
    );
    let has_receipt = |it: &VerdictEntry| {
        let mut receipts = it.receipts.iter();
        receipts.any(|it| {
            it.beneficiary
                .as_ref()
                .is_some_and(|to| to.as_str() == "job_b")
        })
    };
    fixture
        .until_verdict_matches("job_a", "has receipts", has_receipt)
        .await;
    for name in ["root.a", "root.b"] {
        let queue = find_queue(&fixture, name).await.unwrap();
        assert_eq!(queue.used["memory"], 4 * GIB, "{name}");
    }
    replay_all_rounds(&fixture).await;
}

/// A leaf in use cannot become a parent, and all queues cannot be removed at once.
async fn assert_used_queues_stay(fixture: &Fixture) {
    let mut parent = two_half_queues();
    parent["queues"]["b"]["queues"] = json!({ "below": {} });
    let errors = faults_of(set_policy(fixture, "", &policy_with_queues(&parent)).await);
    assert_eq!(
        errors[0].pointer, "/pools/batch/queues/queues/root/queues/b",
        "{errors:?}"
    );
    let mut without_queues = policy_with_queues(&two_half_queues());
    without_queues["pools"]["batch"]
        .as_object_mut()
        .unwrap()
        .remove("queues");
    let errors = faults_of(set_policy(fixture, "?dry_run=true", &without_queues).await);
    assert!(
        errors[0].pointer == "/pools/batch/queues" && errors[0].detail.contains("root.b"),
        "{errors:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_queues_in_use_drain_also_over_a_restart() {
    let mut fixture = Fixture::new(&[1, 4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&two_half_queues()))
        .await
        .unwrap();
    fixture
        .neighbours
        .submit(&queued_job("job_b", "ben", "root.b", 8));
    until_running(&fixture, "job_b", 8).await;
    fixture
        .neighbours
        .submit(&queued_job("job_old", "ben", "root.b", 1));
    let waits = |it: &VerdictEntry| !it.refused;
    fixture
        .until_verdict_matches("job_old", "waits", waits)
        .await;
    let before = fixture.allocations().await;

    assert_used_queues_stay(&fixture).await;
    let mut without = two_half_queues();
    without["queues"].as_object_mut().unwrap().remove("b");
    set_policy(&fixture, "", &policy_with_queues(&without))
        .await
        .unwrap();
    for restarts in [false, true] {
        if restarts {
            fixture.restart().await;
        }
        let queue_b = until("the draining queue", async || {
            find_queue(&fixture, "root.b").await
        })
        .await;
        assert_eq!(queue_b.state, QueueState::Draining);
        assert_eq!(queue_b.used["memory"], 8 * GIB);
        let id = format!("job_new{}", u8::from(restarts));
        let mut late = queued_job(&id, "ben", "root.b", 1);
        late.submitted_at = Timestamp::from_unix_ms(4_000_000_000_000);
        fixture.neighbours.submit(&late);
        let refused = fixture.until_verdict(&id, WaitReason::UnknownClass).await;
        assert!(refused.refused, "{refused:?}");
        assert!(refused.detail.contains("draining"), "{refused:?}");
        assert!(!fixture.verdicts().await["job_old"].refused);
    }
    let after = fixture.allocations().await;
    assert!(before.keys().all(|id| is_staying(&after[id])));

    fixture.neighbours.demand.remove("job_old");
    fixture.neighbours.demand.remove("job_b");
    fixture.confirm_all_ends().await;
    until("the removal of the queue", async || {
        let queue_b = find_queue(&fixture, "root.b").await;
        queue_b.is_none().then_some(())
    })
    .await;
    fixture.settle().await;
    let rows = fixture
        .rows("select name from rm_scheduler.carried where kind = 'draining'")
        .await;
    assert!(rows.is_empty(), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_queues_of_a_pool_are_removed_only_on_request_and_their_work_ends() {
    let fixture = Fixture::new(&[1, 4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&two_half_queues()))
        .await
        .unwrap();
    fixture
        .neighbours
        .submit(&queued_job("job_a", "ann", "root.a", 3));
    until_running(&fixture, "job_a", 3).await;
    let mut without_queues = policy_with_queues(&two_half_queues());
    let batch = without_queues["pools"]["batch"].as_object_mut().unwrap();
    batch.remove("queues");
    assert!(set_policy(&fixture, "", &without_queues).await.is_err());
    set_policy(&fixture, "?drop_classes=true", &without_queues)
        .await
        .unwrap();
    let all_vacated = |all: &Allocations| {
        allocations_of(all, "job_a")
            .iter()
            .all(|it| !is_staying(it))
    };
    let all = fixture
        .until("all processes of job_a to leave", all_vacated)
        .await;
    let vacate = allocations_of(&all, "job_a").remove(0).vacate.unwrap();
    assert_eq!(vacate.reason, VacateReason::WorkGone);
    fixture.confirm_all_ends().await;
    let is_refused = |it: &VerdictEntry| it.refused;
    fixture
        .until_verdict_matches("job_a", "is refused", is_refused)
        .await;
}
