//! The owner of a worker pool, for tests: it creates the pool and makes all calls of an owner.

use std::collections::BTreeMap;

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_rm_scheduler_api::worker_pools::{
    EventKind, EventList, OwnerConnected, OwnerOrder, PoolCreated, PoolMode, PoolOrder, PoolView,
    SizeAnswer, StartedAnswer, WorkerSpec,
};
use hayward_service::Code;
use hayward_service::client::{Client, ClientError, Response};
use hayward_testkit::until;
use hayward_vocabulary::{AllocationId, Exit, ExitCause, WorkId};
use http::{HeaderName, Method};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::fixture::{Allocations, Fixture, is_staying};
use super::super::neighbours::container;

/// Returns the order for a managed pool that tolerates any number of failures.
pub fn pool_order(size: i64) -> PoolOrder {
    PoolOrder {
        job_id: "my job".into(),
        mode: PoolMode::Managed,
        initial_size: size,
        max_failed: Some(-1),
        worker_spec: Some(WorkerSpec {
            command: vec!["worker".into()],
            environment: BTreeMap::from([("MINE".to_owned(), "1".to_owned())]),
            working_directory: None,
            size: None,
            machines: Vec::new(),
            stop_grace_ms: None,
        }),
        user: Some("ann".parse().unwrap()),
        class: None,
        reject_foreign: false,
    }
}

/// The owner of a worker pool: its identity and its calls.
pub struct Owner {
    pub client: Client,
    token: String,
    pub pool: WorkId,
    pub epoch: u64,
    pub connection: u64,
}

impl Owner {
    pub async fn new(fixture: &Fixture, size: i64) -> Self {
        Self::from_order(fixture, &pool_order(size)).await
    }

    pub async fn from_order(fixture: &Fixture, order: &PoolOrder) -> Self {
        let created = create(fixture, order, "key").await.unwrap();
        let client = fixture.client_with_token(&created.token);
        Self {
            client,
            token: created.token,
            pool: created.pool.id,
            epoch: 1,
            connection: 0,
        }
    }

    /// Uses the new address of the scheduler after a restart.
    pub fn update_client(&mut self, fixture: &Fixture) {
        self.client = fixture.client_with_token(&self.token);
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/v1/pools/{}{rest}", self.pool)
    }

    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        rest: &str,
        body: &Value,
    ) -> Result<T, ClientError> {
        self.call_with_status(method, rest, body)
            .await
            .map(|answer| answer.body)
    }

    /// Sends a call of the owner. Returns the response with its status.
    pub async fn call_with_status<T: DeserializeOwned>(
        &self,
        method: Method,
        rest: &str,
        body: &Value,
    ) -> Result<Response<T>, ClientError> {
        let header = HeaderName::from_static;
        let call = self.client.call(method, self.path(rest));
        let call = call.header(header("x-owner-epoch"), &self.epoch.to_string());
        let call = call.header(header("x-connection"), &self.connection.to_string());
        if body.is_null() {
            call.send_for_response().await
        } else {
            call.body(body).send_for_response().await
        }
    }

    /// Returns the body with which the owner connects and lists its workers.
    pub fn handover(&self, workers: &[AllocationId]) -> OwnerOrder {
        OwnerOrder {
            epoch: self.epoch,
            address: "http://owner".into(),
            workers: workers.to_vec(),
        }
    }

    pub async fn connect(&mut self, workers: &[AllocationId]) -> OwnerConnected {
        let order = self.handover(workers);
        let answer: OwnerConnected = self.client.put(&self.path("/owner"), &order).await.unwrap();
        self.connection = answer.connection;
        answer
    }

    /// Connects, waits for this number of workers, and reports them as started.
    pub async fn start_workers(&mut self, fixture: &Fixture, count: usize) -> Vec<AllocationEntry> {
        self.connect(&[]).await;
        let workers = self.until_granted(fixture, count).await;
        for worker in &workers {
            assert!(self.report_started(&worker.id).await);
        }
        workers
    }

    /// Gives one worker back.
    pub async fn remove(&self, worker: &AllocationId) -> Result<(), ClientError> {
        let path = format!("/workers/{worker}");
        let done: Result<Option<Value>, _> = self.call(Method::DELETE, &path, &Value::Null).await;
        done.map(drop)
    }

    pub async fn stop(&self, status: &str) -> Result<Response<PoolView>, ClientError> {
        let body = json!({ "status": status, "message": "stopped by its owner" });
        self.call_with_status(Method::POST, "/stop", &body).await
    }

    /// Returns kind and worker of the events after this number.
    pub async fn event_kinds(&self, after: u64) -> Vec<(EventKind, Option<AllocationId>)> {
        let events = self.events(after).await.events.into_iter();
        events.map(|event| (event.kind, event.worker_id)).collect()
    }

    pub async fn set_size(&self, size: i64, release: bool) -> Result<SizeAnswer, ClientError> {
        let body = json!({ "size": size, "release": release });
        self.call(Method::PUT, "/size", &body).await
    }

    /// Reports a worker as started. Returns true if the pool knows the worker.
    pub async fn report_started(&self, worker: &AllocationId) -> bool {
        let path = format!("/workers/{worker}/started");
        let answer: StartedAnswer = self.call(Method::POST, &path, &Value::Null).await.unwrap();
        answer.known
    }

    pub async fn events(&self, after: u64) -> EventList {
        let path = format!("/events?after={after}&wait_ms=5000");
        self.call(Method::GET, &path, &Value::Null).await.unwrap()
    }

    pub async fn view(&self) -> PoolView {
        self.client.get(&self.path("")).await.unwrap()
    }

    pub async fn until(&self, what: &str, condition: impl Fn(&PoolView) -> bool) -> PoolView {
        until(what, async || {
            Some(self.view().await).filter(|view| condition(view))
        })
        .await
    }

    /// Waits until the pool has exactly this number of allocations that are not vacated.
    pub async fn until_granted(&self, fixture: &Fixture, count: usize) -> Vec<AllocationEntry> {
        let workers_of_pool = |all: &Allocations| -> Vec<AllocationEntry> {
            let workers = all
                .values()
                .filter(|entry| entry.work.parent() == self.pool);
            workers.filter(|entry| is_staying(entry)).cloned().collect()
        };
        let what = format!("{count} workers");
        let all = fixture
            .until(&what, |all| workers_of_pool(all).len() == count)
            .await;
        workers_of_pool(&all)
    }
}

/// Creates a pool. A repeated call with the same key creates no second pool.
pub async fn create(
    fixture: &Fixture,
    order: &PoolOrder,
    key: &str,
) -> Result<PoolCreated, ClientError> {
    fixture
        .client("operator")
        .post("/v1/pools", order, Some(key))
        .await
}

pub fn problem_code<T: std::fmt::Debug>(refused: Result<T, ClientError>) -> Code {
    refused
        .unwrap_err()
        .problem()
        .expect("a problem document")
        .code
}

/// Reports that the process of an allocation ended by itself with an error.
pub fn end_with_error(fixture: &Fixture, allocation: &AllocationEntry) {
    let mut entry = container(allocation, ContainerState::Ended);
    entry.exit = Some(Exit::of(ExitCause::UserError, "killed"));
    fixture
        .neighbours
        .containers
        .put(allocation.id.as_str(), &entry);
}

/// Returns the code of the refusal, and the pointer of each fault.
pub fn faults_of<T: std::fmt::Debug>(refused: Result<T, ClientError>) -> (Code, Vec<String>) {
    let error = refused.unwrap_err();
    let problem = error.problem().expect("a problem document");
    let at = problem.errors.iter().map(|fault| fault.pointer.clone());
    (problem.code, at.collect())
}
