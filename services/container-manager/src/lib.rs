//! container-manager owns containers, from the order to start one to its proven end and removal.
//!
//! It follows `allocations`, `processors` and `closed` of rm-scheduler. It publishes `containers` and
//! `requests` for rm-scheduler, and `desired` (one scope per node) for the agent of that node. Agents
//! report the state of their containers. A container has the id of its allocation. External
//! controllers may move processes of services. The service never decides what runs where, never calls
//! an agent, and treats no container as ended without proof.

mod absorb;
mod command;
mod config;
mod http;
mod invariants;
mod ledger;
mod metrics;
mod model;
mod placement_state;
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
use hayward_publication::{min_revision, stale};
use hayward_rm_scheduler_api::{ALLOCATIONS, CLOSED, PROCESSORS};
use hayward_service::http::server;
use hayward_service::{Client, Server, Shutdown, TokenSource, documented};
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

/// Database connections of the committer, readers and output.
const CONNECTIONS: u32 = 8;

/// A started container-manager.
pub struct Running {
    pub address: SocketAddr,
    pub publisher: Arc<Publisher>,
    committer: Committer,
    server: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Waits for the shutdown, then stops serving, commits for the last time and releases the lease.
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
    let clock = DatabaseClock::start(&pool, &shutdown).await?;
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
    let upstream = Upstream {
        client: &rm_scheduler,
        handle: &handle,
        shutdown: &shutdown,
    };
    // Before allocations, because those refer to processors.
    upstream.follow(PROCESSORS, Command::Processors);
    upstream.follow(CLOSED, Command::Closed);
    upstream.follow(ALLOCATIONS, |update, reply| Command::Allocations {
        update,
        reply,
    });
    tokio::spawn(trim::trim_periodically(
        pool.clone(),
        publisher.clone(),
        settings.clone(),
        shutdown.clone(),
    ));

    let watch = invariants::watch(&handle);
    let auditor = Arc::clone(handle.auditor());
    watch.spawn(shutdown.clone());
    let api = Api {
        handle,
        pool,
        output_changed: Arc::default(),
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

/// rm-scheduler, whose publications are followed.
struct Upstream<'a> {
    client: &'a Client,
    handle: &'a Handle<Command>,
    shutdown: &'a Shutdown,
}

impl Upstream<'_> {
    fn follow<T: DeserializeOwned + Send + 'static>(
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
