//! A running node-status with its own database and a fake rm-scheduler, and clients with the tokens
//! of operators, viewers and agents.

use std::sync::Arc;

use axum::http::Method;
use hayward_node_status::{MIGRATOR, NAME, Running, SCHEMA, Settings, start};
use hayward_node_status_api::{Heartbeat, HeartbeatAnswer, Inventory, Metrics, NodeView};
use hayward_postgres::{Schema, SharedMigrations};
use hayward_service::auth::{Groups, Issuer, Keys, Scope, TokenSpec};
use hayward_service::client::{Client, ClientError, TokenSource, install_crypto};
use hayward_service::config::ServerSettings;
use hayward_service::runtime::clock::SystemClock;
use hayward_service::runtime::shutdown::Shutdown;
use hayward_testkit::{TestDatabase, until};
use hayward_vocabulary::{NodeName, Size, resources::GIB};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fake_scheduler::FakeScheduler;

pub struct Fixture {
    pub running: Option<Running>,
    pub scheduler: FakeScheduler,
    shutdown: Shutdown,
    pub settings: Settings,
    pub issuer: Issuer,
    database: TestDatabase,
    _keys: tempfile::TempDir,
}

/// Milliseconds of a second.
pub const SECONDS: u64 = 1000;

impl Fixture {
    /// Starts a service with limits so long that no node loses contact.
    pub async fn without_losses() -> Self {
        Self::with_limits(60 * SECONDS, 120 * SECONDS).await
    }

    /// Starts a service. A node is suspect or lost after so many milliseconds of silence.
    pub async fn with_limits(suspect_ms: u64, lost_ms: u64) -> Self {
        Self::with_settings(suspect_ms, lost_ms, |_| {}).await
    }

    pub async fn with_settings(
        suspect_ms: u64,
        lost_ms: u64,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        install_crypto();
        let schema = Schema {
            name: SCHEMA,
            migrator: &MIGRATOR,
            shared: &[SharedMigrations {
                name: "publication",
                migrator: &hayward_publication::MIGRATOR,
            }],
        };
        let database = hayward_testkit::database(&[schema]).await;
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::create(folder.path().join("keys")).unwrap();
        let token = TokenSpec {
            subject: NAME,
            scopes: &[Scope::Service(NAME.to_owned())],
            groups: Groups::NONE,
            life_ms: 3_600_000,
            clock: Arc::new(SystemClock),
        };
        keys.write_token(NAME, &token).unwrap();
        let scheduler = FakeScheduler::start().await;
        let server = ServerSettings {
            database_url: Some(database.url(SCHEMA)),
            keys: Some(keys.dir().to_owned()),
            lease_ms: 1000,
            ..ServerSettings::default()
        };
        let heartbeat_ms = (suspect_ms / 5).max(1);
        let mut settings = Settings {
            server,
            heartbeat_ms,
            suspect_ms,
            lost_ms,
            warm_up_ms: Some(lost_ms),
            rm_scheduler_url: scheduler.url.clone(),
            ..Settings::default()
        };
        change(&mut settings);
        let issuer = keys.issuer(Arc::new(SystemClock)).unwrap();
        let mut fixture = Self {
            running: None,
            scheduler,
            shutdown: Shutdown::new(),
            settings,
            issuer,
            database,
            _keys: folder,
        };
        fixture.start().await;
        fixture
    }

    pub async fn start(&mut self) {
        self.shutdown = Shutdown::new();
        let running = start(self.settings.clone(), self.shutdown.clone())
            .await
            .unwrap();
        let publisher = running.publisher.clone();
        until("a leader", async || publisher.leading().ok()).await;
        self.running = Some(running);
    }

    /// Shuts the service down, and starts it again.
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

    /// Crashes the service, and starts it again.
    pub async fn kill_and_restart(&mut self) {
        self.running.take().unwrap().kill();
        self.start().await;
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.running().address)
    }

    pub fn client(&self, name: &str, scopes: &[Scope]) -> Client {
        let token = self.issuer.mint(name, scopes, 3_600_000).unwrap();
        Client::new(&[self.url()], TokenSource::fixed(token)).unwrap()
    }

    pub fn anonymous_client(&self) -> Client {
        Client::new(&[self.url()], TokenSource::none()).unwrap()
    }

    pub fn operator(&self) -> Client {
        self.client("ann", &[Scope::Operator])
    }

    pub fn viewer(&self) -> Client {
        self.client("vic", &[Scope::Viewer])
    }

    pub fn agent(&self, node: &str) -> Client {
        self.client(&format!("agent-{node}"), &[Scope::Agent(node_name(node))])
    }

    pub async fn node(&self, node: &str) -> NodeView {
        self.viewer()
            .get(&format!("/v1/nodes/{node}"))
            .await
            .unwrap()
    }

    pub async fn send_heartbeat(&self, node: &str, heartbeat: &Heartbeat) -> HeartbeatAnswer {
        try_heartbeat(&self.agent(node), node, heartbeat)
            .await
            .unwrap()
    }

    pub async fn query_count(&self, sql: &'static str) -> i64 {
        let pool = hayward_postgres::connect(&self.database.url("postgres"), 1)
            .await
            .unwrap();
        let count = sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
        pool.close().await;
        count
    }
}

/// Commands for nodes, with `If-Match: *` (A5).
pub trait NodeCommands {
    async fn put_command<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError>;
    async fn delete_command<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError>;
}

impl NodeCommands for Client {
    async fn put_command<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let call = self.call(Method::PUT, path).body(body);
        call.if_match_any().send().await
    }

    async fn delete_command<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::DELETE, path).if_match_any().send().await
    }
}

pub async fn try_heartbeat(
    client: &Client,
    node: &str,
    heartbeat: &Heartbeat,
) -> Result<HeartbeatAnswer, ClientError> {
    client
        .put(&format!("/v1/nodes/{node}/heartbeat"), heartbeat)
        .await
}

pub fn node_name(node: &str) -> NodeName {
    NodeName::new(node).unwrap()
}

/// Returns the heartbeat of a healthy agent.
pub fn healthy_heartbeat() -> Heartbeat {
    Heartbeat {
        boot_id: "boot-1".into(),
        agent_instance: "agent-1".into(),
        inventory: Inventory {
            capacity: Size {
                memory_bytes: 8 * GIB,
                cpu_milli: 4000,
                ..Size::default()
            },
            pool: None,
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            runtimes: vec!["process".into()],
            version: "0.1.0".into(),
        },
        metrics: Metrics {
            complete: true,
            ..Metrics::default()
        },
        quiesced: false,
        quiesce_reason: None,
    }
}

/// Returns the status and the fault pointers of a refusal.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (u16, Vec<String>) {
    let error = result.unwrap_err();
    let problem = error
        .problem()
        .unwrap_or_else(|| panic!("no problem document: {error}"));
    let pointers = problem
        .errors
        .iter()
        .map(|fault| fault.pointer.clone())
        .collect();
    (problem.status().as_u16(), pointers)
}

/// Returns the status of a refusal.
pub fn refusal_status<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u16 {
    let (status, _) = refusal(result);
    status
}
