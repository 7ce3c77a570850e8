//! One blocklist on a database of its own, and callers with every kind of token.

use std::sync::Arc;

use axum::http::Method;
use hayward_blocklist::{MIGRATOR, Running, SCHEMA, Settings, start};
use hayward_blocklist_api::{BlockAction, BlockAnswer, BlockEntry, BlockKind, BlockRequest};
use hayward_postgres::{Schema, Shared};
use hayward_service::auth::{Issuer, Keys, Scope};
use hayward_service::client::{Client, ClientError, TokenSource, install_crypto};
use hayward_service::clock::SystemClock;
use hayward_service::settings::FrameSettings;
use hayward_service::shutdown::Shutdown;
use hayward_testkit::until;

pub const ITEMS: &str = "/v1/blocklist/items";
pub const PUBLICATION: &str = "/v1/blocks/publication";

pub struct World {
    running: Option<Running>,
    settings: Settings,
    issuer: Issuer,
    _keys: tempfile::TempDir,
}

impl World {
    pub async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub async fn with(settings: Settings) -> Self {
        install_crypto();
        let shared = &[Shared {
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
        let frame = FrameSettings {
            database_url: Some(database.url(SCHEMA)),
            keys: Some(keys.dir().to_owned()),
            lease_ms: 1000,
            ..FrameSettings::default()
        };
        let issuer = keys.issuer(Arc::new(SystemClock)).unwrap();
        let settings = Settings { frame, ..settings };
        let mut world = Self {
            running: None,
            settings,
            issuer,
            _keys: folder,
        };
        world.start().await;
        world
    }

    async fn start(&mut self) {
        let running = start(self.settings.clone(), Shutdown::new()).await.unwrap();
        let publisher = running.publisher.clone();
        until("a leader", async || publisher.leading().ok()).await;
        self.running = Some(running);
    }

    /// As a crash would, and up again.
    pub async fn kill_and_restart(&mut self) {
        self.running.take().unwrap().kill();
        self.start().await;
    }

    pub fn revision(&self) -> u64 {
        self.running.as_ref().unwrap().publisher.revision()
    }

    pub fn client(&self, name: &str, scope: Scope) -> Client {
        let token = self.issuer.mint(name, &[scope], 3_600_000).unwrap();
        self.bearing(TokenSource::fixed(token))
    }

    fn bearing(&self, token: TokenSource) -> Client {
        let url = format!("http://{}", self.running.as_ref().unwrap().address);
        Client::new(&[url], token).unwrap()
    }

    pub fn stranger(&self) -> Client {
        self.bearing(TokenSource::none())
    }

    pub fn operator(&self) -> Client {
        self.client("ann", Scope::Operator)
    }

    pub fn viewer(&self) -> Client {
        self.client("vic", Scope::Viewer)
    }

    pub fn scheduler(&self) -> Client {
        self.client("rm-scheduler", Scope::Service("rm-scheduler".into()))
    }

    /// The status of a PUT and what it answered.
    pub async fn put(&self, item: &BlockRequest) -> (u16, BlockAnswer) {
        let call = self.operator().call(Method::PUT, ITEMS).body(item);
        let answer = call.answer::<BlockAnswer>().await.unwrap();
        (answer.status.as_u16(), answer.body)
    }

    pub async fn show(&self, node: &str) -> Result<BlockEntry, ClientError> {
        self.viewer().get(&format!("{ITEMS}/node/{node}")).await
    }
}

/// A node marked for as long as the default says.
pub fn mark(node: &str) -> BlockRequest {
    BlockRequest {
        kind: BlockKind::Node,
        identifier: node.to_owned(),
        action: BlockAction::Mark,
        cause: "disk slow".to_owned(),
        end: None,
        duration_ms: None,
        permanent: false,
        removal_no: None,
    }
}

pub fn for_ever(node: &str) -> BlockRequest {
    BlockRequest {
        permanent: true,
        ..mark(node)
    }
}

/// The status and the pointers of a refusal.
pub fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (u16, Vec<String>) {
    let error = answer.unwrap_err();
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
