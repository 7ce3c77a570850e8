//! Worker pools over HTTP: what their owners are told, what the planner is asked for in their name,
//! and what a crash leaves.

use std::collections::BTreeMap;

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::pools::{
    CheckAnswer, EventKind, EventList, OwnerConnected, OwnerOrder, PoolCreated, PoolMode,
    PoolOrder, PoolStatus, PoolView, SizeAnswer, SizeOrder, StartedAnswer, StopOrder, WorkerSpec,
};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_service::Code;
use hayward_service::client::{Client, ClientError};
use hayward_testkit::until;
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Program, WorkId};
use http::{HeaderName, Method};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::neighbours::{container, job};
use super::world::{World, stays};

fn order(size: i64) -> PoolOrder {
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
    }
}

/// An owner as far as its calls go.
struct Owner {
    client: Client,
    token: String,
    pool: WorkId,
    epoch: u64,
    connection: u64,
}

impl Owner {
    async fn of(world: &World, size: i64) -> Self {
        let created = create(world, &order(size), "key").await.unwrap();
        let client = world.bearer(&created.token);
        Self {
            client,
            token: created.token,
            pool: created.pool.id,
            epoch: 1,
            connection: 0,
        }
    }

    /// After a restart of the scheduler it has another address.
    fn find_again(&mut self, world: &World) {
        self.client = world.bearer(&self.token);
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/pools/{}{rest}", self.pool)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        rest: &str,
        body: &Value,
    ) -> Result<T, ClientError> {
        let header = HeaderName::from_static;
        let call = self.client.call(method, self.path(rest));
        let call = call.header(header("x-owner-epoch"), &self.epoch.to_string());
        let call = call.header(header("x-connection"), &self.connection.to_string());
        if body.is_null() {
            call.send().await
        } else {
            call.body(body).send().await
        }
    }

    async fn connect(&mut self, workers: &[AllocationId]) -> OwnerConnected {
        let order = OwnerOrder {
            epoch: self.epoch,
            address: "http://owner".into(),
            workers: workers.to_vec(),
        };
        let answer: OwnerConnected = self.client.put(&self.path("/owner"), &order).await.unwrap();
        self.connection = answer.connection;
        answer
    }

    async fn size(&self, size: i64, release: bool) -> Result<SizeAnswer, ClientError> {
        let body = json!({ "size": size, "release": release });
        self.call(Method::PUT, "/size", &body).await
    }

    async fn started(&self, worker: &AllocationId) -> bool {
        let path = format!("/workers/{worker}/started");
        let answer: StartedAnswer = self.call(Method::POST, &path, &Value::Null).await.unwrap();
        answer.known
    }

    async fn events(&self, after: u64) -> EventList {
        let path = format!("/events?after={after}&wait_ms=5000");
        self.call(Method::GET, &path, &Value::Null).await.unwrap()
    }

    async fn view(&self) -> PoolView {
        self.client.get(&self.path("")).await.unwrap()
    }

    async fn until(&self, what: &str, good: impl Fn(&PoolView) -> bool) -> PoolView {
        until(what, async || {
            Some(self.view().await).filter(|view| good(view))
        })
        .await
    }

    /// Waits until this many workers are held by allocations that stay.
    async fn granted(&self, world: &World, count: usize) -> Vec<AllocationEntry> {
        let ours = |all: &super::world::Allocations| -> Vec<AllocationEntry> {
            let ours = all.values().filter(|entry| entry.work.whole() == self.pool);
            ours.filter(|entry| stays(entry)).cloned().collect()
        };
        let what = format!("{count} workers");
        let all = world.until(&what, |all| ours(all).len() == count).await;
        ours(&all)
    }
}

async fn create(world: &World, order: &PoolOrder, key: &str) -> Result<PoolCreated, ClientError> {
    world
        .client("operator")
        .post("/v1/pools", order, Some(key))
        .await
}

fn code<T: std::fmt::Debug>(refused: Result<T, ClientError>) -> Code {
    refused
        .unwrap_err()
        .problem()
        .expect("a problem document")
        .code
}

/// Ended by itself, as the agent would say.
fn die(world: &World, of: &AllocationEntry) {
    let mut entry = container(of, ContainerState::Ended);
    entry.exit = Some(Exit::of(ExitCause::UserError, "killed"));
    world.around.containers.put(of.id.as_str(), &entry);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_filled_by_the_everyday_round_and_refilled_when_a_worker_dies() {
    let world = World::new(&[4, 4]).await;
    let mut owner = Owner::of(&world, 3).await;
    // Nobody owns it yet, so nothing is asked for.
    world.settled().await;
    assert!(world.allocations().await.is_empty());

    let connected = owner.connect(&[]).await;
    assert_eq!((connected.connection, connected.pool.requested), (1, 3));
    let workers = owner.granted(&world, 3).await;
    for worker in &workers {
        assert_eq!(worker.user.as_str(), "ann");
        let launch = worker.launch.as_ref().unwrap();
        let argv = vec!["worker".to_owned()];
        assert_eq!(launch.program, Program::Command { argv });
        let said = |name: &str| launch.environment[name].clone();
        assert_eq!(said("HAYWARD_WORKER"), worker.id.to_string());
        assert_eq!(said("HAYWARD_POOL"), owner.pool.to_string());
        assert_eq!(said("HAYWARD_OWNER"), "http://owner");
        assert_eq!(said("MINE"), "1");
        assert!(owner.started(&worker.id).await);
    }
    let view = owner.view().await;
    assert_eq!((view.started, view.launching, view.requested), (3, 0, 0));

    die(&world, &workers[1]);
    let heard = owner.events(connected.event_seq).await;
    let told: Vec<_> = heard
        .events
        .iter()
        .map(|it| (it.kind, it.worker_id.clone()))
        .collect();
    assert_eq!(
        told,
        [(EventKind::ResourceRemoved, Some(workers[1].id.clone()))]
    );
    let now = owner.granted(&world, 3).await;
    assert!(now.iter().all(|worker| worker.id != workers[1].id));
    let view = owner.until("the new one", |view| view.launching == 1).await;
    assert_eq!((view.started, view.failed_so_far), (2, 1));

    // What was given back leaves by the everyday road and is replaced.
    owner
        .call::<Option<Value>>(
            Method::DELETE,
            &format!("/workers/{}", workers[0].id),
            &Value::Null,
        )
        .await
        .unwrap();
    let told = |entry: &AllocationEntry| entry.id == workers[0].id && entry.vacate.is_some();
    let work = workers[0].work.as_str();
    let leaving = world.until_one(work, "is told to go", told).await;
    assert_eq!(
        leaving.vacate.as_ref().unwrap().reason,
        VacateReason::WorkGone
    );
    world.report(&leaving, ContainerState::Ended);
    owner.granted(&world, 3).await;
    let view = owner
        .until("it is replaced", |view| view.returning == 0)
        .await;
    assert_eq!(view.failed_so_far, 1, "no failure of the pool");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_no_worker_and_asks_the_owner_to_connect_again() {
    let mut world = World::new(&[8]).await;
    let mut owner = Owner::of(&world, 3).await;
    let first = owner.connect(&[]).await;
    let workers = owner.granted(&world, 3).await;
    let ids: Vec<AllocationId> = workers.iter().map(|worker| worker.id.clone()).collect();
    for id in &ids {
        owner.started(id).await;
    }
    world.restart().await;
    owner.find_again(&world);
    assert_eq!(code(owner.size(3, false).await), Code::NotConnected);
    let heard: EventList = {
        let path = owner.path(&format!("/events?after={}&wait_ms=5000", first.event_seq));
        owner.client.get(&path).await.unwrap()
    };
    assert_eq!(heard.events[0].kind, EventKind::ReconnectRequested);
    let view = owner.view().await;
    assert_eq!(
        (view.launching, view.started, view.owner.bound),
        (3, 0, false)
    );
    // A full answer of job-converter knows nothing of pools, and takes nothing from them.
    let mut small = job("job_a", "ann");
    small.max_processes = 1;
    world.around.ask(&small);
    world.settled().await;
    let held = owner.granted(&world, 3).await;
    assert!(held.iter().all(|worker| ids.contains(&worker.id)));

    let again = owner.connect(&ids).await;
    assert_eq!((again.connection, again.accepted.len()), (2, 3));
    assert_eq!((again.pool.started, again.pool.requested), (3, 0));
    owner.connection = 1;
    assert_eq!(code(owner.size(9, false).await), Code::StaleConnection);
    (owner.epoch, owner.connection) = (0, 2);
    assert_eq!(code(owner.size(9, false).await), Code::StaleEpoch);
    assert_eq!(owner.view().await.designated, 3);
    // Numbers of works are never used twice, also after a restart.
    (owner.epoch, owner.connection) = (1, 2);
    owner.size(4, false).await.unwrap();
    let four = owner.granted(&world, 4).await;
    let works: std::collections::BTreeSet<_> = four.iter().map(|it| &it.work).collect();
    assert_eq!(works.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_releases_and_the_end() {
    let world = World::new(&[8]).await;
    let mut owner = Owner::of(&world, 4).await;
    owner.connect(&[]).await;
    let workers = owner.granted(&world, 4).await;
    for worker in &workers {
        owner.started(&worker.id).await;
    }
    let view = owner.size(2, false).await.unwrap();
    assert_eq!((view.released.len(), view.withdrawn_now), (0, 0));
    world.settled().await;
    owner.granted(&world, 4).await;
    let body = json!({ "size": 2, "release": true, "unwanted": [workers[0].id] });
    let answer: SizeAnswer = owner.call(Method::PUT, "/size", &body).await.unwrap();
    assert_eq!(answer.released.len(), 2);
    assert_eq!(answer.released[0], workers[0].id);
    owner.granted(&world, 2).await;

    let check: CheckAnswer = owner
        .call(Method::POST, "/check", &Value::Null)
        .await
        .unwrap();
    assert_eq!((check.missing, check.requested_now), (0, 0));
    let stop = serde_json::to_value(StopOrder {
        status: hayward_rm_scheduler_api::pools::JobStatus::Succeeded,
        message: "done".into(),
    });
    let stop = stop.unwrap();
    let stopped: PoolView = owner.call(Method::POST, "/stop", &stop).await.unwrap();
    assert_eq!(stopped.status, PoolStatus::Stopped);
    let again: PoolView = owner.call(Method::POST, "/stop", &stop).await.unwrap();
    assert_eq!(again.final_message.as_deref(), Some("done"));
    assert_eq!(code(owner.size(3, false).await), Code::Gone);
    world.let_go().await;
    assert!(world.allocations().await.is_empty());
    assert_eq!(owner.view().await.returning, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_made_once_for_each_key_and_its_faults_are_told_at_once() {
    let mut world = World::new(&[1]).await;
    let made = create(&world, &order(2), "key").await.unwrap();
    world.restart().await;
    let again = create(&world, &order(2), "key").await.unwrap();
    assert_eq!(made.pool.id, again.pool.id);
    assert_eq!(
        code(create(&world, &order(3), "key").await),
        Code::IdempotencyMismatch
    );

    let mut bad = order(-1);
    bad.max_failed = Some(-2);
    bad.job_id.clear();
    bad.worker_spec.as_mut().unwrap().command.clear();
    let refused = create(&world, &bad, "other").await.unwrap_err();
    let problem = refused.problem().unwrap();
    let at: Vec<&str> = problem
        .errors
        .iter()
        .map(|fault| fault.pointer.as_str())
        .collect();
    assert_eq!(problem.code, Code::Invalid);
    assert_eq!(
        at,
        [
            "/job_id",
            "/initial_size",
            "/max_failed",
            "/worker_spec/command"
        ]
    );
    let wish = SizeOrder {
        size: -1,
        release: false,
        unwanted: Vec::new(),
    };
    let path = format!("/v1/pools/{}/size", made.pool.id);
    let operator = world.client("operator");
    let refused: Result<Value, _> = operator.put(&path, &wish).await;
    assert_eq!(code(refused), Code::Invalid);
    let view: PoolView = operator
        .get(&format!("/v1/pools/{}", made.pool.id))
        .await
        .unwrap();
    assert_eq!(view.designated, 2, "s24: unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_for_operators_and_for_their_own_owner() {
    let world = World::new(&[1]).await;
    let one = Owner::of(&world, 1).await;
    let other = create(&world, &order(1), "other").await.unwrap();
    let path = format!("/v1/pools/{}", other.pool.id);
    assert_eq!(
        code(one.client.get::<PoolView>(&path).await),
        Code::Forbidden
    );
    let size = json!({ "size": 5 });
    let refused: Result<Value, _> = one.client.put(&format!("{path}/size"), &size).await;
    assert_eq!(code(refused), Code::Forbidden);
    for who in ["ann", "job-converter"] {
        let client = world.client(who);
        assert_eq!(
            code(client.get::<PoolView>(&path).await),
            Code::Forbidden,
            "{who}"
        );
        let refused: Result<Value, _> = client.post("/v1/pools", &order(1), Some("k")).await;
        assert_eq!(code(refused), Code::Forbidden, "{who}");
    }
    assert!(world.client("viewer").get::<PoolView>(&path).await.is_ok());
    // An owner says who it is, always.
    let refused: Result<Value, _> = one.client.put(&one.path("/size"), &size).await;
    assert_eq!(code(refused), Code::BadRequest);
    // Only an owner knows who has registered with it.
    let started = format!("{path}/workers/alc_1/started");
    let operator = world.client("operator");
    let refused: Result<Value, _> = operator.post(&started, &json!({}), None).await;
    assert_eq!(code(refused), Code::Forbidden);
}
