//! The route of the change stream, with its two forms of response.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse as _, Response};
use hayward_service::Shutdown;
use hayward_service::auth::{Requester, TokenValidity};
use hayward_service::http::authorization::authorize;
use hayward_service::http::extract::Query;
use hayward_service::http::problem::{Code, Problem};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{OpenApi, RefOr};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::reader::{EndReason, Reader, ReaderContext, Since, select_kinds};
use super::{Feed, ObjectChanges, stream};
use crate::Publisher;

/// Maximum wait of a long poll, in seconds.
const MAX_WAIT_SECONDS: u64 = 25;
/// Maximum number of batches that one request examines if none contains a visible change (A6).
const MAX_BATCHES: u32 = 5;
/// Request header with which browsers reconnect.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Pattern of the texts that [`Since::parse`] accepts.
const SINCE_PATTERN: &str = "^(now|[0-9]{1,18}|[0-9a-f]{32}-[0-9]{1,18})$";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ChangesQuery {
    /// Position after which changes are reported: the revision of a list or a write, the `cursor`
    /// of an earlier answer, the `id` of an event, or `now`.
    since: String,
    /// Kinds of objects, separated by commas; all kinds that the caller may see if absent.
    #[param(required = false, nullable = false)]
    kinds: Option<String>,
    /// Answers once, as JSON: with the first changes, or after this many seconds.
    #[param(required = false, nullable = false, maximum = 25)]
    wait: Option<u64>,
}

#[derive(Clone)]
struct ChangesState {
    feed: Feed,
    /// `None` if the route is only described.
    publisher: Option<Arc<Publisher>>,
}

pub fn router(feed: Feed, publisher: Option<Arc<Publisher>>) -> OpenApiRouter {
    let mut routes = OpenApiRouter::default().routes(routes!(follow_changes));
    describe(routes.get_openapi_mut(), feed);
    authorize(routes, feed.roles).with_state(ChangesState { feed, publisher })
}

/// Adds the kinds of this service to the description.
fn describe(document: &mut OpenApi, feed: Feed) {
    let names: Vec<_> = feed.kinds.iter().map(|kind| kind.name).collect();
    let any_kind = format!("({})", names.join("|"));
    let operations = document.paths.paths.values_mut().flat_map(|it| &mut it.get);
    for parameter in operations.flat_map(|it| it.parameters.iter_mut().flatten()) {
        let RefOr::T(parameter) = parameter else {
            continue;
        };
        if let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema {
            match parameter.name.as_str() {
                "kinds" => schema.pattern = Some(format!("^{any_kind}(,{any_kind})*$")),
                "since" | "Last-Event-ID" => schema.pattern = Some(SINCE_PATTERN.to_owned()),
                _ => {}
            }
        }
    }
}

/// Changes of the objects of this service, in order of revision, in the form of their own routes.
///
/// Server-sent events: `changed` and `removed` report an object. A `bookmark`, at least every 15
/// seconds, reports the position of the stream, also when no object has changed. The last event of
/// a commit has an `id`. After a disconnection, a client continues from it with `since` or
/// `Last-Event-ID`, and receives no earlier change again. `end` has the reason why the stream ends.
/// With `wait`, the same changes come as a long poll. The newest state of each object is reported;
/// states in between may be left out.
#[utoipa::path(
    get, path = "/v1/changes", operation_id = "follow_changes", tag = "changes",
    params(
        ChangesQuery,
        ("Last-Event-ID" = Option<String>, Header,
            description = "the `id` of the last event; replaces `since` if both are sent"),
    ),
    responses(
        (status = 200, description = "the changes, or none after the wait",
            content((ObjectChanges = "application/json"), (String = "text/event-stream"))),
        (status = 403, description = "a kind that the caller may not see", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "a revision that does not exist yet", body = Problem,
            content_type = "application/problem+json"),
        (status = 410, description = "changes since then are forgotten: read the lists, and \
            continue from their revision; `oldest_revision` is the oldest possible position",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
async fn follow_changes(
    State(state): State<ChangesState>,
    Requester { caller, headers }: Requester,
    token: Option<Extension<TokenValidity>>,
    shutdown: Option<Extension<Shutdown>>,
    Query(query): Query<ChangesQuery>,
) -> Result<Response, Problem> {
    let publisher = state.publisher.ok_or_else(Problem::standby)?;
    let kinds = select_kinds(state.feed, &caller, query.kinds.as_deref())?;
    let since = parse_since(&query, &headers)?;
    let token = token.map(|Extension(token)| token);
    let shutdown = shutdown.map(|Extension(it)| it).unwrap_or_default();
    let context = ReaderContext {
        caller,
        kinds,
        token,
        shutdown,
    };
    let reader = Reader::new(publisher, since, context).await?;
    match query.wait {
        Some(wait) => long_poll(reader, wait).await,
        None => Ok(stream::event_stream(reader)),
    }
}

fn parse_since(query: &ChangesQuery, headers: &HeaderMap) -> Result<Since, Problem> {
    if query.wait.is_some_and(|wait| wait > MAX_WAIT_SECONDS) {
        let detail = format!("at most {MAX_WAIT_SECONDS} seconds");
        return Err(Problem::new(Code::BadRequest, "too long a wait").at("/query/wait", detail));
    }
    let last_event_id = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    Since::parse(last_event_id.unwrap_or(&query.since))
}

/// Serves the long poll: returns available changes, or waits for the first one.
async fn long_poll(mut reader: Reader, wait: u64) -> Result<Response, Problem> {
    let deadline = Instant::now() + Duration::from_secs(wait);
    let mut full_batches = 0;
    loop {
        let (changes, more) = reader.next_batch().map_err(EndReason::problem)?;
        full_batches += u32::from(more);
        if !changes.is_empty()
            || full_batches >= MAX_BATCHES
            || (!more && Instant::now() >= deadline)
        {
            let body = stream::json_document(&changes, reader.position);
            let content_type = (header::CONTENT_TYPE, "application/json");
            return Ok(([content_type], Body::from(body)).into_response());
        }
        if !more {
            reader.wait(deadline).await.map_err(EndReason::problem)?;
        }
    }
}
