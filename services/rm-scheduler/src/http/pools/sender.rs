//! The sender of a call to a pool. The headers show whether an owner is still the newest one.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use hayward_service::Caller;
use hayward_service::http::problem::Problem;

/// The caller, and the headers of the request.
pub struct Sender {
    pub caller: Caller,
    /// Contain epoch and connection of an owner, and the version of a size (`If-Match`).
    pub headers: HeaderMap,
}

impl<S: Send + Sync> FromRequestParts<S> for Sender {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self {
            caller: Caller::from_request_parts(parts, state).await?,
            headers: parts.headers.clone(),
        })
    }
}
