//! container-manager owns containers, from the order to start one to its proven end and removal.
//!
//! It follows `allocations`, `processors` and `closed` of rm-scheduler. It publishes `containers`
//! and `requests` for rm-scheduler, and `desired` (one scope per node) for the agent of that node.
//! Agents report the state of their containers. A container has the id of its allocation. External
//! controllers may move processes of services. The service never decides on which node a container
//! runs. It never calls an agent, and treats no container as ended without proof.

mod agent_reports;
mod allocation_updates;
mod command;
mod config;
mod http;
mod invariants;
mod ledger;
mod metrics;
mod model;
mod placement_state;
mod placements;
mod retention;
mod store;

use std::sync::Arc;

use hayward_container_manager_api::{CONTAINERS, DESIRED, REQUESTS};
pub use hayward_publication::service::Running;
use hayward_publication::service::ServiceSpec;
use hayward_rm_scheduler_api::{ALLOCATIONS, CLOSED, PROCESSORS};
use hayward_service::Shutdown;

use command::Command;
pub use config::Settings;
use http::Api;
use ledger::Ledger;

pub const NAME: &str = "container-manager";
pub const SCHEMA: &str = "container_manager";
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Maximum number of database connections, for the committer, readers and output.
const MAX_CONNECTIONS: u32 = 8;

static SERVICE: ServiceSpec = ServiceSpec {
    name: NAME,
    about: http::ABOUT,
    feed: http::FEED,
    migrator: &MIGRATOR,
    publications: &[CONTAINERS, DESIRED, REQUESTS],
};

/// Starts the service. It is listening when this function returns.
///
/// # Errors
/// Returns an error if a setting is invalid, or the database or the address is not available.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let opened = SERVICE
        .open(&settings.server, MAX_CONNECTIONS, shutdown)
        .await?;
    let service = opened.start_committer::<Ledger>(Arc::new(settings.limits()));

    let rm_scheduler = service.client(&settings.rm_scheduler_url)?;
    // Processors are followed first, because an allocation may belong to one.
    service.follow(&rm_scheduler, PROCESSORS, Command::ProcessorsUpdate);
    service.follow(&rm_scheduler, CLOSED, Command::ClosedNodesUpdate);
    service.follow(&rm_scheduler, ALLOCATIONS, |update, reply| {
        Command::AllocationsUpdate { update, reply }
    });
    tokio::spawn(retention::trim_periodically(
        service.pool(),
        service.publisher(),
        settings.clone(),
        service.background(),
    ));

    let api = Api {
        handle: service.handle.clone(),
        pool: service.pool(),
        output_changed: Arc::default(),
    };
    service.serve(http::routes().with_state(api), Command::CheckInvariants)
}

/// Returns the description of the API. It is checked in as `openapi/container-manager.json`.
pub fn openapi() -> String {
    SERVICE.openapi(http::routes())
}
