//! Fixture with one job-converter on its own database, a fake scheduler, and clients of every role.

use std::collections::BTreeMap;
use std::sync::Arc;

use hayward_job_converter::{MIGRATOR, Running, SCHEMA, Settings, start};
use hayward_job_converter_api::submission::Submitted;
use hayward_job_converter_api::tasks::{LeaseAnswer, LeaseRequest, TaskList, TaskReport};
use hayward_job_converter_api::{DemandEntry, WorkState, WorkView};
use hayward_postgres::{Schema, SharedMigrations};
use hayward_publication::Update;
use hayward_service::auth::{Groups, Issuer, Keys, Scope, TokenSpec};
use hayward_service::client::{Client, ClientError, TokenSource, install_crypto};
use hayward_service::config::ServerSettings;
use hayward_service::runtime::clock::{SystemClock, fresh_uuid};
use hayward_service::runtime::shutdown::Shutdown;
use hayward_testkit::{TestDatabase, until};
use hayward_vocabulary::{AllocationId, Program, WorkId};
use serde_json::{Value, json};

use crate::fake_scheduler::FakeScheduler;

pub struct Fixture {
    pub running: Option<Running>,
    pub settings: Settings,
    pub issuer: Issuer,
    pub scheduler: FakeScheduler,
    database: TestDatabase,
    shutdown: Shutdown,
    _keys: tempfile::TempDir,
}

impl Fixture {
    /// Starts a service that is not killed. Its long lease survives a busy machine.
    pub async fn new() -> Self {
        Self::with_settings(|_| {}).await
    }

    /// Starts a service that is killed. Its short lease lets the successor start soon.
    pub async fn with_short_lease() -> Self {
        Self::with_settings(|settings| settings.server.lease_ms = 3_000).await
    }

    /// Starts a service with changed settings.
    pub async fn with_settings(change: impl FnOnce(&mut Settings)) -> Self {
        install_crypto();
        let publication = SharedMigrations {
            name: "publication",
            migrator: &hayward_publication::MIGRATOR,
        };
        let schema = Schema {
            name: SCHEMA,
            migrator: &MIGRATOR,
            shared: &[publication],
        };
        let database = hayward_testkit::database(&[schema]).await;
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::create(folder.path().join("keys")).unwrap();
        let spec = TokenSpec {
            subject: "job-converter",
            scopes: &[Scope::Service("job-converter".to_owned())],
            groups: Groups::NONE,
            life_ms: 3_600_000,
            clock: Arc::new(SystemClock),
        };
        keys.write_token("job-converter", &spec).unwrap();
        let scheduler = FakeScheduler::start().await;
        let mut settings = Settings {
            server: ServerSettings {
                database_url: Some(database.url(SCHEMA)),
                keys: Some(keys.dir().to_owned()),
                lease_ms: 60_000,
                ..ServerSettings::default()
            },
            rm_scheduler_url: scheduler.url.clone(),
            progress_ms: 20,
            ..Settings::default()
        };
        change(&mut settings);
        let issuer = keys.issuer(Arc::new(SystemClock)).unwrap();
        let mut fixture = Self {
            running: None,
            settings,
            issuer,
            scheduler,
            database,
            shutdown: Shutdown::new(),
            _keys: folder,
        };
        fixture.start().await;
        fixture
    }

    pub async fn start(&mut self) {
        self.shutdown = Shutdown::new();
        let shutdown = self.shutdown.clone();
        let running = start(self.settings.clone(), shutdown).await.unwrap();
        let publisher = running.publisher.clone();
        until("a leader", async || publisher.leading().ok()).await;
        self.running = Some(running);
    }

    /// Kills the service and starts it again.
    pub async fn kill_and_restart(&mut self) {
        self.kill();
        self.start().await;
    }

    pub fn kill(&mut self) {
        self.running.take().unwrap().kill();
    }

    /// Returns the revision of the last commit.
    pub fn revision(&self) -> u64 {
        self.running.as_ref().unwrap().publisher.revision()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.running.as_ref().unwrap().address)
    }

    pub fn token(&self, name: &str, scopes: &[Scope]) -> String {
        self.issuer.mint(name, scopes, 3_600_000).unwrap()
    }

    pub fn client(&self, name: &str, scopes: &[Scope]) -> Client {
        Client::new(&[self.url()], TokenSource::fixed(self.token(name, scopes))).unwrap()
    }

    pub fn client_with_token(&self, token: &str) -> Client {
        Client::new(&[self.url()], TokenSource::fixed(token)).unwrap()
    }

    /// Stops the service in order and starts it again.
    pub async fn stop_and_restart(&mut self) {
        self.shutdown.begin();
        self.running
            .take()
            .unwrap()
            .wait_until_stopped()
            .await
            .unwrap();
        self.start().await;
    }

    /// Creates the client of a user whose token has these groups.
    pub fn user_in_groups(&self, name: &str, groups: &[&str]) -> Client {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let groups = Groups::new(groups).unwrap();
        let issuer = &self.issuer;
        let token = issuer.mint_with_groups(name, &[Scope::Submitter], &groups, 3_600_000);
        self.client_with_token(&token.unwrap())
    }

    pub fn user_token(&self, name: &str) -> String {
        self.token(name, &[Scope::Submitter])
    }

    pub fn user(&self, name: &str) -> Client {
        self.client(name, &[Scope::Submitter])
    }

    pub async fn submit(&self, body: Value) -> Submitted {
        submit(&self.user("ann"), "/v1/jobs", &body, &fresh_key())
            .await
            .unwrap()
    }

    pub async fn view(&self, id: &WorkId) -> WorkView {
        let viewer = self.client("vic", &[Scope::Viewer]);
        let plural = match id.as_str().split_once('_').unwrap().0 {
            "job" => "jobs",
            "svc" => "services",
            _ => "reservations",
        };
        viewer.get(&format!("/v1/{plural}/{id}")).await.unwrap()
    }

    pub async fn wait_for_state(&self, id: &WorkId, state: WorkState) -> WorkView {
        until(&format!("{id} to be {state:?}"), async || {
            Some(self.view(id).await).filter(|view| view.state == state)
        })
        .await
    }

    pub async fn demand(&self) -> BTreeMap<String, DemandEntry> {
        let service = self.client("rm-scheduler", &[Scope::Service("rm-scheduler".to_owned())]);
        let update: Update<DemandEntry> = service.get("/v1/demand/publication").await.unwrap();
        update.changed
    }

    pub async fn demand_of(&self, id: &WorkId) -> DemandEntry {
        self.demand().await.remove(id.as_str()).unwrap()
    }

    /// Creates a runner with the token in a demand entry.
    pub fn runner(&self, demand: &DemandEntry) -> Runner {
        let Program::RunTasks { token, .. } = &demand.launch.as_ref().unwrap().program else {
            panic!("{} runs no tasks", demand.work);
        };
        let client = Client::new(&[self.url()], TokenSource::fixed(token)).unwrap();
        Runner {
            client,
            job: demand.work.clone(),
        }
    }

    pub async fn tasks(&self, id: &WorkId) -> TaskList {
        let viewer = self.client("vic", &[Scope::Viewer]);
        viewer
            .get(&format!("/v1/jobs/{id}/tasks?limit=1000"))
            .await
            .unwrap()
    }

    /// Runs a query that returns one number.
    pub async fn query_number(&self, sql: &'static str) -> i64 {
        let pool = hayward_postgres::connect(&self.database.url("postgres"), 1)
            .await
            .unwrap();
        let count = sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
        pool.close().await;
        count
    }
}

pub struct Runner {
    pub client: Client,
    pub job: WorkId,
}

impl Runner {
    pub async fn send(&self, request: &LeaseRequest) -> Result<LeaseAnswer, ClientError> {
        let path = format!("/v1/jobs/{}/tasks/leases", self.job);
        self.client.post(&path, request, None).await
    }

    pub async fn lease(&self, allocation: &AllocationId, want: u32) -> LeaseAnswer {
        self.send(&LeaseRequest {
            want,
            ..empty_request(allocation)
        })
        .await
        .unwrap()
    }

    pub async fn report(
        &self,
        allocation: &AllocationId,
        finished: Vec<TaskReport>,
    ) -> LeaseAnswer {
        self.send(&LeaseRequest {
            finished,
            ..empty_request(allocation)
        })
        .await
        .unwrap()
    }
}

/// Creates a request for no tasks.
pub fn empty_request(allocation: &AllocationId) -> LeaseRequest {
    LeaseRequest {
        allocation: allocation.clone(),
        want: 0,
        finished: Vec::new(),
        returned: Vec::new(),
        slots: None,
        idle: 0,
        running: Vec::new(),
        request: 0,
        held: None,
        wait_ms: 0,
        terms: None,
        terms_version: 0,
    }
}

/// Creates the report of a task that ended with this exit code.
pub fn report(task: u64, attempt: u32, exit_code: i32) -> TaskReport {
    TaskReport {
        task,
        attempt,
        exit_code: Some(exit_code),
        signal: None,
        error: None,
        interrupted: false,
        end: None,
        duration_us: 70_000,
        usage: None,
        output: format!("output of {task}\n"),
    }
}

pub async fn submit(
    client: &Client,
    path: &str,
    body: &Value,
    key: &str,
) -> Result<Submitted, ClientError> {
    client.post(path, body, Some(key)).await
}

pub fn fresh_key() -> String {
    fresh_uuid().simple().to_string()
}

/// Returns the submission of a job with this number of tasks.
pub fn job_with_tasks(count: u64) -> Value {
    json!({ "command": ["/bin/echo", "{task}"], "tasks": { "count": count } })
}

/// Returns the status and the pointers of a refusal.
pub fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (u16, Vec<String>) {
    let error = answer.unwrap_err();
    let problem = error
        .problem()
        .unwrap_or_else(|| panic!("no problem document: {error}"))
        .clone();
    let pointers = problem
        .errors
        .iter()
        .map(|fault| fault.pointer.clone())
        .collect();
    (problem.status().as_u16(), pointers)
}
