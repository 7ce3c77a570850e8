//! node-status knows which nodes exist, and their health.
//!
//! It owns nodes, their health, their drains, whether an operator varied them off, the history of
//! these, and the enrolment of agents. Agents send it heartbeats. It publishes `nodes`, which
//! rm-scheduler follows. It follows `clearings` of rm-scheduler to know when a node is empty, and
//! `machines` to count nodes in the pools of the policy.
//!
//! An unchanged heartbeat changes only a number in memory, without commit or row. A node becomes
//! lost only by its silence, measured by the monotonic clock of this process, and never by an
//! outage of this service.
//!
//! It never orders an agent to run anything, and knows no work.

mod absorb;
mod command;
mod commands;
mod config;
mod context;
mod error;
mod format;
mod heartbeats;
mod http;
mod invariants;
mod ledger;
mod metrics;
mod model;
mod round;
mod secret_attempts;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::Method;
use hayward_node_status_api::NODES;
use hayward_publication::follower::{Source, follow};
use hayward_publication::{
    Committer, DatabaseClock, Handle, Publisher, Reply, Update, audit, changes, committer,
};
use hayward_publication::{min_revision, stale};
use hayward_rm_scheduler_api::evidence::{CLEARINGS, MACHINES};
use hayward_service::client::{Client, TokenSource};
use hayward_service::health::{Health, ServiceState};
use hayward_service::http::idempotency::KeyStore;
use hayward_service::http::openapi::{Description, documented, golden};
use hayward_service::http::server::{self, Server};
use hayward_service::invariants::InvariantMonitor;
use hayward_service::runtime::clock::Clock;
use hayward_service::runtime::shutdown::Shutdown;
use serde::de::DeserializeOwned;
use utoipa_axum::router::OpenApiRouter;

use crate::command::Command;
pub use crate::config::Settings;
use crate::context::Context;
use crate::heartbeats::Heartbeats;
use crate::http::App;
use crate::ledger::Ledger;
use crate::secret_attempts::SecretAttempts;

/// Database schema and role of this service.
pub const SCHEMA: &str = "node_status";

pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Name of this service, its token and its scope.
pub const NAME: &str = "node-status";
const ABOUT: Description = Description {
    title: "Hayward node-status",
    text: "Knows which machines exist and how they are.",
};
/// Database connections: one commits, the others read history.
const CONNECTIONS: u32 = 4;
/// Most answers with a secret in memory.
const MAX_SECRET_ANSWERS: usize = 1024;

/// A running service.
pub struct Running {
    pub address: SocketAddr,
    pub publisher: Arc<Publisher>,
    committer: Committer,
    server: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Returns after the shutdown, when every request is answered and the lease is released.
    ///
    /// # Errors
    /// When it stopped serving for another reason.
    pub async fn stopped(self) -> anyhow::Result<()> {
        let served = self.server.await.context("the server did not end in order");
        self.committer.stop().await;
        served?
    }

    /// Ends without releasing the lease, as a crash would.
    pub fn kill(self) {
        self.server.abort();
        self.committer.kill();
    }
}

/// When a setting is missing or invalid, or the database or the address is not available.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let limits = settings.limits()?;
    let guards = settings.guards()?;
    let heartbeat_period = settings.heartbeat_period()?;
    let lease_ms = settings.lease_ms()?;
    let keys = settings.frame.open_keys()?;
    let pool = hayward_postgres::connect(settings.frame.database_url()?, CONNECTIONS).await?;
    let clock: Arc<dyn Clock> = DatabaseClock::start(&pool, &shutdown).await?;
    let verifier = Arc::new(keys.verifier(Arc::clone(&clock))?);
    let issuer = Arc::new(keys.issuer(Arc::clone(&clock))?);

    let heartbeats = Heartbeats::default();
    let context = Arc::new(Context {
        heartbeats,
        limits,
        guards,
        heartbeat_period,
        lease_ms,
    });
    let holder = format!("{NAME} {}", std::process::id());
    let lease = Duration::from_millis(settings.frame.lease_ms);
    let (committer, handle) = Committer::start::<Ledger>(
        committer::Settings::new(NAME, holder, lease),
        pool.clone(),
        &[NODES],
        clock,
        Arc::clone(&context),
    );
    let publisher = Arc::clone(handle.publisher());
    let token = TokenSource::file(keys.token_path(NAME));
    let rm_scheduler = Client::from_list(&settings.rm_scheduler_url, token)?;
    Follows::new(rm_scheduler, &handle, &shutdown).start_all();

    let (secret_answers, secret_attempts) = (
        Arc::new(KeyStore::new(MAX_SECRET_ANSWERS)),
        Arc::new(SecretAttempts::default()),
    );
    let watch = invariants::watch(&handle);
    let auditor = Arc::clone(handle.auditor());
    let records = audit::routes(&handle, NAME);
    let records = records.merge(changes::routes(handle.publisher(), http::FEED));
    watch.spawn(shutdown.clone());
    let app = App {
        handle,
        publisher: publisher.clone(),
        context,
        pool,
        issuer,
        secret_answers,
        secret_attempts,
    };
    let listener = server::bind(&settings.frame)?;
    let address = listener.local_addr()?;
    let standing = Arc::clone(&publisher);
    let standing = move || hayward_publication::status::service_state(&standing);
    let health = Health::new(NAME, Arc::new(standing)).schema(hayward_postgres::newest(&MIGRATOR));
    let routes = http::routes().with_state(app).merge(health.routes());
    let router = documented(routes.merge(watch.routes()).merge(records), ABOUT);
    let router = stale::mark_stale(
        min_revision::wait_for_min_revision(router, &publisher),
        &publisher,
    );
    let server = Server::new(NAME, Some(verifier))
        .configure(&settings.frame)?
        .observe_refusals(auditor)
        .open_route(Method::POST, "/v1/nodes/{node}/credentials")
        .serve(router, listener, shutdown);
    Ok(Running {
        address,
        publisher,
        committer,
        server: tokio::spawn(server),
    })
}

/// API description, as stored in `openapi/node-status.json`.
pub fn openapi() -> String {
    let health = Health::new(NAME, Arc::new(ServiceState::default));
    // Only the descriptions are used, and those need no state.
    let (_, document) = http::routes().split_for_parts();
    golden(
        OpenApiRouter::with_openapi(document)
            .merge(health.routes())
            .merge(InvariantMonitor::described(NAME).routes())
            .merge(audit::described(NAME))
            .merge(changes::described(http::FEED)),
        ABOUT,
    )
}

/// Followed publications of rm-scheduler.
struct Follows {
    client: Client,
    handle: Handle<Command>,
    shutdown: Shutdown,
}

impl Follows {
    fn new(client: Client, handle: &Handle<Command>, shutdown: &Shutdown) -> Self {
        Self {
            client,
            handle: handle.clone(),
            shutdown: shutdown.clone(),
        }
    }

    fn start_all(&self) {
        self.start(CLEARINGS, |update, reply| Command::Clearings {
            update,
            reply,
        });
        self.start(MACHINES, |update, reply| Command::Machines {
            update,
            reply,
        });
    }

    fn start<T: DeserializeOwned + Send + 'static>(
        &self,
        name: &'static str,
        command: fn(Update<T>, Reply<()>) -> Command,
    ) {
        let source = Source {
            name,
            path: format!("/v1/{name}/publication"),
        };
        let (handle, publisher) = (self.handle.clone(), self.handle.publisher().clone());
        let absorb = move |update| {
            let handle = handle.clone();
            async move { handle.ask(|reply| command(update, reply)).await }
        };
        let (client, shutdown) = (self.client.clone(), self.shutdown.clone());
        tokio::spawn(follow(source, client, publisher, shutdown, absorb));
    }
}
