//! Deadlines, failures, modes and ends of pools, as their owners see them.

use hayward_blocklist_api::BlockKind;
use hayward_container_manager_api::ContainerState;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::pools::{
    EventKind, FinalStatus, PoolMode, PoolOrder, PoolStatus, PoolView, WorkerList,
};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_service::Code;
use hayward_testkit::until;
use hayward_vocabulary::{AllocationId, Exit, ExitCause};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::owner::{Owner, code, create, die, order};
use crate::service::neighbours::{block, node};
use crate::service::world::World;

/// Longer than any test.
const NEVER_MS: u64 = 3_600_000;

fn told_to_go(entry: &AllocationEntry) -> bool {
    let vacate = entry.vacate.as_ref();
    vacate.is_some_and(|vacate| vacate.reason == VacateReason::WorkGone)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_a_class_that_there_is_not_is_refused_with_those_there_are() {
    let world = World::new(&[4]).await;
    let unknown = PoolOrder {
        class: Some("nowhere".to_owned()),
        ..order(1)
    };
    let refused = create(&world, &unknown, "key").await.unwrap_err();
    let problem = refused.problem().expect("a problem document");
    assert_eq!(problem.code, Code::Invalid);
    assert_eq!(problem.errors[0].pointer, "/class");
    assert!(problem.errors[0].detail.starts_with("must be one of "));
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_a_recovered_worker_that_never_registers_is_given_back_and_replaced() {
    let mut world = World::new(&[4, 4]).await;
    let mut owner = Owner::of(&world, 1).await;
    let connected = owner.connect(&[]).await;
    let first = owner.granted(&world, 1).await.remove(0);
    world.settings.pool_register_deadline_ms = 200;
    world.restart().await;
    owner.find_again(&world);
    // While no owner is bound, nobody could report it.
    world.settled().await;
    assert_eq!(owner.view().await.launching, 1);
    owner.connect(&[]).await;
    let gone = world
        .until_one(first.work.as_str(), "is told to go", told_to_go)
        .await;
    let replaced =
        |entry: &AllocationEntry| entry.work.whole() == owner.pool && entry.work != first.work;
    world
        .until("another is asked for", |all| all.values().any(replaced))
        .await;
    world.report(&gone, ContainerState::Ended);
    until("it is gone", async || {
        let list: WorkerList = owner.client.get(&owner.path("/workers")).await.ok()?;
        list.workers
            .iter()
            .all(|worker| worker.id != first.id)
            .then_some(())
    })
    .await;
    assert_eq!(owner.view().await.failed_so_far, 0, "its end was ordered");
    let events = owner.events(connected.event_seq).await.events;
    let of_first = events
        .iter()
        .filter(|event| event.worker_id.as_ref() == Some(&first.id));
    let kinds: Vec<_> = of_first.map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Info], "no owner ever knew it");
}

#[tokio::test(flavor = "multi_thread")]
async fn section_5_3_a_worker_that_a_new_owner_never_reports_is_given_back_after_its_grace() {
    let mut world = World::prepared(&[4]).await;
    world.settings.pool_reregister_grace_ms = 200;
    world.settings.pool_register_deadline_ms = 300;
    world.start().await;
    let mut owner = Owner::of(&world, 0).await;
    owner.connect(&[]).await;
    owner.size(1, false).await.unwrap();
    // However slow this machine is: the one that is reported in time.
    let first = loop {
        let there = owner.granted(&world, 1).await.remove(0);
        if owner.started(&there.id).await {
            break there;
        }
    };
    let old = owner.view().await.event_seq;
    owner.epoch = 2;
    owner.connect(&[]).await;
    let gone = world
        .until_one(first.work.as_str(), "is told to go", told_to_go)
        .await;
    world.report(&gone, ContainerState::Ended);
    // WP-8: it was registered, and its owner never gave it up.
    let removed = (EventKind::ResourceRemoved, Some(first.id.clone()));
    until("it is told", async || {
        owner.told(old).await.contains(&removed).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s27_s15_failed_starts_make_a_pause_and_are_no_failures() {
    let mut world = World::prepared(&[4]).await;
    world.settings.pool_start_failures_per_min = 0;
    world.settings.pool_cooldown_ms = NEVER_MS;
    world.start().await;
    let mut owner = Owner::of(&world, 1).await;
    owner.connect(&[]).await;
    let worker = owner.granted(&world, 1).await.remove(0);
    let refused = Exit {
        cause_code: Some("disk_full".into()),
        ..Exit::of(ExitCause::LaunchFailed, "no room for its files")
    };
    world.end(&worker, refused);
    let view = owner.until("a pause", |view| view.cooling_down).await;
    assert_eq!((view.requested, view.launching, view.deficit), (0, 0, 1));
    assert_eq!(view.failed_so_far, 0);
    // Whatever is asked meanwhile is kept, and nothing is requested.
    assert_eq!(owner.size(3, false).await.unwrap().requested_now, 0);
    let check: Value = owner
        .call(Method::POST, "/check", &Value::Null)
        .await
        .unwrap();
    assert_eq!(check, json!({ "missing": 3, "requested_now": 0 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_s17_one_failure_more_than_tolerated_stops_the_pool_and_gives_the_rest_back() {
    let mut world = World::new(&[4]).await;
    let mut order = order(2);
    order.max_failed = Some(1);
    let mut owner = Owner::of_order(&world, &order).await;
    let workers = owner.running(&world, 2).await;
    die(&world, &workers[0]);
    let view = owner
        .until("one failure", |view| view.failed_so_far == 1)
        .await;
    assert_eq!(view.status, PoolStatus::Running, "as many as tolerated");
    let after = view.event_seq;
    die(&world, &workers[1]);
    let view = owner
        .until("it is stopped", |view| view.status == PoolStatus::Stopped)
        .await;
    assert_eq!(view.final_status, Some(FinalStatus::Failed));
    assert_eq!((view.requested, view.launching, view.started), (0, 0, 0));
    let told = owner.told(after).await;
    let died = (EventKind::ResourceRemoved, Some(workers[1].id.clone()));
    assert_eq!(told, [died, (EventKind::PoolFailed, None)]);
    // What was granted for the first one is given back, and no call starts anything (WP-6).
    assert_eq!(code(owner.size(5, false).await), Code::Gone);
    world.let_go().await;
    world.restart().await;
    owner.find_again(&world);
    world.settled().await;
    assert!(world.allocations().await.is_empty());
    let refused: Result<Value, _> = owner
        .client
        .put(&owner.path("/owner"), &owner.handover(&[]))
        .await;
    assert_eq!(code(refused), Code::Gone);
    let view = owner.view().await;
    assert_eq!(
        (view.final_status, view.returning),
        (Some(FinalStatus::Failed), 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s21_standalone_keeps_numbers_and_nothing_else() {
    let mut world = World::new(&[4]).await;
    let mut order = order(0);
    (order.mode, order.worker_spec) = (PoolMode::Standalone, None);
    let mut owner = Owner::of_order(&world, &order).await;
    let ids: Vec<AllocationId> = ["w1", "w2", "w3"].map(|id| id.parse().unwrap()).into();
    let connected = owner.connect(&ids[..2]).await;
    assert_eq!(connected.accepted, ids[..2]);
    assert!(owner.started(&ids[2]).await);
    assert_eq!(owner.size(5, false).await.unwrap().requested_now, 0);
    let view = owner.view().await;
    assert_eq!((view.started, view.deficit, view.requested), (3, 2, 0));
    // Section 11: removing forgets the id. Its owner hears of what it did not order (WP-8).
    owner.remove(&ids[0]).await.unwrap();
    let path = owner.path(&format!("/workers/{}", ids[1]));
    let operator = world.client("operator");
    operator.delete::<Option<Value>>(&path).await.unwrap();
    let told = owner.told(connected.event_seq).await;
    assert_eq!(told, [(EventKind::ResourceRemoved, Some(ids[1].clone()))]);

    world.restart().await;
    owner.find_again(&world);
    assert_eq!(code(owner.size(1, false).await), Code::NotConnected);
    let again = owner.connect(&ids).await;
    assert_eq!((again.accepted.len(), again.pool.deficit), (3, 2));
    let stopped = owner.stop("SUCCEEDED").await.unwrap().body;
    assert_eq!(
        (stopped.final_status, stopped.started),
        (None, 3),
        "processes stay"
    );
    world.settled().await;
    assert!(
        world.allocations().await.is_empty(),
        "nothing was ever asked for"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn section_22_an_evacuated_worker_is_no_failure_and_one_on_a_lost_node_is() {
    let world = World::new(&[2, 2, 2]).await;
    let mut owner = Owner::of(&world, 2).await;
    let workers = owner.running(&world, 2).await;
    let [first, second] = workers.as_slice() else {
        panic!("{workers:?}");
    };
    assert_ne!(first.node, second.node, "workers of a pool spread");
    let before = owner.view().await.event_seq;
    world
        .around
        .block(&block(BlockKind::Node, first.node.as_str(), None));
    let leaves = |entry: &AllocationEntry| {
        let vacate = entry.vacate.as_ref();
        entry.id == first.id && vacate.is_some_and(|it| it.reason == VacateReason::Blocked)
    };
    let leaving = world
        .until_one(first.work.as_str(), "is taken off", leaves)
        .await;
    // Not counted from then on: another is there before it is gone.
    let there = owner.granted(&world, 2).await;
    assert!(there.iter().all(|entry| entry.node != first.node));
    world.report(&leaving, ContainerState::Ended);
    let view = owner.until("it is gone", |view| view.returning == 0).await;
    assert_eq!((view.started, view.failed_so_far), (1, 0));
    let told = owner.told(before).await;
    let first = Some(first.id.clone());
    let wanted = [
        (EventKind::Info, first.clone()),
        (EventKind::ResourceRemoved, first),
    ];
    assert_eq!(told, wanted);

    let mut lost = node(second.node.as_str(), 2);
    lost.health = Health::Lost;
    world.around.nodes.put(second.node.as_str(), &lost);
    let view = owner
        .until("its node is lost", |view| view.failed_so_far == 1)
        .await;
    assert_eq!(view.started, 0);
    let told = owner.told(view.event_seq - 1).await;
    assert_eq!(
        told,
        [(EventKind::ResourceRemoved, Some(second.id.clone()))]
    );
    let there = owner.granted(&world, 2).await;
    assert!(there.iter().all(|entry| entry.node != second.node));
}

#[tokio::test(flavor = "multi_thread")]
async fn race_12_a_death_that_no_owner_heard_of_is_told_after_a_restart_and_a_handover() {
    let mut world = World::new(&[4]).await;
    let mut owner = Owner::of(&world, 2).await;
    let workers = owner.running(&world, 2).await;
    let gone: Option<Value> = owner
        .call(Method::DELETE, "/owner", &Value::Null)
        .await
        .unwrap();
    assert!(gone.is_none());
    die(&world, &workers[0]);
    let view = owner.until("it died", |view| view.started == 1).await;
    assert_eq!(view.requested, 0, "nothing is asked for that nobody owns");
    world.restart().await;
    owner.find_again(&world);
    // The list is older than what happened.
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
    let told = owner.told(again.event_seq).await;
    assert_eq!(told, [(EventKind::ResourceRemoved, Some(ids[0].clone()))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_s5_a_new_leader_of_the_owner_takes_the_workers_over_as_they_register() {
    let world = World::new(&[4]).await;
    let mut owner = Owner::of(&world, 3).await;
    let workers = owner.running(&world, 3).await;
    let before = owner.view().await;
    owner.epoch = 2;
    let taken = owner.connect(&[]).await.pool;
    let numbers = |view: &PoolView| (view.requested, view.launching, view.started);
    assert_eq!(numbers(&taken), numbers(&before));
    for worker in &workers {
        assert!(owner.started(&worker.id).await);
    }
    assert_eq!(numbers(&owner.view().await), numbers(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_falls_silent_is_bound_no_more() {
    let mut world = World::prepared(&[4]).await;
    world.settings.pool_owner_lease_ms = 300;
    world.start().await;
    let mut owner = Owner::of(&world, 1).await;
    owner.connect(&[]).await;
    // Looking at a pool is no call of its owner.
    owner
        .until("nobody owns it", |view| !view.owner.bound)
        .await;
    assert_eq!(code(owner.size(1, false).await), Code::NotConnected);
    assert_eq!(owner.connect(&[]).await.connection, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn s22_a_stop_is_said_once_and_heard_to_the_end() {
    let world = World::new(&[4]).await;
    let mut owner = Owner::of(&world, 2).await;
    owner.running(&world, 2).await;
    let stopped = owner.stop("CANCELED").await.unwrap();
    assert_eq!(stopped.status, StatusCode::ACCEPTED);
    assert_eq!(stopped.body.final_status, Some(FinalStatus::Killed));
    // A repeat changes nothing, whatever it says.
    let again = owner.stop("FAILED").await.unwrap();
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(again.body.final_status, Some(FinalStatus::Killed));
    let seq = again.body.event_seq;
    assert_eq!(owner.told(seq - 1).await, [(EventKind::Info, None)]);
    world.let_go().await;
    let view = owner
        .until("all are gone", |view| view.returning == 0)
        .await;
    assert_eq!(view.failed_so_far, 0);
    let path = format!("/events?after={}", view.event_seq);
    let heard: Result<Value, _> = owner.call(Method::GET, &path, &Value::Null).await;
    assert_eq!(code(heard), Code::Gone, "nothing more can come");
    // Others may read it for as long as it is kept.
    world
        .client("viewer")
        .get::<Value>(&owner.path(&path))
        .await
        .unwrap();
}
