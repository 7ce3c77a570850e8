//! From the `Authorization` header to a [`Caller`] in a handler.
//!
//! The frame authenticates every request but those for the open paths, so a handler that forgets
//! its `Caller` is still closed to strangers (S1, S4).

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::Method;
use http::header::AUTHORIZATION;
use http::request::Parts;

use super::acting::wanted;
use super::{Principal, Refusal, Verifier};
use crate::problem::{Code, Problem};

/// What anybody may read: the two status words, and the description of the API, which is the same
/// for everyone and says nothing about a fleet.
const OPEN: [&str; 3] = ["/livez", "/readyz", "/v1/openapi.json"];
const OPEN_UNDER: &str = "/docs";

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

fn open_to_all(path: &str) -> bool {
    OPEN.contains(&path)
        || path
            .strip_prefix(OPEN_UNDER)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A route of one service that takes no token, by method and matched path.
pub type OpenRoute = (Method, &'static str);

fn among(open: &[OpenRoute], request: &Request) -> bool {
    let matched = request.extensions().get::<MatchedPath>();
    matched.is_some_and(|matched| {
        open.iter()
            .any(|(method, route)| request.method() == *method && matched.as_str() == *route)
    })
}

/// Middleware: gives the request its [`Caller`], or answers 401.
pub async fn authenticate(
    (verifier, open): (Option<Arc<Verifier>>, Arc<[OpenRoute]>),
    mut request: Request,
    next: Next,
) -> Response {
    if !open_to_all(request.uri().path()) && !among(&open, &request) {
        match caller_of(verifier.as_deref(), &request) {
            Ok(caller) => {
                tracing::Span::current().record("caller", caller.described());
                request.extensions_mut().insert(caller);
            }
            Err(problem) => return problem.into_response(),
        }
    }
    next.run(request).await
}

/// Whom the token names, or whom they act for.
fn caller_of(verifier: Option<&Verifier>, request: &Request) -> Result<Caller, Problem> {
    let principal = principal_of(verifier, request)?;
    match wanted(request.headers())? {
        Some(user) => Ok(Caller(Arc::new(principal.acting_as(user)?))),
        None => Ok(Caller(principal)),
    }
}

fn principal_of(verifier: Option<&Verifier>, request: &Request) -> Result<Arc<Principal>, Refusal> {
    let header = request
        .headers()
        .get(AUTHORIZATION)
        .ok_or(Refusal::Absent)?;
    let (scheme, token) = header
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .ok_or(Refusal::Forged)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Refusal::Forged);
    }
    verifier.ok_or(Refusal::Forged)?.verify(token.trim())
}
