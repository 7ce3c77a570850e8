//! Health routes: `/livez`, `/readyz` and `/v1/status` (A12).

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::Caller;
use crate::config::insecure_modes::InsecureModes;
use crate::http::authorization::{Role, RouteRoles, authorize};
use crate::http::extract::Json;

/// Roles of the routes. Without a token, only the two probes respond (S1).
const ROUTE_ROLES: RouteRoles = &[
    ("livez", &[Role::Anyone]),
    ("readyz", &[Role::Anyone]),
    ("show_status", &[Role::Authenticated]),
];

/// State of a service, reported by the service itself.
#[derive(Debug, Clone, Default)]
pub struct ServiceState {
    /// Reasons why the service is not ready. Empty if it is ready.
    pub not_ready: Vec<String>,
    /// Epoch of the writer's lease that the service last held or saw.
    pub epoch: Option<u64>,
    pub leader: bool,
    /// Newest committed revision.
    pub revision: Option<u64>,
    pub followers: Vec<FollowerStatus>,
    /// Insecure modes in addition to those of the server.
    pub insecure_modes: Vec<String>,
}

/// State of a followed publication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FollowerStanding)]
pub struct FollowerStatus {
    /// Name of the publication.
    pub publication: String,
    /// Milliseconds since the publisher last proved to be alive; absent before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
    /// True if the publisher has been silent for so long that its entries may be outdated.
    pub stale: bool,
    /// Position up to which the publication was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The last fault, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Source of the state of a service.
pub trait StatusSource: Send + Sync {
    fn state(&self) -> ServiceState;
}

impl<F: Fn() -> ServiceState + Send + Sync> StatusSource for F {
    fn state(&self) -> ServiceState {
        self()
    }
}

/// Handler of the health routes.
#[derive(Clone)]
pub struct Health {
    /// Name of the service.
    pub name: &'static str,
    pub version: &'static str,
    pub started: Instant,
    pub source: Arc<dyn StatusSource>,
    /// The newest migration that this version knows.
    pub schema: Option<u64>,
}

impl Health {
    pub fn new(name: &'static str, source: Arc<dyn StatusSource>) -> Self {
        Self {
            name,
            version: env!("CARGO_PKG_VERSION"),
            started: Instant::now(),
            source,
            schema: None,
        }
    }

    #[must_use]
    pub fn with_schema(mut self, newest: Option<u64>) -> Self {
        self.schema = newest;
        self
    }

    /// Returns the three routes. The service merges them into its own.
    pub fn routes(self) -> OpenApiRouter {
        let routes = OpenApiRouter::default()
            .routes(routes!(livez))
            .routes(routes!(readyz))
            .routes(routes!(status));
        authorize(routes, ROUTE_ROLES).with_state(self)
    }
}

/// Answer of a probe.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Word)]
pub struct ProbeResponse {
    /// `alive`, `ready` or `not_ready`.
    #[schema(examples("ready"))]
    pub status: String,
    /// Reasons why it does not serve; only for callers with a valid token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<Vec<String>>,
}

fn probe_response(status: &str) -> Json<ProbeResponse> {
    Json(ProbeResponse {
        status: status.to_owned(),
        not_ready: None,
    })
}

/// Liveness: answers as long as the process runs.
#[utoipa::path(
    get, path = "/livez", operation_id = "livez", tag = "health", security(()),
    responses((status = 200, description = "the process runs", body = ProbeResponse)),
)]
async fn livez() -> Json<ProbeResponse> {
    probe_response("alive")
}

/// Readiness: whether this replica can serve. With a valid token, the answer has the reasons why it
/// cannot.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readyz", tag = "health", security(()),
    responses(
        (status = 200, description = "this replica can serve", body = ProbeResponse),
        (status = 503, description = "this replica cannot serve now", body = ProbeResponse),
    ),
)]
async fn readyz(State(health): State<Health>, caller: Option<Extension<Caller>>) -> Response {
    let reasons = health.source.state().not_ready;
    let (status, text) = if reasons.is_empty() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
    };
    // Without a token the response has no details (S1).
    let Json(response) = probe_response(text);
    let not_ready = caller.map(|_| reasons);
    (
        status,
        Json(ProbeResponse {
            not_ready,
            ..response
        }),
    )
        .into_response()
}

/// Status of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub name: String,
    pub version: String,
    /// Version of the tables: the newest migration that this version of the service knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<u64>,
    /// Milliseconds since this process started the service.
    pub uptime_ms: u64,
    pub ready: bool,
    /// Reasons why it does not serve.
    pub not_ready: Vec<String>,
    /// True when this replica holds the writer's lease.
    pub leader: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    pub followers: Vec<FollowerStatus>,
    /// Every mode that is less safe than the default (S3).
    pub insecure_modes: Vec<String>,
}

/// State of this replica: version, lease, revision, lag, insecure modes.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "show_status", tag = "health",
    responses(
        (status = 200, description = "the state of this replica", body = Status),
    ),
)]
async fn status(
    State(health): State<Health>,
    _caller: Caller,
    modes: Option<Extension<InsecureModes>>,
) -> Json<Status> {
    let state = health.source.state();
    let mut insecure_modes = modes.map_or_else(Vec::new, |modes| modes.0.0.to_vec());
    insecure_modes.extend(state.insecure_modes);
    Json(Status {
        name: health.name.to_owned(),
        version: health.version.to_owned(),
        schema: health.schema,
        uptime_ms: u64::try_from(health.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        ready: state.not_ready.is_empty(),
        not_ready: state.not_ready,
        leader: state.leader,
        epoch: state.epoch,
        revision: state.revision,
        followers: state.followers,
        insecure_modes,
    })
}
