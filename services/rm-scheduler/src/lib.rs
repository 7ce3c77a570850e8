//! rm-scheduler owns queues, accounts and allocations. It decides which work gets how much, and on
//! which node.
//!
//! It follows `nodes`, `demand`, `blocks`, `containers` and `requests`. It publishes `allocations`
//! and `verdicts`, and for placements `processors` and `closed`. A round absorbs, plans, checks and
//! commits. Planning is pure and lives in the domain crate. This crate keeps the snapshot up to
//! date, asks external planners between rounds and carries plans out. It starts no process, talks
//! to no agent and never reads from inside a process.

mod absorb;
mod command;
mod commands;
mod config;
mod context;
mod error;
mod external_planners;
mod http;
mod invariants;
mod metrics;
mod model;
mod policy;
mod publications;
mod queries;
mod queues;
mod recorder;
pub mod replay;
mod round;
mod store;
mod worker_pools;
mod working_set;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hayward_publication::follower::{Source, follow};
use hayward_publication::{Committer, DatabaseClock, Handle, Publisher, Update, committer};
use hayward_publication::{min_revision, stale};
use hayward_rm_scheduler_api::evidence::{CLEARINGS, FAILURES, MACHINES};
use hayward_rm_scheduler_api::{ALLOCATIONS, CLOSED, PROCESSORS, VERDICTS};
use hayward_service::http::server;
use hayward_service::{Client, Server, Shutdown, TokenSource, documented};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;

use command::Command;
pub use config::Settings;
use context::Context;
use http::Api;
pub use http::golden as openapi;
use queries::{snapshot_reads, view::SharedView};
use working_set::Ledger;

pub const NAME: &str = "rm-scheduler";
pub const SCHEMA: &str = "rm_scheduler";
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Connections: one of the committer, one for reading recorded rounds, one spare.
const CONNECTIONS: u32 = 3;

/// A started rm-scheduler.
pub struct Running {
    pub address: SocketAddr,
    pub publisher: Arc<Publisher>,
    committer: Committer,
    server: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Waits for the shutdown. Then it stops taking requests, commits a last time and returns the
    /// lease.
    pub async fn stopped(self) -> anyhow::Result<()> {
        let served = self.server.await?;
        self.committer.stop().await;
        served
    }
}

const PUBLISHED: &[&str] = &[
    ALLOCATIONS,
    VERDICTS,
    PROCESSORS,
    CLOSED,
    FAILURES,
    MACHINES,
    CLEARINGS,
    policy::POLICY,
];

/// Starts database, committer, followers and routes, in this order.
///
/// # Errors
///
/// A setting is wrong or missing, or the address is taken.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let keys = settings.frame.open_keys()?;
    let pool = hayward_postgres::connect(settings.frame.database_url()?, CONNECTIONS).await?;
    let clock = DatabaseClock::start(&pool, &shutdown).await?;
    let verifier = Arc::new(keys.verifier(clock.clone())?);
    let issuer = Arc::new(keys.issuer(clock.clone())?);
    let listener = server::bind(&settings.frame)?;
    let address = listener
        .local_addr()
        .context("the listener has no address")?;

    let view = RwLock::new(SharedView::default());
    let (questions, asked) = external_planners::Questions::new();
    let context = Arc::new(Context {
        settings: settings.clone(),
        view,
        snapshot_reads: snapshot_reads::SnapshotReads::default(),
        pools: worker_pools::PoolEventSignal::default(),
        questions,
    });
    let lease = Duration::from_millis(settings.frame.lease_ms);
    let holder = format!("{NAME} {address} {}", std::process::id());
    let office = committer::Settings::new(NAME, holder, lease);
    let (committer, handle) =
        Committer::start::<Ledger>(office, pool.clone(), PUBLISHED, clock, context.clone());

    let token = TokenSource::file(keys.token_path(NAME));
    let neighbours = Neighbours {
        handle: &handle,
        token,
        shutdown: &shutdown,
    };
    neighbours.follow(&settings.node_status_url, "nodes", Command::Nodes)?;
    neighbours.follow(&settings.job_converter_url, "demand", Command::Demand)?;
    neighbours.follow(&settings.blocklist_url, "blocks", Command::Blocks)?;
    neighbours.follow(
        &settings.container_manager_url,
        "containers",
        Command::Containers,
    )?;
    neighbours.follow(
        &settings.container_manager_url,
        "requests",
        Command::Requests,
    )?;

    external_planners::start(handle.clone(), asked, shutdown.clone());
    let publisher = handle.publisher().clone();
    let watch = invariants::watch(&handle);
    let auditor = Arc::clone(handle.auditor());
    watch.spawn(shutdown.clone());
    let api = Api {
        handle,
        context,
        pool,
        issuer,
    };
    let router = documented(http::routes(api, watch), http::ABOUT);
    let router = stale::mark_stale(
        min_revision::wait_for_min_revision(router, &publisher),
        &publisher,
    );
    let frame = Server::new(NAME, Some(verifier))
        .configure(&settings.frame)?
        .observe_refusals(auditor);
    let server = tokio::spawn(frame.serve(router, listener, shutdown));
    Ok(Running {
        address,
        publisher,
        committer,
        server,
    })
}

/// What every follower of this service needs.
struct Neighbours<'a> {
    handle: &'a Handle<Command>,
    token: TokenSource,
    shutdown: &'a Shutdown,
}

impl Neighbours<'_> {
    fn follow<T: DeserializeOwned + Send + 'static>(
        &self,
        urls: &str,
        name: &'static str,
        command: fn(Update<T>, hayward_publication::Reply<()>) -> Command,
    ) -> anyhow::Result<()> {
        let client = Client::from_list(urls, self.token.clone())?;
        let source = Source {
            name,
            path: format!("/v1/{name}/publication"),
        };
        let (handle, publisher) = (self.handle.clone(), self.handle.publisher().clone());
        let absorb = move |update| {
            let handle = handle.clone();
            async move { handle.ask(|reply| command(update, reply)).await }
        };
        tokio::spawn(follow(
            source,
            client,
            publisher,
            self.shutdown.clone(),
            absorb,
        ));
        Ok(())
    }
}
