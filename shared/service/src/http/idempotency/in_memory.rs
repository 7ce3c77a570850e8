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

use super::{Key, KeyStore, REPLAYED, StoredResponse, digest};
use crate::auth::Caller;
use crate::http::extract::body_problem;
use crate::http::refusal_responses::problem_response;
use crate::http::request_origin::is_dry_run;
use crate::problem::Problem;

/// Maximum number of stored responses. With the maximum size below, they use at most 32 MiB.
const MAX_RESPONSES: usize = 1_024;
const MAX_RESPONSE_BYTES: usize = 32 * 1_024;
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
        item.post.iter_mut().for_each(describe_key);
    }
    let store = Arc::new(KeyStore::new(MAX_RESPONSES));
    router.layer(from_fn(move |request: Request, next: Next| {
        run_once(Arc::clone(&store), request, next)
    }))
}

fn describe_key(operation: &mut Operation) {
    let key = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::True)
        .description(Some("the same key, the same answer"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
    let parameters = operation.parameters.get_or_insert_default();
    parameters.push(RefOr::T(key.build()));
    let in_progress = problem_response(409, "the request with this key is still under way");
    for (status, response) in in_progress {
        operation
            .responses
            .responses
            .entry(status)
            .or_insert(response);
    }
}

async fn run_once(store: Arc<KeyStore>, request: Request, next: Next) -> Response {
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
    let response = run_or_repeat(&store, request, next).await;
    response.unwrap_or_else(IntoResponse::into_response)
}

async fn run_or_repeat(
    store: &KeyStore,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let key = Key::from_headers(request.headers())?;
    let caller = request.extensions().get::<Caller>();
    let principal = caller.map(|it| it.0.display_name()).unwrap_or_default();
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let body = Bytes::from_request(request, &())
        .await
        .map_err(body_problem)?;
    let path = parts
        .uri
        .path_and_query()
        .map_or("", http::uri::PathAndQuery::as_str);
    let request_digest = digest(&parts.method, path, &body);
    let running = match store.begin(&principal, key, request_digest) {
        Ok(running) => running,
        Err(before) => {
            return before
                .into_response_to_repeat()
                .map(IntoResponse::into_response);
        }
    };
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    // A refusal frees the key, because the client may correct the request.
    let size = response.body().size_hint().upper().unwrap_or(u64::MAX);
    if !response.status().is_success() || size > MAX_RESPONSE_BYTES as u64 {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, MAX_RESPONSE_BYTES)
        .await
        .map_err(Problem::internal)?;
    if !parts.headers.contains_key(REPLAYED) {
        running.complete(StoredResponse {
            status: parts.status.as_u16(),
            headers: replayed_headers(&parts.headers),
            body: body.clone(),
        });
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn replayed_headers(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let present = REPLAYED_HEADERS.into_iter().filter_map(|name| {
        let value = headers.get(&name)?.clone();
        Some((name, value))
    });
    present.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::http::StatusCode;
    use tower::ServiceExt as _;
    use utoipa_axum::routes;

    use super::*;
    use crate::http::idempotency::HEADER;

    static EFFECTS: AtomicU32 = AtomicU32::new(0);

    #[utoipa::path(post, path = "/v1/items", operation_id = "create_item", responses(
        (status = 202, description = "accepted")))]
    async fn create_item(body: String) -> Response {
        if body == "bad" {
            return StatusCode::UNPROCESSABLE_ENTITY.into_response();
        }
        let number = EFFECTS.fetch_add(1, Ordering::Relaxed);
        let head = [(header::LOCATION, format!("/v1/items/{number}"))];
        (StatusCode::ACCEPTED, head, number.to_string()).into_response()
    }

    #[tokio::test]
    async fn a_request_is_executed_once_and_its_response_is_repeated() {
        let routes = require_keys(OpenApiRouter::<()>::new().routes(routes!(create_item)));
        let operation = routes.get_openapi().paths.paths["/v1/items"].post.clone();
        assert!(
            serde_json::to_string(&operation)
                .unwrap()
                .contains("Idempotency-Key")
        );
        let (router, _) = routes.split_for_parts();
        let send = async |key: Option<&str>, path: &str, body: &str| {
            let mut request = Request::builder().method(Method::POST).uri(path);
            if let Some(key) = key {
                request = request.header(HEADER, key);
            }
            let request = request.body(Body::from(body.to_owned())).unwrap();
            router.clone().oneshot(request).await.unwrap()
        };
        let path = "/v1/items";
        assert_eq!(send(None, path, "x").await.status(), 400, "required");
        assert_eq!(send(Some(""), path, "x").await.status(), 400);
        assert_eq!(send(Some("k"), path, "bad").await.status(), 422);
        let first = send(Some("k"), path, "x").await;
        assert_eq!(
            (first.status().as_u16(), first.headers().get(REPLAYED)),
            (202, None)
        );
        let repeated = send(Some("k"), path, "x").await;
        assert_eq!(repeated.status(), 202);
        assert_eq!(repeated.headers()[REPLAYED], "true");
        assert_eq!(
            repeated.headers()[header::LOCATION],
            first.headers()[header::LOCATION]
        );
        assert_eq!(EFFECTS.load(Ordering::Relaxed), 1);
        assert_eq!(
            send(Some("k"), path, "y").await.status(),
            422,
            "another body"
        );
        assert_eq!(send(Some("k"), "/v1/items?a=b", "x").await.status(), 422);
        let dry_run = "/v1/items?dry_run=true";
        assert_eq!(send(Some("k"), dry_run, "y").await.status(), 202);
        for invalid in [None, Some(""), Some("k k")] {
            assert_eq!(
                send(invalid, dry_run, "y").await.status(),
                400,
                "{invalid:?}"
            );
        }
    }
}
