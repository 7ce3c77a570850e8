//! Fixture of all tests: one blocklist with its own database, a fake scheduler, and clients of all
//! roles.

use std::sync::Arc;

use axum::http::Method;
use hayward_blocklist::{MIGRATOR, Running, SCHEMA, Settings, start};
use hayward_blocklist_api::{
    BlockAction, BlockAnswer, BlockEntry, BlockKind, BlockOverview, BlockRequest, BlockView,
    Evidence, FeedChanges, StrategyView,
};
use hayward_postgres::{Schema, SharedMigrations};
use hayward_publication::Update;
use hayward_service::auth::{Groups, Issuer, Keys, Scope, TokenSpec};
use hayward_service::client::{Client, ClientError, TokenSource, install_crypto};
use hayward_service::config::ServerSettings;
use hayward_service::runtime::clock::SystemClock;
use hayward_service::runtime::shutdown::Shutdown;
use hayward_testkit::{TestDatabase, until};
use serde_json::{Value, json};

use crate::fake_scheduler::FakeScheduler;

pub const ITEMS_PATH: &str = "/v1/blocklist/items";
pub const PUBLICATION_PATH: &str = "/v1/blocks/publication";
pub const ROOT_PATH: &str = "/v1/blocklist";

pub struct Fixture {
    pub scheduler: FakeScheduler,
    running: Option<Running>,
    settings: Settings,
    issuer: Issuer,
    _keys: tempfile::TempDir,
    _database: TestDatabase,
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with_settings(Settings::default()).await
    }

    pub async fn with_settings(settings: Settings) -> Self {
        install_crypto();
        let shared = &[SharedMigrations {
            name: "publication",
            migrator: &hayward_publication::MIGRATOR,
        }];
        let schema = Schema {
            name: SCHEMA,
            migrator: &MIGRATOR,
            shared,
        };
        let database = hayward_testkit::database(&[schema]).await;
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::create(folder.path().join("keys")).unwrap();
        let server = ServerSettings {
            database_url: Some(database.url(SCHEMA)),
            keys: Some(keys.dir().to_owned()),
            lease_ms: 1000,
            ..ServerSettings::default()
        };
        let issuer = keys.issuer(Arc::new(SystemClock)).unwrap();
        let service_token = TokenSpec {
            subject: "blocklist",
            scopes: &[Scope::Service("blocklist".to_owned())],
            groups: Groups::NONE,
            life_ms: 3_600_000,
            clock: Arc::new(SystemClock),
        };
        keys.write_token("blocklist", &service_token).unwrap();
        let scheduler = FakeScheduler::start().await;
        let settings = Settings {
            server,
            rm_scheduler_url: scheduler.url.clone(),
            ..settings
        };
        let mut fixture = Self {
            scheduler,
            running: None,
            settings,
            issuer,
            _keys: folder,
            _database: database,
        };
        fixture.start().await;
        fixture
    }

    async fn start(&mut self) {
        let running = start(self.settings.clone(), Shutdown::new()).await.unwrap();
        let publisher = running.publisher.clone();
        until("the service leads", async || publisher.leading().ok()).await;
        self.running = Some(running);
    }

    /// Starts a service that knows this many ready nodes.
    pub async fn with_nodes(count: usize, settings: Settings) -> Self {
        let fixture = Self::with_settings(settings).await;
        fixture.scheduler.publish_ready_nodes(count);
        fixture.wait_for_node(&format!("n{}", count - 1)).await;
        fixture
    }

    /// Waits until the service knows a node.
    pub async fn wait_for_node(&self, node: &str) {
        until("the node is known", async || self.evidence(node).await).await;
    }

    /// Crashes the service, and starts it again with changed settings.
    pub async fn restart_with(&mut self, change: impl FnOnce(&mut Settings)) {
        self.running.take().unwrap().kill();
        change(&mut self.settings);
        self.start().await;
    }

    /// Crashes the service, and starts it again.
    pub async fn crash_and_restart(&mut self) {
        self.running.take().unwrap().kill();
        self.start().await;
    }

    pub fn revision(&self) -> u64 {
        self.running.as_ref().unwrap().publisher.revision()
    }

    pub fn client(&self, name: &str, scope: Scope) -> Client {
        let token = self.issuer.mint(name, &[scope], 3_600_000).unwrap();
        self.client_with_token(TokenSource::fixed(token))
    }

    fn client_with_token(&self, token: TokenSource) -> Client {
        let url = format!("http://{}", self.running.as_ref().unwrap().address);
        Client::new(&[url], token).unwrap()
    }

    pub fn anonymous_client(&self) -> Client {
        self.client_with_token(TokenSource::none())
    }

    pub fn operator(&self) -> Client {
        self.client("ann", Scope::Operator)
    }

    pub fn viewer(&self) -> Client {
        self.client("vic", Scope::Viewer)
    }

    pub fn owner(&self) -> Client {
        self.client("pia", Scope::Owner("default".into()))
    }

    pub fn scheduler_client(&self) -> Client {
        self.client("rm-scheduler", Scope::Service("rm-scheduler".into()))
    }

    /// Adds an item. Returns the status and the body of the response.
    pub async fn put_item(&self, item: &BlockRequest) -> (u16, BlockAnswer) {
        let call = self.operator().call(Method::PUT, ITEMS_PATH).body(item);
        let response = call.send_for_response::<BlockAnswer>().await.unwrap();
        (response.status.as_u16(), response.body)
    }

    /// Adds an item. Returns the body of the response.
    pub async fn add_item(&self, item: &BlockRequest) -> BlockAnswer {
        let (_, answer) = self.put_item(item).await;
        answer
    }

    /// Sends `PUT /nodes/{id}` or `/workers/{id}`. Returns the status and the body of the response.
    pub async fn put_block(&self, target: &str, body: &Value) -> (u16, BlockAnswer) {
        let path = format!("{ROOT_PATH}/{target}");
        let call = self.operator().call(Method::PUT, path).body(body);
        let response = call.send_for_response::<BlockAnswer>().await.unwrap();
        (response.status.as_u16(), response.body)
    }

    pub async fn put_block_status(&self, target: &str, body: &Value) -> u16 {
        let (status, _) = self.put_block(target, body).await;
        status
    }

    pub async fn put_block_answer(&self, target: &str, body: &Value) -> BlockAnswer {
        let (_, answer) = self.put_block(target, body).await;
        answer
    }

    /// Sends `PUT /nodes/{id}` or `/workers/{id}`. Returns the status and the pointers of its
    /// refusal.
    pub async fn expect_refusal(&self, target: &str, body: &Value) -> (u16, Vec<String>) {
        let path = format!("{ROOT_PATH}/{target}");
        refusal(self.operator().put::<_, BlockAnswer>(&path, body).await)
    }

    pub async fn expect_refusal_status(&self, target: &str, body: &Value) -> u16 {
        let (status, _) = self.expect_refusal(target, body).await;
        status
    }

    pub async fn unblock(&self, target: &str) {
        let path = format!("{ROOT_PATH}/{target}");
        let _: Option<()> = self.operator().delete(&path).await.unwrap();
    }

    pub async fn read_block(&self, target: &str) -> Result<BlockView, ClientError> {
        self.viewer().get(&format!("{ROOT_PATH}/{target}")).await
    }

    pub async fn overview(&self) -> BlockOverview {
        self.viewer().get(ROOT_PATH).await.unwrap()
    }

    pub async fn changes(&self, after: u64) -> FeedChanges {
        let path = format!("{ROOT_PATH}/changes?after={after}");
        self.viewer().get(&path).await.unwrap()
    }

    pub async fn evidence(&self, node: &str) -> Option<Evidence> {
        let path = format!("{ROOT_PATH}/nodes/{node}/evidence");
        self.viewer().get(&path).await.ok()
    }

    pub async fn set_strategy(&self, name: &str, parameters: Value) -> StrategyView {
        let body = json!({ "name": name, "parameters": parameters });
        let path = format!("{ROOT_PATH}/strategy");
        self.operator().put(&path, &body).await.unwrap()
    }

    /// Returns all published entries.
    pub async fn published_entries(&self) -> std::collections::BTreeMap<String, BlockEntry> {
        let update: Update<BlockEntry> =
            self.scheduler_client().get(PUBLICATION_PATH).await.unwrap();
        update.changed
    }

    /// Waits until the published entry of a key meets a condition.
    pub async fn wait_for_entry(
        &self,
        key: &str,
        description: &str,
        condition: impl Fn(&BlockEntry) -> bool,
    ) -> BlockEntry {
        until(description, async || {
            self.published_entries()
                .await
                .remove(key)
                .filter(&condition)
        })
        .await
    }

    pub async fn show_item(&self, node: &str) -> Result<BlockEntry, ClientError> {
        self.viewer()
            .get(&format!("{ITEMS_PATH}/node/{node}"))
            .await
    }
}

/// Creates a request to mark a node for the default duration.
pub fn default_item(node: &str) -> BlockRequest {
    BlockRequest {
        kind: BlockKind::Node,
        identifier: node.to_owned(),
        action: BlockAction::Mark,
        cause: "disk slow".to_owned(),
        end: None,
        duration_ms: None,
        permanent: false,
        removal_no: None,
        scope: None,
        evacuation: None,
    }
}

/// Creates a request to mark a node permanently.
pub fn permanent_item(node: &str) -> BlockRequest {
    BlockRequest {
        permanent: true,
        ..default_item(node)
    }
}

/// Returns the status of a refusal.
pub fn refusal_status<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u16 {
    let (status, _) = refusal(result);
    status
}

/// Returns the status and the pointers of a refusal.
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
