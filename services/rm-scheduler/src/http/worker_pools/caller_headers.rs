//! Extractor of the caller of a worker pool together with the request headers. The headers contain
//! the epoch and the connection of an owner, which fence earlier owners.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use hayward_service::Caller;
use hayward_service::http::problem::Problem;

/// The caller, and the headers of the request.
pub struct CallerWithHeaders {
    pub caller: Caller,
    /// Headers with the epoch and the connection of an owner, and `If-Match` with the version of a
    /// size.
    pub headers: HeaderMap,
}

impl<S: Send + Sync> FromRequestParts<S> for CallerWithHeaders {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self {
            caller: Caller::from_request_parts(parts, state).await?,
            headers: parts.headers.clone(),
        })
    }
}
