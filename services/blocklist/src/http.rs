//! Routes of blocklist. Each handler checks the caller, sends one command to the ledger, and maps
//! the result.

mod block_request;
mod changes;
mod evacuation;
mod evidence;
mod failures;
mod feed;
mod history;
mod items;
mod node_and_worker_blocks;
mod overview;
mod page;
mod publication;
mod route_roles;
mod strategy;

pub use self::feed::FEED;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hayward_publication::{Handle, Publisher};
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::authorization::authorize;
use hayward_service::http::idempotency::in_memory;
use hayward_service::http::limits;
use hayward_service::http::problem::Problem;
use hayward_service::http::server;
use hayward_service::runtime::clock::Clock;
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::command::Command;
use crate::context::Context;

hayward_service::refusals! {
    NotBlocked = 404, "not blocked";
    Disabled = 409, "the blocklist is disabled";
    InvalidItem = 422, "the item is invalid, or a brake prevents it";
}

/// Shared state of the handlers.
#[derive(Clone)]
pub struct App {
    pub handle: Handle<Command>,
    pub publisher: Arc<Publisher>,
    pub pool: PgPool,
    /// Clock for reads. Each read checks the end of an item itself, so that no ended item is shown
    /// even if the ledger is late.
    pub clock: Arc<dyn Clock>,
    pub context: Arc<Context>,
}

pub fn routes() -> OpenApiRouter<App> {
    let bulk_routes = in_memory::require_keys(OpenApiRouter::new().routes(routes!(
        items::list_blocks,
        items::add_block,
        items::add_blocks
    )))
    .layer(limits::bulk_body_limit());
    let long_poll_routes = OpenApiRouter::new()
        .routes(routes!(changes::list_feed_changes))
        .layer(axum::middleware::from_fn(server::long_poll));
    let routes = OpenApiRouter::new()
        .routes(routes!(overview::show_blocks))
        .routes(routes!(
            node_and_worker_blocks::show_node_block,
            node_and_worker_blocks::block_node,
            node_and_worker_blocks::unblock_node
        ))
        .routes(routes!(
            node_and_worker_blocks::show_worker_block,
            node_and_worker_blocks::block_worker,
            node_and_worker_blocks::unblock_worker
        ))
        .routes(routes!(evidence::show_evidence))
        .routes(routes!(evacuation::show_evacuation))
        .routes(routes!(failures::report_failures))
        .routes(routes!(strategy::show_strategy, strategy::set_strategy))
        .merge(long_poll_routes)
        .merge(bulk_routes)
        .routes(routes!(items::show_block, items::remove_block))
        .routes(routes!(history::list_block_changes))
        .routes(routes!(publication::follow_blocks));
    authorize(routes, route_roles::ROUTE_ROLES)
}

/// Creates the header with the revision of a write. A read that requires this revision reflects the
/// write (A11).
fn revision_header(revision: u64) -> HeaderMap {
    let name = HeaderName::from_static("hayward-revision");
    HeaderMap::from_iter([(name, HeaderValue::from(revision))])
}

/// Returns the name of the caller if it may report failures: an operator, an owner or a service.
fn require_reporter(caller: &Caller) -> Result<&str, Problem> {
    let may_report =
        |scope: &Scope| matches!(scope, Scope::Operator | Scope::Owner(_) | Scope::Service(_));
    if caller.scopes.iter().any(may_report) {
        return Ok(&caller.name);
    }
    Err(Problem::forbidden(
        "requires the scope operator, owner or service",
    ))
}
