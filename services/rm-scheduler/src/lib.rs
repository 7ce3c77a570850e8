//! rm-scheduler owns queues, accounts and allocations. It decides how much space each piece of work
//! gets, and on which node.
//!
//! The service follows the publications `nodes`, `demand`, `blocks`, `containers` and `requests` of
//! its neighbours. It publishes `allocations`, `verdicts`, `processors`, `closed`, its policy, and
//! `failures`, `machines` and `clearings` as evidence for other services. A round absorbs, plans,
//! checks and commits. Planning is pure and lives in the domain crate. This crate keeps the
//! snapshot up to date, sends requests to external planners between rounds, and carries plans out.
//! It starts no process, and communicates neither with agents nor with processes.

mod command;
mod config;
mod context;
mod dispatch;
mod error;
mod external_planners;
mod http;
mod invariants;
mod metrics;
mod model;
mod neighbour_updates;
mod node_space;
mod policy_change;
mod policy_check;
mod pool_tree;
mod queries;
mod recorder;
pub mod replay;
mod round;
mod round_trace;
mod store;
mod tracked_snapshot;
mod translate;
mod worker_pools;
mod working_set;

use std::sync::Arc;

pub use hayward_publication::service::Running;
use hayward_publication::service::ServiceSpec;
use hayward_rm_scheduler_api::node_publications::{CLEARINGS, FAILURES, MACHINES};
use hayward_rm_scheduler_api::{ALLOCATIONS, CLOSED, PROCESSORS, VERDICTS};
use hayward_service::Shutdown;
use parking_lot::RwLock;

use command::Command;
pub use config::Settings;
use context::{
    Context, PlannerRequestSender, PoolEventSignal, shared_view::SharedView,
    snapshot_reads::SnapshotReads,
};
use http::Api;
use working_set::Ledger;

pub const NAME: &str = "rm-scheduler";
pub const SCHEMA: &str = "rm_scheduler";
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Number of database connections: one for the committer, one for reading recorded rounds, and one
/// spare.
const CONNECTIONS: u32 = 3;

/// Names of the publications of this service.
const PUBLISHED: &[&str] = &[
    ALLOCATIONS,
    VERDICTS,
    PROCESSORS,
    CLOSED,
    FAILURES,
    MACHINES,
    CLEARINGS,
    policy_check::POLICY,
];

static SERVICE: ServiceSpec = ServiceSpec {
    name: NAME,
    about: http::ABOUT,
    feed: http::FEED,
    migrator: &MIGRATOR,
    publications: PUBLISHED,
};

/// Starts the service. It accepts connections when this returns.
///
/// # Errors
///
/// Fails if a setting is missing or wrong, or if the database or the address is not available.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let opened = SERVICE
        .open(&settings.server, CONNECTIONS, shutdown)
        .await?;
    let issuer = Arc::new(opened.keys.issuer(Arc::clone(&opened.clock))?);
    let view = RwLock::new(SharedView::default());
    let (request_sender, planner_requests) = PlannerRequestSender::new();
    let context = Arc::new(Context {
        settings: settings.clone(),
        view,
        snapshot_reads: SnapshotReads::default(),
        pool_events: PoolEventSignal::default(),
        planner_requests: request_sender,
    });
    let service = opened.start_committer::<Ledger>(Arc::clone(&context));

    let node_status = service.client(&settings.node_status_url)?;
    let job_converter = service.client(&settings.job_converter_url)?;
    let blocklist = service.client(&settings.blocklist_url)?;
    let container_manager = service.client(&settings.container_manager_url)?;
    service.follow(&node_status, "nodes", Command::Nodes);
    service.follow(&job_converter, "demand", Command::Demand);
    service.follow(&blocklist, "blocks", Command::Blocks);
    service.follow(&container_manager, "containers", Command::Containers);
    service.follow(&container_manager, "requests", Command::Requests);
    external_planners::start(
        service.handle.clone(),
        planner_requests,
        service.background(),
    );

    let api = Api {
        handle: service.handle.clone(),
        context,
        pool: service.pool(),
        issuer,
    };
    service.serve(http::routes().with_state(api), Command::Invariants)
}

/// Returns the description of the API, equal to `openapi/rm-scheduler.json`.
pub fn openapi() -> String {
    SERVICE.openapi(http::routes())
}
