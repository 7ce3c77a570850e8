//! job-converter owns jobs, services and reservations. It turns them into demand and leases the
//! tasks of jobs to the processes that were granted. It records the outcome of each task exactly
//! once and publishes the state of each piece of work.
//!
//! It follows `allocations` and `verdicts` of rm-scheduler. It publishes `demand`, which
//! rm-scheduler follows, and `jobs`, one map for each user, which submitters follow.
//!
//! Waiting tasks are ranges of numbers in memory, never rows: a job of ten million tasks is one row
//! until its tasks end. job-converter never decides which work gets a node, and never starts a
//! process.

mod accounts;
mod applications;
mod command;
pub mod config;
mod error;
mod http;
mod invariants;
mod ledger;
mod manager_gates;
mod metrics;
mod orchestrators;
mod shared_state;
mod store;
mod token_issuer;
mod work;

use std::sync::Arc;

use anyhow::Context as _;
use hayward_job_converter_api::orchestrators::{ORCHESTRATED, ORCHESTRATORS};
use hayward_job_converter_api::{DEMAND, JOBS};
pub use hayward_publication::service::Running;
use hayward_publication::service::ServiceSpec;
use hayward_rm_scheduler_api::{ALLOCATIONS, VERDICTS};
use hayward_service::http::openapi::Description;
use hayward_service::runtime::shutdown::Shutdown;

use crate::command::Command;
pub use crate::config::Settings;
use crate::http::App;
use crate::ledger::Ledger;
use crate::manager_gates::ManagerGates;
use crate::shared_state::SharedState;
use crate::token_issuer::TokenIssuer;

pub const NAME: &str = "job-converter";

/// Schema of this service, and the name of its database role.
pub const SCHEMA: &str = "job_converter";

pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

const ABOUT: Description = Description {
    title: "Hayward job-converter",
    text: "Owns jobs, services and reservations: submit, watch, explain, cancel.",
};

static SERVICE: ServiceSpec = ServiceSpec {
    name: NAME,
    about: ABOUT,
    feed: http::FEED,
    migrator: &MIGRATOR,
    publications: &[DEMAND, JOBS, ORCHESTRATED, ORCHESTRATORS],
};

/// Starts the service. It listens when this function returns.
///
/// # Errors
/// Fails if a setting is missing or invalid, the database or the address is not available, or a
/// manager cannot start.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let gates = ManagerGates::new();
    let managers = gates.managers(&settings.managers);
    let mut managers = managers.context("the setting `managers`")?;
    let connections = settings.database_connections;
    let opened = SERVICE
        .open(&settings.server, connections, shutdown)
        .await?;
    let issuer = opened.keys.issuer(Arc::clone(&opened.clock))?;
    let token_issuer = Arc::new(TokenIssuer::new(issuer));
    let shared = Arc::new(SharedState::new(settings.clone()));
    let service = opened.start_committer::<Ledger>(Arc::clone(&shared));

    let rm_scheduler = service.client(&settings.rm_scheduler_url)?;
    service.follow(&rm_scheduler, ALLOCATIONS, Command::AllocationUpdate);
    service.follow(&rm_scheduler, VERDICTS, Command::VerdictUpdate);
    tokio::spawn(store::history_cleanup::run(
        service.pool(),
        service.publisher(),
        service.background(),
    ));

    let app = App {
        handle: service.handle.clone(),
        publisher: service.publisher(),
        shared,
        pool: service.pool(),
        token_issuer,
        clock: service.clock(),
    };
    let routes = http::routes(&gates).with_state(app);
    managers.start()?;
    let running = service.serve(routes, Command::CheckInvariants)?;
    Ok(running.on_stop(move || managers.stop()))
}

/// Returns the OpenAPI description, as stored in `openapi/job-converter.json`.
pub fn openapi() -> String {
    SERVICE.openapi(http::routes(&ManagerGates::new()))
}
