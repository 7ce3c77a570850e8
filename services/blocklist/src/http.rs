//! The routes of blocklist. Handlers check who asks, ask the ledger once, and wrap the answer.

mod draft;
mod history;
mod items;
mod page;
mod publication;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hayward_publication::{Handle, Publisher};
use hayward_service::clock::Clock;
use hayward_service::limits;
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::Command;

/// What handlers need.
#[derive(Clone)]
pub struct App {
    pub handle: Handle<Command>,
    pub publisher: Arc<Publisher>,
    pub pool: PgPool,
    /// Lookups test the end too, so that expiry is exact even when the sweeper is late.
    pub clock: Arc<dyn Clock>,
}

pub fn routes() -> OpenApiRouter<App> {
    let bulk = OpenApiRouter::new()
        .routes(routes!(
            items::list_blocks,
            items::add_block,
            items::add_blocks
        ))
        .layer(limits::bulk());
    OpenApiRouter::new()
        .merge(bulk)
        .routes(routes!(items::show_block, items::remove_block))
        .routes(routes!(history::list_block_changes))
        .routes(routes!(publication::follow_blocks))
}

/// A11: what to ask for to read one's own write.
fn revision(revision: u64) -> HeaderMap {
    let name = HeaderName::from_static("hayward-revision");
    HeaderMap::from_iter([(name, HeaderValue::from(revision))])
}
