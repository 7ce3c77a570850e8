//! Request id, span and metrics of every request. Problem documents get the ids on their way out
//! (A13).

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::metrics::catalogue::{
    HTTP_SERVER_DURATION, IS_LONG_POLL, METHOD, ROUTE, SERVICE, STATUS,
};
use crate::problem::Problem;
use crate::runtime::clock::fresh_uuid;
use crate::telemetry::LOG_ONLY_TARGET;
use crate::trace;

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static CURRENT_ID: Box<str>;
}

/// Returns the id of the request of this task. Outgoing calls pass it on.
pub fn current_id() -> Option<String> {
    CURRENT_ID.try_with(|id| String::from(&**id)).ok()
}

/// Returns the request id that the client sent if it has 1–64 safe characters. Otherwise returns a
/// new id (A13).
fn request_id_of(headers: &HeaderMap) -> String {
    let client_id = headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok());
    let is_safe = |id: &&str| {
        (1..=64).contains(&id.len())
            && id
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    client_id
        .filter(is_safe)
        .map_or_else(|| fresh_uuid().simple().to_string(), str::to_owned)
}

/// Marker of the response of a long poll. Its duration is not a latency.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongPolled;

/// Returns whether nodes and other services send such requests all the time. These requests are
/// logged, but traced only if the client has a trace.
fn is_routine(route: &str, headers: &HeaderMap) -> bool {
    let suffixes = [
        "/publication",
        "/heartbeat",
        "/report",
        "/output",
        "/leases",
        "/reports",
        "/livez",
        "/readyz",
    ];
    suffixes.iter().any(|suffix| route.ends_with(suffix)) && !headers.contains_key("traceparent")
}

/// Creates the span of a request. Spans of routine requests are for the log only.
fn span_of(service: &'static str, request: &Request, route: &str, id: &str) -> Span {
    macro_rules! span {
        ($target:expr) => {
            tracing::info_span!(
                target: $target,
                "request",
                otel.name = format!("{} {route}", request.method()),
                otel.kind = "server",
                hayward.service = service,
                http.request.method = %request.method(),
                http.route = route,
                http.response.status_code = tracing::field::Empty,
                otel.status_code = tracing::field::Empty,
                request_id = id,
                actor = tracing::field::Empty,
                subject = tracing::field::Empty,
            )
        };
    }
    if is_routine(route, request.headers()) {
        span!(LOG_ONLY_TARGET)
    } else {
        span!("hayward::request")
    }
}

/// Measures a request. Clients choose methods and paths, so neither is used as a label unchecked
/// (T3).
fn record_metrics(
    service: &'static str,
    method: &Method,
    route: String,
    response: &Response,
    started: Instant,
) {
    let standard_methods = [
        Method::GET,
        Method::PUT,
        Method::POST,
        Method::DELETE,
        Method::PATCH,
        Method::HEAD,
        Method::OPTIONS,
    ];
    let method = standard_methods.iter().find(|known| *known == method);
    let method = method.map_or("_OTHER", Method::as_str).to_owned();
    let is_long_poll = response.extensions().get::<LongPolled>().is_some();
    let attributes = [
        SERVICE.with(service),
        METHOD.with(method),
        ROUTE.with(route),
        STATUS.with(i64::from(response.status().as_u16())),
        IS_LONG_POLL.with(if is_long_poll { "true" } else { "false" }),
    ];
    HTTP_SERVER_DURATION.record_duration(started.elapsed(), &attributes);
}

/// Opens the span with the parent from `traceparent`, sets the request id, and writes the ids into
/// problem documents. This is the outermost middleware.
pub async fn with_request_context(service: &'static str, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id_of(request.headers());
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("unmatched", MatchedPath::as_str)
        .to_owned();
    let span = span_of(service, &request, &route, &id);
    let parent = trace::extract_context(request.headers());
    // This fails for a span that is not exported.
    let _ = span.set_parent(parent.clone());
    let context = trace_context(&span, parent, &id);
    let path = request.uri().path().to_owned();
    let method = request.method().clone();

    let response = CURRENT_ID.scope(id.clone().into_boxed_str(), next.run(request));
    let mut response = response.instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.request_id = Some(id.clone().into());
        problem.instance = Some(path.into());
        let trace_id = context.span().span_context().trace_id();
        problem.trace_id = Some(trace_id.to_string().into());
        let mut rendered = problem.render();
        for (name, value) in response.headers() {
            // This preserves headers that other layers added, such as `allow`.
            if name != http::header::CONTENT_LENGTH {
                rendered.headers_mut().insert(name.clone(), value.clone());
            }
        }
        response = rendered;
    }
    trace::inject_context(&context, response.headers_mut());
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    record_metrics(service, &method, route, &response, started);
    response
}

/// Returns the trace context of a request: of its span, otherwise of the client, otherwise a new
/// one. The new trace id equals the request id where possible, so that the log has it (A13).
fn trace_context(span: &Span, caller: Context, id: &str) -> Context {
    let own = span.context();
    if own.span().span_context().is_valid() {
        return own;
    }
    if caller.span().span_context().is_valid() {
        return caller;
    }
    let new_id = fresh_uuid();
    let new_context = SpanContext::new(
        TraceId::from_hex(id).unwrap_or_else(|_| TraceId::from_bytes(new_id.into_bytes())),
        SpanId::from_bytes(new_id.as_u64_pair().1.to_be_bytes()),
        TraceFlags::default(),
        false,
        TraceState::default(),
    );
    Context::new().with_remote_span_context(new_context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_for_header(value: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_str(value).unwrap());
        request_id_of(&headers)
    }

    #[test]
    fn only_safe_request_ids_are_accepted() {
        assert_eq!(id_for_header("abc-1"), "abc-1");
        for bad in ["a b", "<x>", &"x".repeat(65)] {
            assert_ne!(id_for_header(bad), bad);
        }
        assert_eq!(request_id_of(&HeaderMap::new()).len(), 32);
    }

    fn trace_id(caller: &Context, id: &str) -> String {
        let trace = trace_context(&Span::none(), caller.clone(), id);
        assert!(trace.span().span_context().is_valid());
        trace.span().span_context().trace_id().to_string()
    }

    #[test]
    fn a_request_has_a_trace_id_without_a_collector() {
        let empty = Context::new();
        let id = request_id_of(&HeaderMap::new());
        assert_eq!(trace_id(&empty, &id), id, "the log has this id");
        assert_ne!(trace_id(&empty, "my-own"), trace_id(&empty, "my-own"));
        let caller_span = SpanContext::new(
            TraceId::from(7),
            SpanId::from(7),
            TraceFlags::SAMPLED,
            true,
            TraceState::default(),
        );
        let caller = empty.with_remote_span_context(caller_span);
        assert!(trace_id(&caller, &id).ends_with("07"));
    }
}
