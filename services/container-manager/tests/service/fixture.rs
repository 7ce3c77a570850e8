//! Fixture of all tests: one container-manager with its own database, a fake rm-scheduler, and
//! tokens for fake agents and other callers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager::{MIGRATOR, SCHEMA, Settings, start};
use hayward_container_manager_api::{ContainerEntry, ContainerState, ContainerView};
use hayward_postgres::{Schema, SharedMigrations};
use hayward_publication::{Publisher, Update};
use hayward_service::auth::{Groups, TokenSpec};
use hayward_service::client::{Client, ClientError, TokenSource};
use hayward_service::{Keys, Scope, Shutdown, SystemClock};
use hayward_testkit::{TestDatabase, TestServer};
use hayward_vocabulary::NodeName;
use tokio::runtime::Runtime;

use super::fake_scheduler::FakeScheduler;

/// Maximum time of each wait.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);

const SHARED: [SharedMigrations<'static>; 1] = [SharedMigrations {
    name: "publication",
    migrator: &hayward_publication::MIGRATOR,
}];

fn schema() -> Schema<'static> {
    Schema {
        name: SCHEMA,
        migrator: &MIGRATOR,
        shared: &SHARED,
    }
}

/// A running container-manager, in its own runtime so that it can be killed.
struct RunningService {
    runtime: Runtime,
    publisher: Arc<Publisher>,
}

pub struct Fixture {
    pub scheduler: FakeScheduler,
    settings: Settings,
    keys: Keys,
    /// `None` while the service is killed.
    running: Option<RunningService>,
    url: String,
    _database: TestDatabase,
    _folder: tempfile::TempDir,
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with_settings(|_| {}).await
    }

    /// Starts a service with changed settings.
    pub async fn with_settings(change: impl FnOnce(&mut Settings)) -> Self {
        let database = hayward_testkit::database(&[schema()]).await;
        Self::with_database(database, change).await
    }

    /// Starts a service on a database server that the test may stop.
    pub async fn with_server(server: &TestServer) -> Self {
        Self::with_database(server.database(&[schema()]).await, |_| {}).await
    }

    async fn with_database(database: TestDatabase, change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::create(folder.path().join("keys")).unwrap();
        let service = |name: &str| Scope::Service(name.to_owned());
        for (name, scope) in [
            ("container-manager", service("container-manager")),
            ("rm-scheduler", service("rm-scheduler")),
            ("operator", Scope::Operator),
            ("viewer", Scope::Viewer),
            ("auditor", Scope::Auditor),
            ("ann", Scope::Submitter),
            ("bob", Scope::Submitter),
            ("agent-n1", Scope::Agent(NodeName::new("n1").unwrap())),
            ("agent-n2", Scope::Agent(NodeName::new("n2").unwrap())),
        ] {
            let spec = TokenSpec {
                subject: name,
                scopes: &[scope],
                groups: Groups::NONE,
                life_ms: 3_600_000,
                clock: Arc::new(SystemClock),
            };
            keys.write_token(name, &spec).unwrap();
        }
        let scheduler = FakeScheduler::start().await;
        let mut settings = Settings {
            rm_scheduler_url: scheduler.url(),
            ..Settings::default()
        };
        settings.server.listen = "127.0.0.1:0".parse().unwrap();
        settings.server.database_url = Some(database.url(SCHEMA));
        settings.server.keys = Some(keys.dir().to_owned());
        settings.server.lease_ms = 1_000;
        change(&mut settings);
        let mut fixture = Self {
            scheduler,
            settings,
            keys,
            running: None,
            url: String::new(),
            _database: database,
            _folder: folder,
        };
        fixture.start().await;
        fixture
    }

    /// Starts container-manager in its own runtime, so that it can be killed.
    pub async fn start(&mut self) {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let settings = self.settings.clone();
        let started = runtime.spawn(async move {
            let running = start(settings, Shutdown::new()).await.unwrap();
            let handles = (running.address, running.publisher.clone());
            tokio::spawn(running.wait_until_stopped());
            handles
        });
        let (address, publisher) = started.await.unwrap();
        self.url = format!("http://{address}");
        let becomes_leader = async {
            let mut terms = publisher.watch_role();
            drop(terms.wait_for(|_| publisher.leading().is_ok()).await);
        };
        tokio::time::timeout(TIME_LIMIT, becomes_leader)
            .await
            .expect("container-manager becomes the leader");
        self.running = Some(RunningService { runtime, publisher });
    }

    /// Kills container-manager without a last commit. Its lease is not released.
    pub fn kill(&mut self) {
        if let Some(service) = self.running.take() {
            service.runtime.shutdown_background();
        }
    }

    pub async fn restart(&mut self) {
        self.kill();
        self.start().await;
    }

    pub fn revision(&self) -> u64 {
        self.running.as_ref().unwrap().publisher.revision()
    }

    pub fn client(&self, name: &str) -> Client {
        let token = TokenSource::fixed(self.keys.token(name).unwrap());
        Client::new([&self.url], token).unwrap()
    }

    pub fn anonymous_client(&self) -> Client {
        Client::new([&self.url], TokenSource::none()).unwrap()
    }

    /// Starts a second replica, which is on standby, and returns a client of it.
    pub async fn standby_client(&self) -> Client {
        let running = start(self.settings.clone(), Shutdown::new()).await.unwrap();
        let url = format!("http://{}", running.address);
        tokio::spawn(running.wait_until_stopped());
        Client::new(
            [url],
            TokenSource::fixed(self.keys.token("operator").unwrap()),
        )
        .unwrap()
    }

    /// Returns all published containers.
    pub async fn published_containers(&self) -> BTreeMap<String, ContainerEntry> {
        let client = self.client("rm-scheduler");
        let update: Result<Update<_>, _> = client.get("/v1/containers/publication").await;
        update.unwrap().changed
    }

    /// Waits until the published containers meet a condition.
    pub async fn wait_until(
        &self,
        description: &str,
        condition: impl Fn(&BTreeMap<String, ContainerEntry>) -> bool,
    ) -> BTreeMap<String, ContainerEntry> {
        let client = self.client("rm-scheduler");
        let polling = async {
            let mut containers: BTreeMap<String, ContainerEntry> = BTreeMap::new();
            let mut path = "/v1/containers/publication".to_owned();
            loop {
                let update: Update<ContainerEntry> = client.get(&path).await.unwrap();
                if update.full {
                    containers.clear();
                }
                containers.extend(update.changed);
                for id in update.removed {
                    containers.remove(&id);
                }
                if condition(&containers) {
                    return containers;
                }
                path = format!("/v1/containers/publication?wait=5&since={}", update.cursor);
            }
        };
        tokio::time::timeout(TIME_LIMIT, polling)
            .await
            .unwrap_or_else(|_| panic!("not within the time limit: {description}"))
    }

    /// Waits until a published container has a state.
    pub async fn wait_for_state(&self, id: &str, state: ContainerState) -> ContainerEntry {
        let has_state = |all: &BTreeMap<String, ContainerEntry>| {
            all.get(id).is_some_and(|entry| entry.state == state)
        };
        self.wait_until(&format!("{id} {state:?}"), has_state)
            .await
            .remove(id)
            .unwrap()
    }

    pub async fn show_container(&self, user: &str, id: &str) -> Result<ContainerView, ClientError> {
        self.client(user).get(&format!("/v1/containers/{id}")).await
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.kill();
    }
}
