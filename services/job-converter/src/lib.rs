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

static SERVICE: ServiceSpec = ServiceSpec {
    name: NAME,
    about: ABOUT,
    feed: http::FEED,
    migrator: &MIGRATOR,
    publications: &[DEMAND, JOBS, ORCHESTRATED, ORCHESTRATORS],
};

/// Starts the service; it listens when this returns.
///
/// # Errors
/// When a setting is missing or wrong, or the database or the address is not available, or a
/// manager cannot start.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let doors = Doors::new();
    let managers = doors.managers(&settings.managers);
    let mut managers = managers.context("the setting `managers`")?;
    let connections = settings.database_connections;
    let opened = SERVICE.open(&settings.frame, connections, shutdown).await?;
    let runners = opened.keys.issuer(Arc::clone(&opened.clock))?;
    let runners = Arc::new(Runners::new(runners));
    let room = Arc::new(Room::new(settings.clone()));
    let service = opened.start_committer::<Ledger>(Arc::clone(&room));

    let rm_scheduler = service.client(&settings.rm_scheduler_url)?;
    service.follow(&rm_scheduler, ALLOCATIONS, Command::Allocations);
    service.follow(&rm_scheduler, VERDICTS, Command::Verdicts);
    tokio::spawn(store::sweep::run(
        service.pool(),
        service.publisher(),
        service.background(),
    ));

    let app = App {
        handle: service.handle.clone(),
        publisher: service.publisher(),
        room,
        pool: service.pool(),
        runners,
        clock: service.clock(),
    };
    let routes = http::routes(&doors).with_state(app);
    managers.start()?;
    let running = service.serve(routes, Command::Invariants)?;
    Ok(running.on_stop(move || managers.stop()))
}

/// The description of the API, as `openapi/job-converter.json` has it.
pub fn openapi() -> String {
    SERVICE.openapi(http::routes(&Doors::new()))
}
