//! blocklist stores which nodes and workers must be avoided, why, until when, and whether running
//! work is evacuated.
//!
//! The service owns items, remembered removals, the history of items, and the facts about failures.
//! It publishes `blocks`, which only rm-scheduler follows, and follows `failures`, `machines` and
//! `clearings` of rm-scheduler.
//!
//! Items of one key merge into one, in any order of arrival. Readers check the end of an item
//! themselves, and the ledger publishes the change afterwards. A strategy blocks nodes
//! automatically because of failures on them. Such a block is followed by a trial, in which the
//! node must prove that it works.
//!
//! The service never starts, stops or moves work.

mod command;
mod config;
mod context;
mod error;
mod http;
mod ledger;
mod metrics;
mod model;
mod scheduler_updates;
mod store;
mod strategy;
mod view;

use std::sync::Arc;

use hayward_blocklist_api::BLOCKS;
pub use hayward_publication::service::Running;
use hayward_publication::service::ServiceSpec;
use hayward_rm_scheduler_api::node_publications::{CLEARINGS, FAILURES, MACHINES};
use hayward_service::http::openapi::Description;
use hayward_service::runtime::shutdown::Shutdown;

use crate::command::Command;
pub use crate::config::{DefaultEvacuation, Settings};
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
    text: "Stores the nodes and workers that must be avoided, each with its cause and its end.",
};
/// Maximum number of database connections, for the committer and for reads of the history.
const MAX_CONNECTIONS: u32 = 4;

static SERVICE: ServiceSpec = ServiceSpec {
    name: NAME,
    about: ABOUT,
    feed: http::FEED,
    migrator: &MIGRATOR,
    publications: &[BLOCKS],
};

/// Starts the service. It is listening when this function returns.
///
/// # Errors
/// Returns an error if a setting is invalid, or the database or the address is not available.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    settings.validate()?;
    let opened = SERVICE
        .open(&settings.server, MAX_CONNECTIONS, shutdown)
        .await?;
    let context = Arc::new(Context::new(settings.clone()));
    let service = opened.start_committer::<Ledger>(Arc::clone(&context));

    let rm_scheduler = service.client(&settings.rm_scheduler_url)?;
    service.follow(&rm_scheduler, MACHINES, Command::NodesUpdate);
    service.follow(&rm_scheduler, FAILURES, Command::FactsUpdate);
    service.follow(&rm_scheduler, CLEARINGS, Command::EvacuationsUpdate);

    let app = App {
        handle: service.handle.clone(),
        publisher: service.publisher(),
        pool: service.pool(),
        clock: service.clock(),
        context,
    };
    service.serve(http::routes().with_state(app), Command::CheckInvariants)
}

/// Returns the description of the API. It is checked in as `openapi/blocklist.json`.
pub fn openapi() -> String {
    SERVICE.openapi(http::routes())
}
