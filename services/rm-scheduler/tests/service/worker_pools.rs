//! Tests of worker pools over HTTP: events for owners, requests to the planner, and restarts.

mod deadlines_and_failures;
mod refused_calls;
mod test_owner;

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::worker_pools::{
    CheckAnswer, EventKind, EventList, IdleAnswer, PoolCreated, PoolStatus, PoolView, SizeAnswer,
    StopOrder, WorkerList, WorkerView,
};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_service::auth::TokenLifetime;
use hayward_service::{Clock as _, Code};
use hayward_testkit::until;
use hayward_vocabulary::{AllocationId, Program};
use http::Method;
use serde_json::{Value, json};

use self::test_owner::{Owner, end_with_error, problem_code};
use super::fixture::Fixture;
use super::neighbours::{block, job};

/// Asserts that the launch of a worker names its pool and owner.
fn assert_launch_of(worker: &AllocationEntry, owner: &Owner) {
    assert_eq!(worker.user.as_str(), "ann");
    let launch = worker.launch.as_ref().unwrap();
    let argv = vec!["worker".to_owned()];
    assert_eq!(launch.program, Program::Command { argv });
    let variable = |name: &str| launch.environment[name].clone();
    assert_eq!(variable("HAYWARD_WORKER"), worker.id.to_string());
    assert_eq!(variable("HAYWARD_POOL"), owner.pool.to_string());
    assert_eq!(variable("HAYWARD_OWNER"), "http://owner");
    assert_eq!(variable("MINE"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_fill_a_pool_and_replace_a_dead_worker() {
    let fixture = Fixture::new(&[4, 4]).await;
    let mut owner = Owner::new(&fixture, 3).await;
    // Without an owner no worker is requested.
    fixture.settle().await;
    assert!(fixture.allocations().await.is_empty());

    let connected = owner.connect(&[]).await;
    assert_eq!((connected.connection, connected.pool.requested), (1, 3));
    let workers = owner.until_granted(&fixture, 3).await;
    for worker in &workers {
        assert_launch_of(worker, &owner);
        assert!(owner.report_started(&worker.id).await);
    }
    let view = owner.view().await;
    assert_eq!((view.started, view.launching, view.requested), (3, 0, 0));

    end_with_error(&fixture, &workers[1]);
    let list = owner.events(connected.event_seq).await;
    let kinds: Vec<_> = list
        .events
        .iter()
        .map(|it| (it.kind, it.worker_id.clone()))
        .collect();
    assert_eq!(
        kinds,
        [(EventKind::ResourceRemoved, Some(workers[1].id.clone()))]
    );
    let now = owner.until_granted(&fixture, 3).await;
    assert!(now.iter().all(|worker| worker.id != workers[1].id));
    let view = owner
        .until("a launching worker", |view| view.launching == 1)
        .await;
    assert_eq!((view.started, view.failed_so_far), (2, 1));

    // A returned worker leaves as usual and is replaced.
    owner
        .call::<Option<Value>>(
            Method::DELETE,
            &format!("/workers/{}", workers[0].id),
            &Value::Null,
        )
        .await
        .unwrap();
    let leaves = |entry: &AllocationEntry| entry.id == workers[0].id && entry.vacate.is_some();
    let work = workers[0].work.as_str();
    let leaving = fixture.until_one(work, "is vacated", leaves).await;
    let reason = leaving.vacate.as_ref().unwrap().reason;
    assert_eq!(reason, VacateReason::WorkGone);
    fixture.report(&leaving, ContainerState::Ended);
    owner.until_granted(&fixture, 3).await;
    let view = owner
        .until("the end of the returned worker", |view| view.returning == 0)
        .await;
    assert_eq!(
        view.failed_so_far, 1,
        "the end of a returned worker is no failure"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_no_worker_and_asks_the_owner_to_connect_again() {
    let mut fixture = Fixture::new(&[8]).await;
    let mut owner = Owner::new(&fixture, 3).await;
    let first = owner.connect(&[]).await;
    let workers = owner.until_granted(&fixture, 3).await;
    let ids: Vec<AllocationId> = workers.iter().map(|worker| worker.id.clone()).collect();
    for id in &ids {
        owner.report_started(id).await;
    }
    fixture.restart().await;
    owner.update_client(&fixture);
    assert_eq!(
        problem_code(owner.set_size(3, false).await),
        Code::NotConnected
    );
    let list: EventList = {
        let path = owner.path(&format!("/events?after={}&wait_ms=5000", first.event_seq));
        owner.client.get(&path).await.unwrap()
    };
    assert_eq!(list.events[0].kind, EventKind::ReconnectRequested);
    let view = owner.view().await;
    assert_eq!(
        (view.launching, view.started, view.owner.bound),
        (3, 0, false)
    );
    // A full update of job-converter does not contain pools, and does not remove them.
    let mut small = job("job_a", "ann");
    small.max_processes = 1;
    fixture.neighbours.submit(&small);
    fixture.settle().await;
    let held = owner.until_granted(&fixture, 3).await;
    assert!(held.iter().all(|worker| ids.contains(&worker.id)));

    let again = owner.connect(&ids).await;
    assert_eq!((again.connection, again.accepted.len()), (2, 3));
    assert_eq!((again.pool.started, again.pool.requested), (3, 0));
    owner.connection = 1;
    assert_eq!(
        problem_code(owner.set_size(9, false).await),
        Code::StaleConnection
    );
    (owner.epoch, owner.connection) = (0, 2);
    assert_eq!(
        problem_code(owner.set_size(9, false).await),
        Code::StaleEpoch
    );
    assert_eq!(owner.view().await.designated, 3);
    // Ids of work are never used again, also after a restart.
    (owner.epoch, owner.connection) = (1, 2);
    owner.set_size(4, false).await.unwrap();
    let four = owner.until_granted(&fixture, 4).await;
    let works: std::collections::BTreeSet<_> = four.iter().map(|it| &it.work).collect();
    assert_eq!(works.len(), 4);
}

async fn workers_in_pages(owner: &Owner) -> Vec<AllocationId> {
    let (mut seen, mut path) = (Vec::new(), "/workers?limit=1".to_owned());
    loop {
        let page: WorkerList = owner.client.get(&owner.path(&path)).await.unwrap();
        seen.extend(page.workers.into_iter().map(|worker| worker.id));
        let Some(cursor) = page.next_cursor else {
            return seen;
        };
        path = format!("/workers?limit=1&cursor={cursor}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_on_a_marked_node_is_replaced_elsewhere_and_not_released() {
    let mut fixture = Fixture::new(&[4, 4]).await;
    let mut owner = Owner::new(&fixture, 2).await;
    owner.connect(&[]).await;
    let workers = owner.until_granted(&fixture, 2).await;
    // Pages add up to the list.
    let seen = workers_in_pages(&owner).await;
    assert_eq!(seen.len(), 2);
    assert!(workers.iter().all(|worker| seen.contains(&worker.id)));
    for worker in &workers {
        assert!(owner.report_started(&worker.id).await);
    }
    let report_idle = async |owner: &Owner, idle: &[&AllocationId]| -> IdleAnswer {
        let body = json!({ "workers": idle });
        owner.call(Method::PUT, "/idle", &body).await.unwrap()
    };
    assert_eq!(report_idle(&owner, &[]).await, IdleAnswer::default());
    let mut mark = block(BlockKind::Node, workers[0].node.as_str(), None);
    mark.action = BlockAction::Mark;
    fixture.neighbours.block(&mark);
    let marked = |view: &WorkerView| view.marked;
    until("a marked worker", async || {
        let list: WorkerList = owner.client.get(&owner.path("/workers")).await.ok()?;
        list.workers.iter().any(marked).then_some(())
    })
    .await;
    let view = owner.view().await;
    assert_eq!(
        (view.started, view.requested, view.idle_blocked),
        (2, 0, 0),
        "busy workers on the marked node count"
    );

    let idle = &workers[0].id;
    let answer = report_idle(&owner, &[idle]).await;
    assert_eq!(
        (answer.idle_blocked, answer.requested_now),
        (vec![idle.clone()], 1)
    );
    let granted = owner.until_granted(&fixture, 3).await;
    let new_worker = granted
        .iter()
        .find(|it| workers.iter().all(|old| old.id != it.id));
    assert_ne!(new_worker.unwrap().node, workers[0].node);
    let same = granted.iter().find(|it| it.id == workers[0].id);
    assert!(same.unwrap().vacate.is_none(), "no release (WP-4)");

    // After a restart the blocklist marks the node again, so the worker still does not count.
    fixture.restart().await;
    owner.update_client(&fixture);
    let all: Vec<AllocationId> = granted.iter().map(|it| it.id.clone()).collect();
    owner.connect(&all).await;
    let view = owner
        .until("an idle worker that does not count", |view| {
            view.idle_blocked == 1
        })
        .await;
    assert_eq!((view.started, view.requested), (3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_resized_releases_workers_and_is_stopped() {
    let fixture = Fixture::new(&[8]).await;
    let mut owner = Owner::new(&fixture, 4).await;
    owner.connect(&[]).await;
    let workers = owner.until_granted(&fixture, 4).await;
    for worker in &workers {
        owner.report_started(&worker.id).await;
    }
    let view = owner.set_size(2, false).await.unwrap();
    assert_eq!((view.released.len(), view.withdrawn_now), (0, 0));
    fixture.settle().await;
    owner.until_granted(&fixture, 4).await;
    let body = json!({ "size": 2, "release": true, "unwanted": [workers[0].id] });
    let answer: SizeAnswer = owner.call(Method::PUT, "/size", &body).await.unwrap();
    assert_eq!(answer.released.len(), 2);
    assert_eq!(answer.released[0], workers[0].id);
    owner.until_granted(&fixture, 2).await;

    let check: CheckAnswer = owner
        .call(Method::POST, "/check", &Value::Null)
        .await
        .unwrap();
    assert_eq!((check.missing, check.requested_now), (0, 0));
    let stop = serde_json::to_value(StopOrder {
        status: hayward_rm_scheduler_api::worker_pools::JobStatus::Succeeded,
        message: "done".into(),
    });
    let stop = stop.unwrap();
    let stopped: PoolView = owner.call(Method::POST, "/stop", &stop).await.unwrap();
    assert_eq!(stopped.status, PoolStatus::Stopped);
    let again: PoolView = owner.call(Method::POST, "/stop", &stop).await.unwrap();
    assert_eq!(again.final_message.as_deref(), Some("done"));
    assert_eq!(problem_code(owner.set_size(3, false).await), Code::Gone);
    fixture.confirm_all_ends().await;
    assert!(fixture.allocations().await.is_empty());
    assert_eq!(owner.view().await.returning, 0);
}

/// A dry run of a command has no effect (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_size_and_stop_changes_nothing() {
    let fixture = Fixture::new(&[4]).await;
    let mut owner = Owner::new(&fixture, 2).await;
    owner.connect(&[]).await;
    owner.until_granted(&fixture, 2).await;
    fixture.settle().await;
    let (before, revision) = (owner.view().await, fixture.revision());
    let operator = fixture.client("operator");
    let dry_run = operator.call(Method::PUT, owner.path("/size"));
    let dry_run = dry_run.query("dry_run", true).body(&json!({ "size": 4 }));
    let dry_run = dry_run
        .send_for_response::<SizeAnswer>()
        .await
        .unwrap()
        .body;
    assert_eq!((dry_run.size, dry_run.requested_now), (4, 2));
    let stop = operator.call(Method::POST, owner.path("/stop"));
    let stop = stop.query("dry_run", true).body(&StopOrder::default());
    stop.send::<PoolView>().await.unwrap();
    let late = operator
        .call(Method::PUT, owner.path("/size"))
        .body(&json!({ "size": 3 }));
    let late = late.header(http::HeaderName::from_static("if-revision"), "1");
    assert_eq!(
        problem_code(late.send::<SizeAnswer>().await),
        Code::RevisionMoved
    );
    assert_eq!(owner.view().await, before);
    assert_eq!(fixture.revision(), revision);
}

/// An `Idempotency-Key` makes a request repeatable (A4).
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_with_the_same_key_gets_the_same_answer() {
    let fixture = Fixture::new(&[4]).await;
    let owner = Owner::new(&fixture, 1).await;
    let operator = fixture.client("operator");
    let stop = |key: &str, message: &str| {
        let order = StopOrder {
            message: message.to_owned(),
            ..StopOrder::default()
        };
        let call = operator.call(Method::POST, owner.path("/stop"));
        call.body(&order).idempotency_key(key)
    };
    let without_key = stop("", "enough").send::<PoolView>().await;
    assert_eq!(problem_code(without_key), Code::BadRequest);
    let first = stop("k", "enough")
        .send_for_response::<PoolView>()
        .await
        .unwrap();
    let again = stop("k", "enough")
        .send_for_response::<PoolView>()
        .await
        .unwrap();
    assert_eq!(first.status, again.status);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.body, first.body);
    assert_eq!(
        problem_code(stop("k", "other").send::<PoolView>().await),
        Code::IdempotencyMismatch
    );
    let later = stop("l", "enough")
        .send_for_response::<PoolView>()
        .await
        .unwrap();
    assert_eq!(later.status, 200, "the pool was already stopped");
}

/// A token is for one owner (S8).
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_renews_its_own_token_only() {
    let fixture = Fixture::new(&[4]).await;
    let owner = Owner::new(&fixture, 1).await;
    let path = owner.path("/credentials");
    let renewed: PoolCreated = owner.client.put(&path, &json!({})).await.unwrap();
    let week = 7 * 24 * 3_600;
    let life = TokenLifetime::from_token(&renewed.token).unwrap();
    let left = life.expires_at_s() - hayward_service::SystemClock.now().unix_ms() / 1_000;
    assert!((week - 60..=week).contains(&left), "{left}");
    let next = fixture.client_with_token(&renewed.token);
    let view: PoolView = next.get(&owner.path("")).await.unwrap();
    assert_eq!(view.id, owner.pool);
    let again: PoolCreated = next.put(&path, &json!({})).await.unwrap();
    assert_eq!(again.pool.id, owner.pool);
    let operators: Result<PoolCreated, _> = fixture.client("operator").put(&path, &json!({})).await;
    assert!(
        operators.is_ok(),
        "an operator may renew the token of any owner"
    );
    let other_user = fixture
        .client("ann")
        .put::<_, PoolCreated>(&path, &json!({}))
        .await;
    let refused = other_user.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Forbidden);
}
