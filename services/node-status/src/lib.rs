//! node-status stores which nodes exist, and their health.
//!
//! It owns nodes, their health, their drains, whether an operator varied them off, the history of
//! these, and the enrolment of agents. Agents send heartbeats to it. It publishes `nodes`, which
//! rm-scheduler follows. It follows `clearings` of rm-scheduler to detect that a node is empty, and
//! `machines` to count nodes in their pools by policy.
//!
//! An unchanged heartbeat changes only memory and commits nothing. A node becomes lost only by its
//! silence, by the monotonic clock of this process, and never by an outage of this service.
//!
//! The service does not start work, and stores no data of work.

mod command;
mod command_handlers;
mod config;
mod context;
mod error;
mod health_judgement;
mod heartbeats;
mod http;
mod invariants;
mod ledger;
mod metrics;
mod model;
mod scheduler_publications;
mod secret_attempts;
mod state_conversions;
mod store;

use std::sync::Arc;

use axum::http::Method;
use hayward_node_status_api::NODES;
pub use hayward_publication::service::Running;
use hayward_publication::service::ServiceSpec;
use hayward_rm_scheduler_api::node_publications::{CLEARINGS, MACHINES};
use hayward_service::http::idempotency::KeyStore;
use hayward_service::http::openapi::Description;
use hayward_service::runtime::shutdown::Shutdown;

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
    text: "Knows the nodes of the fleet and their health.",
};
/// Maximum number of database connections: one commits, the others read history.
const MAX_CONNECTIONS: u32 = 4;
/// Maximum number of responses with a secret in memory.
const MAX_ENROLMENT_RESPONSES: usize = 1024;

static SERVICE: ServiceSpec = ServiceSpec {
    name: NAME,
    about: ABOUT,
    feed: http::FEED,
    migrator: &MIGRATOR,
    publications: &[NODES],
};

/// Starts the service. It listens when this function returns.
///
/// # Errors
/// When a setting is missing or wrong, or the database or the address is not available.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let limits = settings.limits()?;
    let guards = settings.guards()?;
    let heartbeat_period = settings.heartbeat_period()?;
    let lease_ms = settings.lease_ms()?;
    let opened = SERVICE
        .open(&settings.server, MAX_CONNECTIONS, shutdown)
        .await?;
    let issuer = Arc::new(opened.keys.issuer(Arc::clone(&opened.clock))?);
    let heartbeats = Heartbeats::default();
    let context = Arc::new(Context {
        heartbeats,
        limits,
        guards,
        heartbeat_period,
        lease_ms,
    });
    let service = opened.start_committer::<Ledger>(Arc::clone(&context));

    let rm_scheduler = service.client(&settings.rm_scheduler_url)?;
    service.follow(&rm_scheduler, CLEARINGS, |update, reply| {
        Command::Clearings { update, reply }
    });
    service.follow(&rm_scheduler, MACHINES, |update, reply| Command::Machines {
        update,
        reply,
    });

    let app = App {
        handle: service.handle.clone(),
        publisher: service.publisher(),
        context,
        pool: service.pool(),
        issuer,
        enrolment_responses: Arc::new(KeyStore::new(MAX_ENROLMENT_RESPONSES)),
        secret_attempts: Arc::new(SecretAttempts::default()),
    };
    service
        .open_route(Method::POST, "/v1/nodes/{node}/credentials")
        .serve(http::routes().with_state(app), Command::Invariants)
}

/// Returns the description of the API in `openapi/node-status.json`.
pub fn openapi() -> String {
    SERVICE.openapi(http::routes())
}
