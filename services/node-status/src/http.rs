//! Routes of node-status. Each handler checks the caller, sends one command to the ledger, and
//! converts the result.

mod credentials;
mod drain;
mod enrolments;
mod feed;
mod heartbeat;
mod identity;
mod if_match;
mod node_change_request;
mod nodes;
mod publication;
mod route_roles;

pub use self::feed::FEED;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use hayward_publication::{Handle, Publisher};
use hayward_service::auth::Issuer;
use hayward_service::http::authorization::authorize;
use hayward_service::http::idempotency::KeyStore;
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::command::Command;
use crate::context::Context;
use crate::secret_attempts::SecretAttempts;

// Error responses of several routes, for the description of the API.
hayward_service::refusals! {
    NotItsAgent = 403, "not the agent of this node";
    NoNode = 404, "unknown node";
}

/// Shared state of the handlers.
#[derive(Clone)]
pub struct App {
    pub handle: Handle<Command>,
    pub publisher: Arc<Publisher>,
    pub context: Arc<Context>,
    pub pool: PgPool,
    pub issuer: Arc<Issuer>,
    /// Responses with the secret of an enrolment, so that a repeated request gets the same secret.
    /// They are only in memory, because secrets are not stored.
    pub enrolment_responses: Arc<KeyStore>,
    /// Limit on attempts with wrong secrets.
    pub secret_attempts: Arc<SecretAttempts>,
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
    authorize(routes, route_roles::ROUTE_ROLES)
}

/// Returns the header with the revision of a write. A read that requests the revision reflects the
/// write (A11).
fn revision_header(revision: u64) -> HeaderMap {
    HeaderMap::from_iter([(
        axum::http::HeaderName::from_static("hayward-revision"),
        HeaderValue::from(revision),
    )])
}
