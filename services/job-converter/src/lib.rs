//! job-converter owns jobs, services and reservations. It turns them into demand, leases the tasks
//! of jobs to the processes that were granted, records how each task ended, exactly once, and tells
//! users in their own words how their work stands.
//!
//! It follows `allocations` and `verdicts` of rm-scheduler. It publishes `demand`, which
//! rm-scheduler follows, and `jobs`, a map per user, which submitters follow.
//!
//! What waits is kept as ranges of numbers and never as rows: a job of ten million tasks is one row
//! until its tasks end. It never decides who gets a machine, and never starts anything.

mod applications;
mod command;
pub mod config;
mod error;
mod http;
mod invariants;
mod ledger;
mod managers;
mod metrics;
mod model;
mod orchestrators;
mod runner_tokens;
mod shared_view;
mod store;
mod work;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hayward_job_converter_api::orchestrators::{ORCHESTRATED, ORCHESTRATORS};
use hayward_job_converter_api::{DEMAND, JOBS};
use hayward_job_converter_application_protocol::managers::Managers;
use hayward_publication::follower::{Source, follow};
use hayward_publication::{Committer, DatabaseClock, Handle, Publisher, audit, changes, committer};
use hayward_publication::{min_revision, stale};
use hayward_rm_scheduler_api::{ALLOCATIONS, VERDICTS};
use hayward_service::auth::Keys;
use hayward_service::client::{Client, TokenSource};
use hayward_service::health::{Health, ServiceState};
use hayward_service::http::openapi::{Description, documented, golden};
use hayward_service::http::server::{self, Server};
use hayward_service::invariants::InvariantMonitor;
use hayward_service::runtime::clock::Clock;
use hayward_service::runtime::shutdown::Shutdown;
use utoipa_axum::router::OpenApiRouter;

use crate::command::Command;
pub use crate::config::Settings;
use crate::http::App;
use crate::ledger::Ledger;
use crate::managers::Doors;
use crate::runner_tokens::Runners;
use crate::shared_view::Room;

pub const NAME: &str = "job-converter";

/// The schema of this service, and the role it works as.
pub const SCHEMA: &str = "job_converter";

pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

const ABOUT: Description = Description {
    title: "Hayward job-converter",
    text: "Owns jobs, services and reservations: submit, watch, explain, cancel.",
};

/// A service that runs.
pub struct Running {
    pub address: SocketAddr,
    pub publisher: Arc<Publisher>,
    committer: Committer,
    managers: Managers,
    server: tokio::task::JoinHandle<anyhow::Result<()>>,
    /// Ends the followers and the sweeper.
    rest: Shutdown,
}

impl Running {
    /// Returns after the shutdown, when every request is answered and the lease is given back.
    ///
    /// # Errors
    /// When the server could not go on.
    pub async fn stopped(mut self) -> anyhow::Result<()> {
        let served = self.server.await.context("the server did not end in order");
        self.managers.stop();
        self.rest.begin();
        self.committer.stop().await;
        served?
    }

    /// Ends without giving anything back, as a crash would.
    pub fn kill(self) {
        self.server.abort();
        self.rest.begin();
        self.committer.kill();
    }
}

/// Starts the service; it listens when this returns.
///
/// # Errors
/// When a setting is missing or wrong, the database or the address cannot be had, or a manager
/// cannot start.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let doors = Doors::new();
    let managers = doors.managers(&settings.managers);
    let mut managers = managers.context("the setting `managers`")?;
    let keys = settings.frame.open_keys()?;
    let connections = settings.database_connections;
    let pool = hayward_postgres::connect(settings.frame.database_url()?, connections).await?;
    let clock: Arc<dyn Clock> = DatabaseClock::start(&pool, &shutdown).await?;
    let verifier = Arc::new(keys.verifier(Arc::clone(&clock))?);
    let runners = Arc::new(Runners::new(keys.issuer(Arc::clone(&clock))?));

    let room = Arc::new(Room::new(settings.clone()));
    let lease = Duration::from_millis(settings.frame.lease_ms);
    let (committer, handle) = Committer::start::<Ledger>(
        committer::Settings::new(NAME, format!("{NAME} {}", std::process::id()), lease),
        pool.clone(),
        &[DEMAND, JOBS, ORCHESTRATED, ORCHESTRATORS],
        Arc::clone(&clock),
        Arc::clone(&room),
    );
    let publisher = Arc::clone(handle.publisher());
    let rest = shutdown.child();
    follow_scheduler(&settings, &keys, &handle, &rest)?;
    tokio::spawn(store::sweep::run(
        pool.clone(),
        publisher.clone(),
        rest.clone(),
    ));

    let watch = invariants::watch(&handle);
    let auditor = Arc::clone(handle.auditor());
    let records = audit::routes(&handle, NAME);
    let records = records.merge(changes::routes(handle.publisher(), http::FEED));
    watch.spawn(rest.clone());
    let app = App {
        handle,
        publisher: publisher.clone(),
        room,
        pool,
        runners,
        clock,
    };
    let listener = server::bind(&settings.frame)?;
    let address = listener.local_addr()?;
    let standing = Arc::clone(&publisher);
    let standing = move || hayward_publication::status::service_state(&standing);
    let health = Health::new(NAME, Arc::new(standing)).schema(hayward_postgres::newest(&MIGRATOR));
    let routes = http::routes(&doors).with_state(app);
    let routes = routes.merge(health.routes()).merge(watch.routes());
    let router = documented(routes.merge(records), ABOUT);
    let router = stale::mark_stale(
        min_revision::wait_for_min_revision(router, &publisher),
        &publisher,
    );
    managers.start()?;
    let server = Server::new(NAME, Some(verifier))
        .configure(&settings.frame)?
        .observe_refusals(auditor)
        .serve(router, listener, shutdown);
    Ok(Running {
        address,
        publisher,
        committer,
        managers,
        server: tokio::spawn(server),
        rest,
    })
}

/// Both publications of rm-scheduler, each with its own long poll.
fn follow_scheduler(
    settings: &Settings,
    keys: &Keys,
    handle: &Handle<Command>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let token = TokenSource::file(keys.token_path(NAME));
    let client = Client::from_list(&settings.rm_scheduler_url, token)?;
    let source = |name: &'static str| Source {
        name,
        path: format!("/v1/{name}/publication"),
    };
    let (publisher, ask) = (handle.publisher().clone(), handle.clone());
    tokio::spawn(follow(
        source(ALLOCATIONS),
        client.clone(),
        publisher.clone(),
        shutdown.clone(),
        move |update| {
            let ask = ask.clone();
            async move { ask.ask(|reply| Command::Allocations(update, reply)).await }
        },
    ));
    let ask = handle.clone();
    tokio::spawn(follow(
        source(VERDICTS),
        client,
        publisher,
        shutdown.clone(),
        move |update| {
            let ask = ask.clone();
            async move { ask.ask(|reply| Command::Verdicts(update, reply)).await }
        },
    ));
    Ok(())
}

/// The description of the API as it is kept in `openapi/job-converter.json`.
pub fn openapi() -> String {
    let health = Health::new(NAME, Arc::new(ServiceState::default));
    // Only the descriptions are looked at, and those need no state.
    let (_, document) = http::routes(&Doors::new()).split_for_parts();
    golden(
        OpenApiRouter::with_openapi(document)
            .merge(health.routes())
            .merge(InvariantMonitor::described(NAME).routes())
            .merge(audit::described(NAME))
            .merge(changes::described(http::FEED)),
        ABOUT,
    )
}
