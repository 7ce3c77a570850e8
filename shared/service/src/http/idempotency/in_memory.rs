//! Idempotency keys in memory, for requests that do no harm when they happen twice. Such requests
//! name their own id, merge, or address a state machine. Until a restart, the first response is
//! repeated, and another request with the same key is refused (A4).
//!
//! Other requests store their keys in the transaction of the effect.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{FromRequest as _, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Required};
use utoipa_axum::router::OpenApiRouter;

use super::{Answer, Key, KeyStore, REPLAYED, digest};
use crate::auth::Caller;
use crate::http::extract::unreadable;
use crate::http::origin::is_dry_run;
use crate::http::refusal::described;
use crate::problem::Problem;

/// Most stored responses. Together with the largest size of one, they use at most 32 MiB.
const MAX_ANSWERS: usize = 1_024;
const MAX_ANSWER_BYTES: usize = 32 * 1_024;
/// Headers that are stored with a response.
const REPLAYED_HEADERS: [HeaderName; 3] = [
    header::LOCATION,
    header::ETAG,
    HeaderName::from_static("hayward-revision"),
];

/// Requires an idempotency key for every `POST` of these routes.
pub fn require_keys<S: Clone + Send + Sync + 'static>(
    mut router: OpenApiRouter<S>,
) -> OpenApiRouter<S> {
    for item in router.get_openapi_mut().paths.paths.values_mut() {
        item.post.iter_mut().for_each(describe);
    }
    let memory = Arc::new(KeyStore::new(MAX_ANSWERS));
    router.layer(from_fn(move |request: Request, next: Next| {
        once(Arc::clone(&memory), request, next)
    }))
}

fn describe(operation: &mut Operation) {
    let key = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::True)
        .description(Some("the same key, the same answer"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
    let parameters = operation.parameters.get_or_insert_default();
    parameters.push(RefOr::T(key.build()));
    let under_way = described(409, "the request with this key is still under way");
    for (status, answer) in under_way {
        operation
            .responses
            .responses
            .entry(status)
            .or_insert(answer);
    }
}

async fn once(memory: Arc<KeyStore>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    // A dry run may be repeated with any valid key (A10).
    if is_dry_run(request.uri().query()) {
        return match Key::from_headers(request.headers()) {
            Ok(_) => next.run(request).await,
            Err(refusal) => refusal.into_response(),
        };
    }
    let answer = answer_once(&memory, request, next).await;
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn answer_once(memory: &KeyStore, request: Request, next: Next) -> Result<Response, Problem> {
    let key = Key::from_headers(request.headers())?;
    let caller = request.extensions().get::<Caller>();
    let principal = caller.map(|it| it.0.display_name()).unwrap_or_default();
    let (parts, body) = request.into_parts();
    let whole = Request::from_parts(parts.clone(), body);
    let body = Bytes::from_request(whole, &()).await.map_err(unreadable)?;
    let path = parts
        .uri
        .path_and_query()
        .map_or("", http::uri::PathAndQuery::as_str);
    let request_digest = digest(&parts.method, path, &body);
    let running = match memory.begin(&principal, key, request_digest) {
        Ok(running) => running,
        Err(before) => {
            return before.answer().map(IntoResponse::into_response);
        }
    };
    let answer = next.run(Request::from_parts(parts, Body::from(body))).await;
    // A refusal frees the key, because the client may correct the request.
    let size = answer.body().size_hint().upper().unwrap_or(u64::MAX);
    if !answer.status().is_success() || size > MAX_ANSWER_BYTES as u64 {
        return Ok(answer);
    }
    let (parts, body) = answer.into_parts();
    let body = to_bytes(body, MAX_ANSWER_BYTES)
        .await
        .map_err(Problem::internal)?;
    if !parts.headers.contains_key(REPLAYED) {
        running.done(Answer {
            status: parts.status.as_u16(),
            headers: replayed_headers(&parts.headers),
            body: body.clone(),
        });
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn replayed_headers(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let found = REPLAYED_HEADERS.into_iter().filter_map(|name| {
        let value = headers.get(&name)?.clone();
        Some((name, value))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::http::StatusCode;
    use tower::ServiceExt as _;
    use utoipa_axum::routes;

    use super::*;
    use crate::http::idempotency::HEADER;

    static DONE: AtomicU32 = AtomicU32::new(0);

    #[utoipa::path(post, path = "/v1/orders", operation_id = "order", responses(
        (status = 202, description = "taken in")))]
    async fn order(body: String) -> Response {
        if body == "bad" {
            return StatusCode::UNPROCESSABLE_ENTITY.into_response();
        }
        let number = DONE.fetch_add(1, Ordering::Relaxed);
        let head = [(header::LOCATION, format!("/v1/orders/{number}"))];
        (StatusCode::ACCEPTED, head, number.to_string()).into_response()
    }

    #[tokio::test]
    async fn a_request_is_done_once_and_its_answer_repeated() {
        let routes = require_keys(OpenApiRouter::<()>::new().routes(routes!(order)));
        let described = routes.get_openapi().paths.paths["/v1/orders"].post.clone();
        assert!(
            serde_json::to_string(&described)
                .unwrap()
                .contains("Idempotency-Key")
        );
        let (router, _) = routes.split_for_parts();
        let ask = async |key: Option<&str>, path: &str, body: &str| {
            let mut request = Request::builder().method(Method::POST).uri(path);
            if let Some(key) = key {
                request = request.header(HEADER, key);
            }
            let request = request.body(Body::from(body.to_owned())).unwrap();
            router.clone().oneshot(request).await.unwrap()
        };
        let path = "/v1/orders";
        assert_eq!(ask(None, path, "x").await.status(), 400, "required");
        assert_eq!(ask(Some(""), path, "x").await.status(), 400);
        assert_eq!(ask(Some("k"), path, "bad").await.status(), 422);
        let first = ask(Some("k"), path, "x").await;
        assert_eq!(
            (first.status().as_u16(), first.headers().get(REPLAYED)),
            (202, None)
        );
        let again = ask(Some("k"), path, "x").await;
        assert_eq!(again.status(), 202);
        assert_eq!(again.headers()[REPLAYED], "true");
        assert_eq!(
            again.headers()[header::LOCATION],
            first.headers()[header::LOCATION]
        );
        assert_eq!(DONE.load(Ordering::Relaxed), 1);
        assert_eq!(
            ask(Some("k"), path, "y").await.status(),
            422,
            "another body"
        );
        assert_eq!(ask(Some("k"), "/v1/orders?a=b", "x").await.status(), 422);
        let tried = "/v1/orders?dry_run=true";
        assert_eq!(ask(Some("k"), tried, "y").await.status(), 202);
        for none in [None, Some(""), Some("k k")] {
            assert_eq!(ask(none, tried, "y").await.status(), 400, "{none:?}");
        }
    }
}
