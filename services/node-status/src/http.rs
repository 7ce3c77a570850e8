//! The routes of node-status. Handlers check who asks, ask the ledger once, and wrap the answer.

mod admission;
mod credentials;
mod drain;
mod enrolments;
mod feed;
mod heartbeat;
mod identity;
mod if_match;
mod nodes;
mod publication;

pub use self::feed::FEED;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use hayward_publication::{Handle, Publisher};
use hayward_service::auth::Issuer;
use hayward_service::http::authorization::admit;
use hayward_service::http::idempotency::Memory;
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::command::Command;
use crate::context::Context;
use crate::secret_attempts::Patience;

hayward_service::refusals! {
    NotItsAgent = 403, "not the agent of this node";
    NoNode = 404, "no such node";
}

/// What handlers need.
#[derive(Clone)]
pub struct App {
    pub handle: Handle<Command>,
    pub publisher: Arc<Publisher>,
    pub context: Arc<Context>,
    pub pool: PgPool,
    pub issuer: Arc<Issuer>,
    /// Answers that held a secret, kept in memory alone so that a repeated request gets it again.
    pub told: Arc<Memory>,
    /// How many wrong secrets are still listened to.
    pub patience: Arc<Patience>,
}

pub fn routes() -> OpenApiRouter<App> {
    let routes = OpenApiRouter::new()
        .routes(routes!(nodes::list_nodes))
        .routes(routes!(publication::follow_nodes))
        .routes(routes!(nodes::show_node, nodes::remove_node))
        .routes(routes!(nodes::vary_node))
        .routes(routes!(
            drain::show_drain,
            drain::drain_node,
            drain::cancel_drain
        ))
        .routes(routes!(identity::identify_node))
        .routes(routes!(nodes::list_node_changes))
        .routes(routes!(heartbeat::put_heartbeat))
        .routes(routes!(enrolments::create_enrolment))
        .routes(routes!(
            credentials::redeem_enrolment,
            credentials::renew_credentials
        ));
    admit(routes, admission::TABLE)
}

/// A11: what to ask for to read one's own write.
fn revision(revision: u64) -> HeaderMap {
    HeaderMap::from_iter([(
        axum::http::HeaderName::from_static("hayward-revision"),
        HeaderValue::from(revision),
    )])
}
