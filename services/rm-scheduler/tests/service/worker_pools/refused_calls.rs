//! Tests of permissions on worker pools, and of invalid and late calls. A refused call names the
//! fault and changes nothing (WP-7).

use hayward_rm_scheduler_api::worker_pools::{PoolView, SizeAnswer, SizeOrder, WorkerList};
use hayward_service::client::ClientError;
use hayward_service::{Code, Listing};
use hayward_vocabulary::AllocationId;
use http::header::IF_MATCH;
use http::{HeaderName, Method};
use serde_json::{Value, json};

use super::test_owner::{Owner, create, faults_of, pool_order, problem_code};
use crate::service::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_created_once_for_each_key_and_reports_all_faults_at_once() {
    let mut fixture = Fixture::new(&[1]).await;
    let created = create(&fixture, &pool_order(2), "key").await.unwrap();
    fixture.restart().await;
    let again = create(&fixture, &pool_order(2), "key").await.unwrap();
    assert_eq!(created.pool.id, again.pool.id);
    assert_eq!(
        problem_code(create(&fixture, &pool_order(3), "key").await),
        Code::IdempotencyMismatch
    );

    let mut invalid = pool_order(-1);
    invalid.max_failed = Some(-2);
    invalid.reject_foreign = true;
    invalid.job_id.clear();
    invalid.worker_spec.as_mut().unwrap().command.clear();
    let (code, pointers) = faults_of(create(&fixture, &invalid, "other").await);
    assert_eq!(code, Code::Invalid);
    assert_eq!(
        pointers,
        [
            "/job_id",
            "/initial_size",
            "/max_failed",
            "/reject_foreign",
            "/worker_spec/command"
        ]
    );
    let order = SizeOrder {
        size: -1,
        release: false,
        unwanted: Vec::new(),
    };
    let path = format!("/v1/pools/{}/size", created.pool.id);
    let operator = fixture.client("operator");
    let refused: Result<Value, _> = operator.put(&path, &order).await;
    assert_eq!(
        faults_of(refused),
        (Code::Invalid, vec!["/size".to_owned()])
    );
    let view: PoolView = operator
        .get(&format!("/v1/pools/{}", created.pool.id))
        .await
        .unwrap();
    assert_eq!(view.designated, 2, "a refused size changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_for_operators_and_their_own_owner() {
    let fixture = Fixture::new(&[1]).await;
    let owner = Owner::new(&fixture, 1).await;
    let other = create(&fixture, &pool_order(1), "other").await.unwrap();
    let path = format!("/v1/pools/{}", other.pool.id);
    assert_eq!(
        problem_code(owner.client.get::<PoolView>(&path).await),
        Code::Forbidden
    );
    let size = json!({ "size": 5 });
    let refused: Result<Value, _> = owner.client.put(&format!("{path}/size"), &size).await;
    assert_eq!(problem_code(refused), Code::Forbidden);
    for name in ["ann", "job-converter"] {
        let client = fixture.client(name);
        assert_eq!(
            problem_code(client.get::<PoolView>(&path).await),
            Code::Forbidden,
            "{name}"
        );
        let refused: Result<Value, _> = client.post("/v1/pools", &pool_order(1), Some("k")).await;
        assert_eq!(problem_code(refused), Code::Forbidden, "{name}");
    }
    assert!(
        fixture
            .client("viewer")
            .get::<PoolView>(&path)
            .await
            .is_ok()
    );
    // A call of an owner must name epoch and connection.
    let refused: Result<Value, _> = owner.client.put(&owner.path("/size"), &size).await;
    assert_eq!(problem_code(refused), Code::BadRequest);
    // Only an owner knows which workers registered.
    let started = format!("{path}/workers/alc_1/started");
    let operator = fixture.client("operator");
    let refused: Result<Value, _> = operator.post(&started, &json!({}), None).await;
    assert_eq!(problem_code(refused), Code::Forbidden);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handover_of_an_owner_has_limits() {
    let fixture = Fixture::new(&[1]).await;
    let mut owner = Owner::new(&fixture, 1).await;
    let mut order = owner.handover(&[]);
    order.epoch = u64::MAX;
    order.address = "http://\0".into();
    order.workers = (0..20_001).map(worker_id).collect();
    let refused: Result<Value, _> = owner.client.put(&owner.path("/owner"), &order).await;
    let pointers = ["/epoch", "/address", "/workers"].map(str::to_owned);
    assert_eq!(faults_of(refused), (Code::Invalid, pointers.into()));
    let view = owner.view().await;
    assert_eq!((view.owner.epoch, view.owner.bound), (0, false));
    assert_eq!(owner.connect(&[]).await.connection, 1);

    let body = json!({ "status": "SUCCEEDED", "message": "x".repeat(4_097) });
    let refused: Result<Value, _> = owner.call(Method::POST, "/stop", &body).await;
    assert_eq!(
        faults_of(refused),
        (Code::Invalid, vec!["/message".to_owned()])
    );
    let body = json!({ "size": 1, "unwanted": ["w1"] });
    let refused: Result<Value, _> = owner.call(Method::PUT, "/size", &body).await;
    assert_eq!(
        faults_of(refused),
        (Code::Invalid, vec!["/unwanted".to_owned()])
    );
    let (code, pointers) = faults_of(owner.set_size(10_001, false).await);
    assert_eq!((code, pointers), (Code::Invalid, vec!["/size".to_owned()]));
}

fn worker_id(number: u64) -> AllocationId {
    format!("w{number}").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_about_missing_pools_and_workers_fail_and_change_nothing() {
    let fixture = Fixture::new(&[1]).await;
    let mut owner = Owner::new(&fixture, 1).await;
    let connected = owner.connect(&[]).await;
    // The removal of an unknown worker is refused. The report of an unknown worker is accepted.
    assert_eq!(
        problem_code(owner.remove(&worker_id(9)).await),
        Code::NotFound
    );
    assert!(!owner.report_started(&worker_id(9)).await);
    let list: WorkerList = owner
        .client
        .get(&owner.path("/workers?state=FOREIGN"))
        .await
        .unwrap();
    assert_eq!(list.workers.len(), 1);
    let list: WorkerList = owner
        .client
        .get(&owner.path("/workers?state=STARTED"))
        .await
        .unwrap();
    assert!(list.workers.is_empty());
    // A cursor belongs to its list.
    let of_another = Listing::new("/v1/pools").cursor("wp_1");
    let path = format!("/workers?limit=1&cursor={of_another}");
    let refused: Result<Value, _> = owner.client.get(&owner.path(&path)).await;
    assert_eq!(problem_code(refused), Code::Invalid);
    let refused: Result<Value, _> = owner.client.get(&owner.path("/workers?state=LOST")).await;
    assert_eq!(problem_code(refused), Code::Invalid);
    let gone: Result<PoolView, _> = fixture.client("operator").get("/v1/pools/wp_0").await;
    assert_eq!(problem_code(gone), Code::NotFound);
    // Events with these numbers do not exist.
    for after in [connected.event_seq + 1, u64::MAX] {
        let path = format!("/events?after={after}");
        let refused: Result<Value, _> = owner.call(Method::GET, &path, &Value::Null).await;
        assert_eq!(problem_code(refused), Code::Gone, "{after}");
    }
}

async fn assert_calls_are_stale(owner: &Owner) {
    let body = json!({ "size": 9, "workers": [], "status": "FAILED" });
    for (method, rest, fields) in [
        (Method::PUT, "/size", vec!["size"]),
        (Method::PUT, "/idle", vec!["workers"]),
        (Method::POST, "/stop", vec!["status"]),
        (Method::POST, "/check", vec![]),
        (Method::POST, "/workers/w1/started", vec![]),
        (Method::DELETE, "/workers/w1", vec![]),
        (Method::GET, "/events", vec![]),
        (Method::DELETE, "/owner", vec![]),
    ] {
        let sent: serde_json::Map<String, Value> = fields
            .iter()
            .map(|name| ((*name).to_owned(), body[*name].clone()))
            .collect();
        let sent = if sent.is_empty() {
            Value::Null
        } else {
            sent.into()
        };
        let refused: Result<Option<Value>, _> = owner.call(method, rest, &sent).await;
        assert_eq!(problem_code(refused), Code::StaleEpoch, "{rest}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_calls_are_refused_by_their_epoch_and_connection() {
    let fixture = Fixture::new(&[1]).await;
    let mut owner = Owner::new(&fixture, 0).await;
    owner.connect(&[]).await;
    // Sets the size if the pool still has this version.
    let set_size_from =
        async |owner: &Owner, version: &str, size: u64| -> Result<SizeAnswer, ClientError> {
            let call = owner.client.call(Method::PUT, owner.path("/size"));
            let header_value =
                |name, value: u64| (HeaderName::from_static(name), value.to_string());
            let (epoch, number) = header_value("x-owner-epoch", owner.epoch);
            let call = call.header(epoch, &number);
            let (connection, number) = header_value("x-connection", owner.connection);
            let call = call.header(connection, &number).header(IF_MATCH, version);
            call.body(&json!({ "size": size })).send().await
        };
    assert_eq!(set_size_from(&owner, "\"1\"", 3).await.unwrap().version, 2);
    assert_eq!(
        problem_code(set_size_from(&owner, "\"1\"", 4).await),
        Code::PreconditionFailed
    );
    assert_eq!(owner.view().await.designated, 3);
    assert_eq!(set_size_from(&owner, "*", 2).await.unwrap().version, 3);

    // A reconnect that was sent before a newer connection was made.
    let earlier_connection = owner.connection;
    owner.connect(&[]).await;
    let call = owner.client.call(Method::PUT, owner.path("/owner"));
    let call = call.header(
        HeaderName::from_static("x-connection"),
        &earlier_connection.to_string(),
    );
    let refused: Result<Value, _> = call.body(&owner.handover(&[])).send().await;
    assert_eq!(problem_code(refused), Code::StaleConnection);
    assert_eq!(owner.view().await.owner.connection, owner.connection);

    // After a new owner has connected, calls of the former owner change nothing.
    owner.epoch = 2;
    owner.connect(&[]).await;
    let state = |view: PoolView| (view.designated, view.version, view.owner, view.event_seq);
    let before = state(owner.view().await);
    owner.epoch = 1;
    let refused: Result<Value, _> = owner
        .client
        .put(&owner.path("/owner"), &owner.handover(&[]))
        .await;
    assert_eq!(problem_code(refused), Code::StaleEpoch);
    assert_calls_are_stale(&owner).await;
    assert_eq!(state(owner.view().await), before);
    // An owner with a new epoch must connect first.
    owner.epoch = 3;
    assert_eq!(
        problem_code(owner.set_size(9, false).await),
        Code::NotConnected
    );
}
