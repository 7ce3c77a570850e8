//! container-manager owns containers: from the order to start one to its proven end and burial.
//!
//! It follows `allocations`, `processors` and `closed` of rm-scheduler, and publishes
//! `containers` and `requests` for it and `desired`, one scope per node, for that node's agent,
//! whose reports tell what became of the orders. A container bears the id of its allocation.
//! Outside controllers order processes of services to be moved. It never decides what runs where,
//! never calls an agent, and believes nothing gone before that is proven.

mod absorb;
mod bells;
mod command;
mod config;
mod http;
mod invariants;
mod ledger;
mod metrics;
mod model;
mod placements;
mod reports;
mod store;
mod trim;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hayward_container_manager_api::{CONTAINERS, DESIRED, REQUESTS};
use hayward_publication::follower::{Source, follow};
use hayward_publication::{Committer, DatabaseClock, Handle, Publisher, Reply, Update, committer};
use hayward_publication::{seen, stale};
use hayward_rm_scheduler_api::{ALLOCATIONS, CLOSED, PROCESSORS};
use hayward_service::http::server;
use hayward_service::{Client, Frame, Shutdown, TokenSource, documented};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use command::Command;
pub use config::Settings;
use http::Api;
pub use http::golden as openapi;
use ledger::Ledger;

pub const NAME: &str = "container-manager";
pub const SCHEMA: &str = "container_manager";
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Connections: the committer's, and those of readers and of output.
const CONNECTIONS: u32 = 8;

/// A started container-manager.
pub struct Running {
    pub address: SocketAddr,
    pub publisher: Arc<Publisher>,
    committer: Committer,
    server: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Waits for the shutdown, then ends in order: no more requests, last commit, lease back.
    ///
    /// # Errors
    /// When the server could not serve.
    pub async fn stopped(self) -> anyhow::Result<()> {
        let served = self.server.await?;
        self.committer.stop().await;
        served
    }
}

/// Starts the service: database, committer, follower, routes, in this order.
///
/// # Errors
/// When a setting is wrong or missing, or the address is taken.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let keys = settings.frame.open_keys()?;
    let pool = hayward_postgres::connect(settings.frame.database_url()?, CONNECTIONS).await?;
    let clock = DatabaseClock::of(&pool, &shutdown).await?;
    let verifier = Arc::new(keys.verifier(clock.clone())?);
    let listener = server::bind(&settings.frame)?;
    let address = listener
        .local_addr()
        .context("the listener has no address")?;

    let lease = Duration::from_millis(settings.frame.lease_ms);
    let holder = format!("{NAME} {address} {}", std::process::id());
    let office = committer::Settings::new(NAME, holder, lease);
    let (committer, handle) = Committer::start::<Ledger>(
        office,
        pool.clone(),
        &[CONTAINERS, DESIRED, REQUESTS],
        clock,
        Arc::new(settings.limits()),
    );
    let publisher = handle.publisher().clone();

    let token = TokenSource::file(keys.token_path(NAME));
    let rm_scheduler = Client::from_list(&settings.rm_scheduler_url, token)?;
    let above = (&rm_scheduler, &handle, &shutdown);
    // Who is a process of what, before what was granted to it.
    follow_above(above, PROCESSORS, Command::Processors);
    follow_above(above, CLOSED, Command::Closed);
    follow_above(above, ALLOCATIONS, |update, reply| Command::Allocations {
        update,
        reply,
    });
    tokio::spawn(trim::keep_bounded(
        pool.clone(),
        publisher.clone(),
        settings.clone(),
        shutdown.clone(),
    ));

    let watch = invariants::watch(&handle);
    let auditor = Arc::clone(handle.auditor());
    watch.keep(shutdown.clone());
    let api = Api {
        handle,
        pool,
        bells: Arc::default(),
    };
    let router = documented(http::routes(api, watch), http::ABOUT);
    let router = stale::marked(seen::awaited(router, &publisher), &publisher);
    let frame = Frame::new(NAME, Some(verifier))
        .set(&settings.frame)?
        .witness(auditor);
    let server = tokio::spawn(frame.serve(router, listener, shutdown));
    Ok(Running {
        address,
        publisher,
        committer,
        server,
    })
}

/// Follows a publication of rm-scheduler.
fn follow_above<T: DeserializeOwned + Send + 'static>(
    (client, handle, shutdown): (&Client, &Handle<Command>, &Shutdown),
    name: &'static str,
    command: fn(Update<T>, Reply<()>) -> Command,
) {
    let source = Source {
        name,
        path: format!("/v1/{name}/publication"),
    };
    let (handle, publisher) = (handle.clone(), handle.publisher().clone());
    let absorb = move |update| {
        let handle = handle.clone();
        async move { handle.ask(|reply| command(update, reply)).await }
    };
    let client = client.clone();
    tokio::spawn(follow(source, client, publisher, shutdown.clone(), absorb));
}
