//! Tests of worker pools as their owners see them: deadlines and failures of workers, changes of
//! the owner, standalone pools, and the end of a pool.

use hayward_blocklist_api::BlockKind;
use hayward_container_manager_api::ContainerState;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::worker_pools::{
    EventKind, FinalStatus, PoolMode, PoolOrder, PoolStatus, PoolView, WorkerList,
};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_service::Code;
use hayward_testkit::until;
use hayward_vocabulary::{AllocationId, Exit, ExitCause};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::test_owner::{Owner, create, end_with_error, pool_order, problem_code};
use crate::service::fixture::Fixture;
use crate::service::neighbours::{block, node};

/// Longer than any test.
const NEVER_MS: u64 = 3_600_000;

/// Returns true if the worker is vacated because its pool no longer wants it.
fn is_withdrawn(entry: &AllocationEntry) -> bool {
    let vacate = entry.vacate.as_ref();
    vacate.is_some_and(|vacate| vacate.reason == VacateReason::WorkGone)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_an_unknown_class_is_refused_with_the_known_ones() {
    let fixture = Fixture::new(&[4]).await;
    let unknown = PoolOrder {
        class: Some("nowhere".to_owned()),
        ..pool_order(1)
    };
    let refused = create(&fixture, &unknown, "key").await.unwrap_err();
    let problem = refused.problem().expect("a problem document");
    assert_eq!(problem.code, Code::Invalid);
    assert_eq!(problem.errors[0].pointer, "/class");
    assert!(problem.errors[0].detail.starts_with("must be one of "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovered_worker_that_never_registers_is_given_back_and_replaced() {
    let mut fixture = Fixture::new(&[4, 4]).await;
    let mut owner = Owner::new(&fixture, 1).await;
    let connected = owner.connect(&[]).await;
    let first = owner.until_granted(&fixture, 1).await.remove(0);
    fixture.settings.pool_register_deadline_ms = 200;
    fixture.restart().await;
    owner.update_client(&fixture);
    // Without a bound owner the deadline does not run, because nothing could report the worker.
    fixture.settle().await;
    assert_eq!(owner.view().await.launching, 1);
    owner.connect(&[]).await;
    let gone = fixture
        .until_one(first.work.as_str(), "is vacated", is_withdrawn)
        .await;
    let is_replacement =
        |entry: &AllocationEntry| entry.work.parent() == owner.pool && entry.work != first.work;
    fixture
        .until("a replacement of the worker", |all| {
            all.values().any(is_replacement)
        })
        .await;
    fixture.report(&gone, ContainerState::Ended);
    until("the end of the worker", async || {
        let list: WorkerList = owner.client.get(&owner.path("/workers")).await.ok()?;
        list.workers
            .iter()
            .all(|worker| worker.id != first.id)
            .then_some(())
    })
    .await;
    assert_eq!(
        owner.view().await.failed_so_far,
        0,
        "the end of a vacated worker is no failure"
    );
    let events = owner.events(connected.event_seq).await.events;
    let of_first = events
        .iter()
        .filter(|event| event.worker_id.as_ref() == Some(&first.id));
    let kinds: Vec<_> = of_first.map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [EventKind::Info],
        "no owner ever registered the worker"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_a_new_owner_never_reports_is_given_back_after_its_grace() {
    let mut fixture = Fixture::not_started(&[4]).await;
    fixture.settings.pool_reregister_grace_ms = 200;
    fixture.settings.pool_register_deadline_ms = 300;
    fixture.start().await;
    let mut owner = Owner::new(&fixture, 0).await;
    owner.connect(&[]).await;
    owner.set_size(1, false).await.unwrap();
    // On a slow machine a worker may miss its deadline, so the first one reported in time is used.
    let first = loop {
        let granted = owner.until_granted(&fixture, 1).await.remove(0);
        if owner.report_started(&granted.id).await {
            break granted;
        }
    };
    let old = owner.view().await.event_seq;
    owner.epoch = 2;
    owner.connect(&[]).await;
    let gone = fixture
        .until_one(first.work.as_str(), "is vacated", is_withdrawn)
        .await;
    fixture.report(&gone, ContainerState::Ended);
    // The worker was registered, and no owner gave it back (WP-8).
    let removed = (EventKind::ResourceRemoved, Some(first.id.clone()));
    until("the event about the worker", async || {
        owner
            .event_kinds(old)
            .await
            .contains(&removed)
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_starts_cause_a_pause_and_are_no_failures() {
    let mut fixture = Fixture::not_started(&[4]).await;
    fixture.settings.pool_start_failures_per_min = 0;
    fixture.settings.pool_cooldown_ms = NEVER_MS;
    fixture.start().await;
    let mut owner = Owner::new(&fixture, 1).await;
    owner.connect(&[]).await;
    let worker = owner.until_granted(&fixture, 1).await.remove(0);
    let refused = Exit {
        cause_code: Some("disk_full".into()),
        ..Exit::of(ExitCause::LaunchFailed, "no room for its files")
    };
    fixture.end(&worker, refused);
    let view = owner.until("a pause", |view| view.cooling_down).await;
    assert_eq!((view.requested, view.launching, view.deficit), (0, 0, 1));
    assert_eq!(view.failed_so_far, 0);
    // Sizes are stored meanwhile, and nothing is requested.
    assert_eq!(owner.set_size(3, false).await.unwrap().requested_now, 0);
    let check: Value = owner
        .call(Method::POST, "/check", &Value::Null)
        .await
        .unwrap();
    assert_eq!(check, json!({ "missing": 3, "requested_now": 0 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_failure_more_than_tolerated_stops_the_pool_and_gives_the_rest_back() {
    let mut fixture = Fixture::new(&[4]).await;
    let mut order = pool_order(2);
    order.max_failed = Some(1);
    let mut owner = Owner::from_order(&fixture, &order).await;
    let workers = owner.start_workers(&fixture, 2).await;
    end_with_error(&fixture, &workers[0]);
    let view = owner
        .until("one failure", |view| view.failed_so_far == 1)
        .await;
    assert_eq!(view.status, PoolStatus::Running, "one failure is tolerated");
    let after = view.event_seq;
    end_with_error(&fixture, &workers[1]);
    let view = owner
        .until("a stopped pool", |view| view.status == PoolStatus::Stopped)
        .await;
    assert_eq!(view.final_status, Some(FinalStatus::Failed));
    assert_eq!((view.requested, view.launching, view.started), (0, 0, 0));
    let kinds = owner.event_kinds(after).await;
    let died = (EventKind::ResourceRemoved, Some(workers[1].id.clone()));
    assert_eq!(kinds, [died, (EventKind::PoolFailed, None)]);
    // The replacement of the first worker is given back, and no call starts anything (WP-6).
    assert_eq!(problem_code(owner.set_size(5, false).await), Code::Gone);
    fixture.confirm_all_ends().await;
    fixture.restart().await;
    owner.update_client(&fixture);
    fixture.settle().await;
    assert!(fixture.allocations().await.is_empty());
    let refused: Result<Value, _> = owner
        .client
        .put(&owner.path("/owner"), &owner.handover(&[]))
        .await;
    assert_eq!(problem_code(refused), Code::Gone);
    let view = owner.view().await;
    assert_eq!(
        (view.final_status, view.returning),
        (Some(FinalStatus::Failed), 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standalone_pool_keeps_numbers_and_nothing_else() {
    let mut fixture = Fixture::new(&[4]).await;
    let mut order = pool_order(0);
    (order.mode, order.worker_spec) = (PoolMode::Standalone, None);
    let mut owner = Owner::from_order(&fixture, &order).await;
    let ids: Vec<AllocationId> = ["w1", "w2", "w3"].map(|id| id.parse().unwrap()).into();
    let connected = owner.connect(&ids[..2]).await;
    assert_eq!(connected.accepted, ids[..2]);
    assert!(owner.report_started(&ids[2]).await);
    assert_eq!(owner.set_size(5, false).await.unwrap().requested_now, 0);
    let view = owner.view().await;
    assert_eq!((view.started, view.deficit, view.requested), (3, 2, 0));
    // A removal only forgets the id. The owner gets an event for the removal by an operator (WP-8).
    owner.remove(&ids[0]).await.unwrap();
    let path = owner.path(&format!("/workers/{}", ids[1]));
    let operator = fixture.client("operator");
    operator.delete::<Option<Value>>(&path).await.unwrap();
    let kinds = owner.event_kinds(connected.event_seq).await;
    assert_eq!(kinds, [(EventKind::ResourceRemoved, Some(ids[1].clone()))]);

    fixture.restart().await;
    owner.update_client(&fixture);
    assert_eq!(
        problem_code(owner.set_size(1, false).await),
        Code::NotConnected
    );
    let again = owner.connect(&ids).await;
    assert_eq!((again.accepted.len(), again.pool.deficit), (3, 2));
    let stopped = owner.stop("SUCCEEDED").await.unwrap().body;
    assert_eq!(
        (stopped.final_status, stopped.started),
        (None, 3),
        "the processes of a standalone pool stay"
    );
    fixture.settle().await;
    assert!(
        fixture.allocations().await.is_empty(),
        "a standalone pool requests no worker"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evacuated_worker_is_no_failure_and_one_on_a_lost_node_is() {
    let fixture = Fixture::new(&[2, 2, 2]).await;
    let mut owner = Owner::new(&fixture, 2).await;
    let workers = owner.start_workers(&fixture, 2).await;
    let [first, second] = workers.as_slice() else {
        panic!("{workers:?}");
    };
    assert_ne!(first.node, second.node, "workers of a pool spread");
    let before = owner.view().await.event_seq;
    fixture
        .neighbours
        .block(&block(BlockKind::Node, first.node.as_str(), None));
    let leaves = |entry: &AllocationEntry| {
        let vacate = entry.vacate.as_ref();
        entry.id == first.id && vacate.is_some_and(|it| it.reason == VacateReason::Blocked)
    };
    let leaving = fixture
        .until_one(first.work.as_str(), "is vacated", leaves)
        .await;
    // The vacated worker no longer counts, so another one is granted before its end.
    let granted = owner.until_granted(&fixture, 2).await;
    assert!(granted.iter().all(|entry| entry.node != first.node));
    fixture.report(&leaving, ContainerState::Ended);
    let view = owner
        .until("the end of the vacated worker", |view| view.returning == 0)
        .await;
    assert_eq!((view.started, view.failed_so_far), (1, 0));
    let kinds = owner.event_kinds(before).await;
    let first = Some(first.id.clone());
    let expected = [
        (EventKind::Info, first.clone()),
        (EventKind::ResourceRemoved, first),
    ];
    assert_eq!(kinds, expected);

    let mut lost = node(second.node.as_str(), 2);
    lost.health = Health::Lost;
    fixture.neighbours.nodes.put(second.node.as_str(), &lost);
    let view = owner
        .until("the failure of the lost worker", |view| {
            view.failed_so_far == 1
        })
        .await;
    assert_eq!(view.started, 0);
    let kinds = owner.event_kinds(view.event_seq - 1).await;
    assert_eq!(
        kinds,
        [(EventKind::ResourceRemoved, Some(second.id.clone()))]
    );
    let granted = owner.until_granted(&fixture, 2).await;
    assert!(granted.iter().all(|entry| entry.node != second.node));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_unknown_to_the_owner_is_reported_after_a_restart_and_a_handover() {
    let mut fixture = Fixture::new(&[4]).await;
    let mut owner = Owner::new(&fixture, 2).await;
    let workers = owner.start_workers(&fixture, 2).await;
    let gone: Option<Value> = owner
        .call(Method::DELETE, "/owner", &Value::Null)
        .await
        .unwrap();
    assert!(gone.is_none());
    end_with_error(&fixture, &workers[0]);
    let view = owner
        .until("the end of one worker", |view| view.started == 1)
        .await;
    assert_eq!(
        view.requested, 0,
        "a pool without an owner requests nothing"
    );
    fixture.restart().await;
    owner.update_client(&fixture);
    // The list of the owner still has the dead worker.
    let ids: Vec<AllocationId> = workers.iter().map(|worker| worker.id.clone()).collect();
    let again = owner.connect(&ids).await;
    assert_eq!(
        (&again.accepted[..], &again.foreign[..]),
        (&ids[1..], &ids[..1])
    );
    assert_eq!(
        (again.pool.started, again.pool.foreign, again.pool.requested),
        (1, 0, 1)
    );
    let kinds = owner.event_kinds(again.event_seq).await;
    assert_eq!(kinds, [(EventKind::ResourceRemoved, Some(ids[0].clone()))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_of_the_owner_takes_over_workers_as_they_register() {
    let fixture = Fixture::new(&[4]).await;
    let mut owner = Owner::new(&fixture, 3).await;
    let workers = owner.start_workers(&fixture, 3).await;
    let before = owner.view().await;
    owner.epoch = 2;
    let taken = owner.connect(&[]).await.pool;
    let numbers = |view: &PoolView| (view.requested, view.launching, view.started);
    assert_eq!(numbers(&taken), numbers(&before));
    for worker in &workers {
        assert!(owner.report_started(&worker.id).await);
    }
    assert_eq!(numbers(&owner.view().await), numbers(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_owner_is_no_longer_bound() {
    let mut fixture = Fixture::not_started(&[4]).await;
    fixture.settings.pool_owner_lease_ms = 300;
    fixture.start().await;
    let mut owner = Owner::new(&fixture, 1).await;
    owner.connect(&[]).await;
    // Reading a pool is no call of its owner.
    owner
        .until("a pool without an owner", |view| !view.owner.bound)
        .await;
    assert_eq!(
        problem_code(owner.set_size(1, false).await),
        Code::NotConnected
    );
    assert_eq!(owner.connect(&[]).await.connection, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_applied_once_and_its_events_can_be_read_to_the_end() {
    let fixture = Fixture::new(&[4]).await;
    let mut owner = Owner::new(&fixture, 2).await;
    owner.start_workers(&fixture, 2).await;
    let stopped = owner.stop("CANCELED").await.unwrap();
    assert_eq!(stopped.status, StatusCode::ACCEPTED);
    assert_eq!(stopped.body.final_status, Some(FinalStatus::Killed));
    // A second stop changes nothing.
    let again = owner.stop("FAILED").await.unwrap();
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(again.body.final_status, Some(FinalStatus::Killed));
    let seq = again.body.event_seq;
    assert_eq!(owner.event_kinds(seq - 1).await, [(EventKind::Info, None)]);
    fixture.confirm_all_ends().await;
    let view = owner
        .until("the end of all workers", |view| view.returning == 0)
        .await;
    assert_eq!(view.failed_so_far, 0);
    let path = format!("/events?after={}", view.event_seq);
    let answer: Result<Value, _> = owner.call(Method::GET, &path, &Value::Null).await;
    assert_eq!(
        problem_code(answer),
        Code::Gone,
        "no further event can follow"
    );
    // Other readers may still read the events.
    fixture
        .client("viewer")
        .get::<Value>(&owner.path(&path))
        .await
        .unwrap();
}
