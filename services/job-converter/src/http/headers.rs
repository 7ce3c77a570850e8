//! Headers of requests and responses that several handlers use.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hayward_service::trace::TraceParent;

/// Returns a header with the revision of a change. A caller that waits for this revision reads its
/// own change (A11).
pub fn revision_headers(revision: u64) -> HeaderMap {
    let name = HeaderName::from_static("hayward-revision");
    HeaderMap::from_iter([(name, HeaderValue::from(revision))])
}

/// Returns the entity tag of a generation.
pub fn etag(generation: u64) -> HeaderValue {
    let text = format!("\"{generation}\"");
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

/// Returns the W3C trace context of this request, or the one that the caller sent.
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
