//! The caller of a request, as handlers receive it.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;

use super::token::AcceptedToken;
use super::{Principal, Refusal, Verifier};
use crate::problem::{Code, Problem};

/// The principal of this request.
#[derive(Debug, Clone)]
pub struct Caller(pub Arc<Principal>);

impl std::ops::Deref for Caller {
    type Target = Principal;
    fn deref(&self) -> &Principal {
        &self.0
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Problem::new(Code::Unauthenticated, Refusal::Absent.to_string()))
    }
}

/// The principal of this request, and the headers of the request.
#[derive(Debug, Clone)]
pub struct Requester {
    pub caller: Caller,
    pub headers: HeaderMap,
}

impl<S: Send + Sync> FromRequestParts<S> for Requester {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self {
            caller: Caller::from_request_parts(parts, state).await?,
            headers: parts.headers.clone(),
        })
    }
}

/// Checks the token of a request again while its response is streamed (S8).
#[derive(Clone)]
pub struct TokenValidity {
    verifier: Arc<Verifier>,
    token: Arc<AcceptedToken>,
}

impl TokenValidity {
    /// Returns false if the token was revoked or has expired, or if the keys of issuers changed.
    /// The client must then reconnect.
    pub fn is_valid(&self) -> bool {
        self.verifier.still_accepts(&self.token)
    }

    /// Creates the check. Returns `None` for an invalid token.
    pub(crate) fn new(verifier: Arc<Verifier>, token: &str) -> Option<Self> {
        let token = Arc::new(verifier.accept(token).ok()?);
        Some(Self { verifier, token })
    }
}
