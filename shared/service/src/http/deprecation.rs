//! Deprecated routes. They are marked in the description, announced in the headers of each
//! response, and counted (A14).

use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::middleware::{self, Next};
use chrono::DateTime;
use http::header::{HeaderName, HeaderValue, LINK};
use opentelemetry::KeyValue;
use utoipa::openapi::Deprecated;
use utoipa_axum::router::OpenApiRouter;

use super::openapi::operations;
use super::request_origin::ActorKind;
use crate::auth::{Caller, Principal};

pub const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
pub const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// Dates of a deprecation, and the successor of the route. At least two minor versions lie between
/// the two dates (A14).
#[derive(Debug, Clone, Copy)]
pub struct DeprecationNotice {
    /// Start of the deprecation, in seconds since 1970.
    pub deprecated_since: i64,
    /// End of the route, in seconds since 1970.
    pub sunset: i64,
    /// The route to use instead.
    pub successor: &'static str,
}

impl DeprecationNotice {
    /// Returns the headers of RFC 9745, RFC 8594 and RFC 8288.
    fn headers(self) -> Vec<(HeaderName, HeaderValue)> {
        let sunset = DateTime::from_timestamp(self.sunset, 0).unwrap_or_default();
        let texts = [
            (DEPRECATION, format!("@{}", self.deprecated_since)),
            (
                SUNSET,
                sunset.format("%a, %d %b %Y %H:%M:%S GMT").to_string(),
            ),
            (
                LINK,
                format!("<{}>; rel=\"successor-version\"", self.successor),
            ),
        ];
        let values = texts.into_iter().filter_map(|(name, text)| {
            let value = HeaderValue::try_from(text).ok()?;
            Some((name, value))
        });
        values.collect()
    }
}

/// Marks these routes as deprecated.
#[must_use]
pub fn deprecated<S>(mut routes: OpenApiRouter<S>, notice: DeprecationNotice) -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    for item in routes.get_openapi_mut().paths.paths.values_mut() {
        for operation in operations(item) {
            operation.deprecated = Some(Deprecated::True);
        }
    }
    let headers: Arc<[_]> = notice.headers().into();
    routes.layer(middleware::from_fn(move |request: Request, next: Next| {
        let headers = Arc::clone(&headers);
        async move {
            count_request(&request);
            let mut response = next.run(request).await;
            for (name, value) in headers.iter() {
                response.headers_mut().insert(name.clone(), value.clone());
            }
            response
        }
    }))
}

/// Counts a request by route and kind of caller. The log has the name of the caller, because names
/// are unbounded (T3).
fn count_request(request: &Request) {
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("unmatched", MatchedPath::as_str).to_owned();
    let caller = request.extensions().get::<Caller>();
    let name = caller.map_or("nobody", |caller| caller.name.as_str());
    tracing::info!(event = "deprecated_route", %route, caller = name, "a deprecated route is used");
    opentelemetry::global::meter("hayward")
        .u64_counter("hayward.api.deprecated")
        .with_unit("{request}")
        .with_description("Requests to routes that are on their way out.")
        .build()
        .add(
            1,
            &[
                KeyValue::new("http.route", route),
                KeyValue::new(
                    "hayward.caller.kind",
                    caller_kind(caller.map(|caller| &*caller.0)),
                ),
            ],
        );
}

fn caller_kind(caller: Option<&Principal>) -> &'static str {
    let kind = caller.map_or(ActorKind::Unauthenticated, |caller| {
        ActorKind::from_scopes(&caller.scopes)
    });
    kind.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_follow_their_standards() {
        // The times are those of the examples in RFC 9745.
        let notice = DeprecationNotice {
            deprecated_since: 1_688_169_599,
            sunset: 1_719_791_999,
            successor: "/v1/new",
        };
        let texts: Vec<String> = notice
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        assert_eq!(
            texts,
            [
                "deprecation: @1688169599",
                "sunset: Sun, 30 Jun 2024 23:59:59 GMT",
                "link: </v1/new>; rel=\"successor-version\"",
            ]
        );
    }
}
