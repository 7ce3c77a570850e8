//! Parts of requests and responses that several handlers share.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hayward_job_converter_api::orchestrators::{ORCHESTRATORS, OrchestratorView};
use hayward_service::auth::Caller;
use hayward_service::http::problem::Problem;
use hayward_service::trace::TraceParent;
use serde::Serialize;

use super::App;

/// Returns a header with the revision of a change. A caller that waits for this revision reads its
/// own change (A11).
pub fn revision_headers(revision: u64) -> HeaderMap {
    let name = HeaderName::from_static("hayward-revision");
    HeaderMap::from_iter([(name, HeaderValue::from(revision))])
}

pub fn etag(generation: u64) -> HeaderValue {
    let text = format!("\"{generation}\"");
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

pub fn to_json<T: Serialize>(submission: &T) -> Result<String, Problem> {
    serde_json::to_string(submission).map_err(Problem::internal)
}

/// Trace context of this request; else the one its sender gave.
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    if let Some(current) = TraceParent::current() {
        return Some(current.to_string());
    }
    let header = headers.get("traceparent");
    header
        .and_then(|value| value.to_str().ok())
        .filter(|text| text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_graphic()))
        .map(str::to_owned)
}

/// A token that acts for a user is accepted only while the orchestrator may charge that user.
pub fn check_actor(app: &App, caller: &Caller) -> Result<(), Problem> {
    let Some(actor) = &caller.actor else {
        return Ok(());
    };
    let name = actor.strip_prefix("orchestrator-").unwrap_or(actor);
    let view: Option<OrchestratorView> = app.publisher.get(ORCHESTRATORS, "", name);
    let is_listed = |view: OrchestratorView| {
        view.anyone || view.users.iter().any(|user| user.as_str() == caller.name)
    };
    if view.is_some_and(is_listed) {
        return Ok(());
    }
    let detail = format!("{actor} is not listed for {} any more", caller.name);
    Err(Problem::forbidden(detail))
}
