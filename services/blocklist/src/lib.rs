//! blocklist stores which nodes and workers must be avoided, why, until when, and whether running
//! work is evacuated.
//!
//! It owns items, the memory of removed ones, their history, and the facts about failures. It
//! publishes `blocks`, which only rm-scheduler follows, and follows rm-scheduler's `failures`,
//! `machines` and `clearings`.
//!
//! Items of one key merge into one, in any order of arrival. An item ends at its end: every reader
//! checks that, and the ledger only publishes the change. A block by a strategy ends in a trial, in
//! which the node must prove that it works.
//!
//! It never starts, stops or moves work.

mod absorb;
mod command;
mod config;
mod context;
mod error;
mod http;
mod invariants;
mod ledger;
mod metrics;
mod model;
mod store;
mod strategy;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hayward_blocklist_api::BLOCKS;
use hayward_publication::follower::{Source, follow};
use hayward_publication::{
    Committed, Committer, DatabaseClock, Handle, Publisher, Reply, Update, audit, changes,
    committer,
};
use hayward_publication::{min_revision, stale};
use hayward_rm_scheduler_api::evidence::{CLEARINGS, FAILURES, MACHINES};
use hayward_service::client::{Client, TokenSource};
use hayward_service::health::{Health, ServiceState};
use hayward_service::http::openapi::{Description, documented, golden};
use hayward_service::http::server::{self, Server};
use hayward_service::invariants::InvariantMonitor;
use hayward_service::runtime::clock::Clock;
use hayward_service::runtime::shutdown::Shutdown;
use serde::de::DeserializeOwned;
use utoipa_axum::router::OpenApiRouter;

use crate::command::Command;
pub use crate::config::{Evacuation, Settings};
use crate::context::Context;
use crate::http::App;
use crate::ledger::Ledger;

/// Database schema and role of this service.
pub const SCHEMA: &str = "blocklist";

pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Name of this service, its token and its scope.
pub const NAME: &str = "blocklist";
const ABOUT: Description = Description {
    title: "Hayward blocklist",
    text: "Keeps what must be avoided, why and until when.",
};
/// Database connections: one commits, the others read history.
const CONNECTIONS: u32 = 4;

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
    settings.validate()?;
    let keys = settings.frame.open_keys()?;
    let pool = hayward_postgres::connect(settings.frame.database_url()?, CONNECTIONS).await?;
    let clock: Arc<dyn Clock> = DatabaseClock::start(&pool, &shutdown).await?;
    let verifier = Arc::new(keys.verifier(Arc::clone(&clock))?);

    let holder = format!("{NAME} {}", std::process::id());
    let lease = Duration::from_millis(settings.frame.lease_ms);
    let context = Arc::new(Context::new(settings.clone()));
    let (committer, handle) = Committer::start::<Ledger>(
        committer::Settings::new(NAME, holder, lease),
        pool.clone(),
        &[BLOCKS],
        Arc::clone(&clock),
        Arc::clone(&context),
    );
    let publisher = Arc::clone(handle.publisher());
    let token = TokenSource::file(keys.token_path(NAME));
    let rm_scheduler = Client::from_list(&settings.rm_scheduler_url, token)?;
    let follow = |name| (name, rm_scheduler.clone(), &handle, &shutdown);
    follow_into(follow(MACHINES), Command::NodesUpdate);
    follow_into(follow(FAILURES), Command::FactsUpdate);
    follow_into(follow(CLEARINGS), Command::EvacuationsUpdate);

    let watch = invariants::watch(&handle);
    let auditor = Arc::clone(handle.auditor());
    let records = audit::routes(&handle, NAME);
    let records = records.merge(changes::routes(handle.publisher(), http::FEED));
    watch.spawn(shutdown.clone());
    let app = App {
        handle,
        publisher: publisher.clone(),
        pool,
        clock,
        context,
    };
    let listener = server::bind(&settings.frame)?;
    let address = listener.local_addr()?;
    let shown = publisher.clone();
    let standing = move || hayward_publication::status::service_state(&shown);
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
        .serve(router, listener, shutdown);
    Ok(Running {
        address,
        publisher,
        committer,
        server: tokio::spawn(server),
    })
}

/// API description, as stored in `openapi/blocklist.json`.
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

/// Follows one publication of rm-scheduler; each update becomes one command.
fn follow_into<T: DeserializeOwned + Send + 'static>(
    (name, client, handle, shutdown): (&'static str, Client, &Handle<Command>, &Shutdown),
    command: fn(Update<T>, Reply<()>) -> Command,
) {
    let source = Source {
        name,
        path: format!("/v1/{name}/publication"),
    };
    let (handle, publisher) = (handle.clone(), Arc::clone(handle.publisher()));
    let absorb = move |update| {
        let handle = handle.clone();
        async move {
            let done: Result<Committed<()>, _> = handle.ask(|reply| command(update, reply)).await;
            done
        }
    };
    tokio::spawn(follow(source, client, publisher, shutdown.clone(), absorb));
}
