//! Authenticates requests: from the `Authorization` header to a [`Caller`] in a handler.
//!
//! The server authenticates every request except those for public paths. A handler that takes no
//! `Caller` therefore needs a token too (S4).

use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::Method;
use http::header::AUTHORIZATION;

use super::limits::is_stream;
use super::request_origin::{RefusalObserver, RequestOrigin};
use crate::auth::{Caller, Principal, Refusal, TokenPeek, TokenValidity, Verifier, requested_user};
use crate::problem::Problem;

/// Public paths: health and the description of the API, which has no data of a fleet.
const PUBLIC_PATHS: [&str; 3] = ["/livez", "/readyz", "/v1/openapi.json"];
const PUBLIC_PREFIX: &str = "/docs";

/// Paths of health checks. They are answered even under load.
const PROBES: [&str; 2] = ["/livez", "/readyz"];

fn is_public(path: &str) -> bool {
    PUBLIC_PATHS.contains(&path)
        || path
            .strip_prefix(PUBLIC_PREFIX)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A route that needs no token, by method and matched path.
pub type OpenRoute = (Method, &'static str);

fn is_open_route(open_routes: &[OpenRoute], request: &Request) -> bool {
    let matched = request.extensions().get::<MatchedPath>();
    matched.is_some_and(|matched| {
        open_routes
            .iter()
            .any(|(method, route)| request.method() == *method && matched.as_str() == *route)
    })
}

/// Configuration of authentication.
#[derive(Default)]
pub struct AuthConfig {
    /// Verifier of tokens. `None` accepts no token.
    pub verifier: Option<Arc<Verifier>>,
    /// Routes that need no token.
    pub open_routes: Vec<OpenRoute>,
    /// Receiver of refusals (S24).
    pub observer: Option<Arc<dyn RefusalObserver>>,
}

/// Adds the [`Caller`] to the request. This middleware responds with 401 without a valid token, and
/// with 403 for a user that the caller may not represent.
pub async fn authenticate(config: Arc<AuthConfig>, mut request: Request, next: Next) -> Response {
    let is_open = is_public(request.uri().path()) || is_open_route(&config.open_routes, &request);
    let principal = (!is_open).then(|| principal_of(config.verifier.as_deref(), &request));
    let token_owner = principal.as_ref().and_then(|it| it.as_ref().ok());
    let token_owner = token_owner.cloned();
    let verifier = config.verifier.as_deref();
    let caller = principal.map(|principal| caller_of(verifier, principal?, &request));
    // A refused impersonation is recorded for the owner of the token.
    let sender = match &caller {
        Some(Ok(caller)) => Some(Arc::clone(&caller.0)),
        _ => token_owner,
    };
    let origin = RequestOrigin::from_request(&request, sender);
    // The header `If-Revision` is checked here, because not every request reaches a commit.
    let caller = caller.map(|caller| caller.and_then(|it| origin.if_revision().map(|_| it)));
    let mut response = match caller {
        Some(Err(problem)) => problem.into_response(),
        Some(Ok(caller)) => {
            // The span gets the actor and the user that it represents (S11).
            let span = tracing::Span::current();
            span.record("actor", caller.actor());
            span.record("subject", caller.name.as_str());
            if is_stream(request.uri().path())
                && let Some(validity) = token_validity(&config, &request)
            {
                request.extensions_mut().insert(validity);
            }
            request.extensions_mut().insert(caller);
            Arc::clone(&origin).scope(next.run(request)).await
        }
        None => {
            // A public route shows more to a caller with a valid token (A12).
            if let Ok(principal) = principal_of(config.verifier.as_deref(), &request) {
                request.extensions_mut().insert(Caller(principal));
            }
            Arc::clone(&origin).scope(next.run(request)).await
        }
    };
    origin.add_revision_header(&mut response);
    if let Some(observer) = &config.observer
        && origin.is_audited_refusal(response.status())
    {
        observer.refused(origin.for_command(), response.status().as_u16());
    }
    response
}

/// Returns the principal of the token, or the user that it represents.
fn caller_of(
    verifier: Option<&Verifier>,
    principal: Arc<Principal>,
    request: &Request,
) -> Result<Caller, Problem> {
    let principal = with_tenant(verifier, principal);
    match requested_user(request.headers())? {
        Some(user) => {
            let user = Arc::new(principal.acting_as(user)?);
            Ok(Caller(with_tenant(verifier, user)))
        }
        None => Ok(Caller(principal)),
    }
}

/// Adds the tenant. The tenant is read for each request, so that a change applies within seconds.
fn with_tenant(verifier: Option<&Verifier>, principal: Arc<Principal>) -> Arc<Principal> {
    match verifier.and_then(|it| it.tenant_of(&principal.name)) {
        Some(tenant) => {
            let principal = Arc::unwrap_or_clone(principal);
            Arc::new(principal.with_tenant(Some(tenant)))
        }
        None => principal,
    }
}

fn principal_of(verifier: Option<&Verifier>, request: &Request) -> Result<Arc<Principal>, Refusal> {
    let token = bearer_token(request)?;
    verifier.ok_or(Refusal::Forged)?.verify(token)
}

fn bearer_token(request: &Request) -> Result<&str, Refusal> {
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
    Ok(token.trim())
}

fn token_validity(config: &AuthConfig, request: &Request) -> Option<TokenValidity> {
    TokenValidity::new(config.verifier.clone()?, bearer_token(request).ok()?)
}

impl AuthConfig {
    /// Classifies the token of a request without checking a signature.
    pub(crate) fn peek(&self, request: &Request) -> TokenPeek {
        let verifier = self.verifier.as_deref();
        let token = bearer_token(request).ok();
        let peek = verifier.zip(token).map(|(it, token)| it.peek(token));
        match peek.unwrap_or(TokenPeek::Rejected) {
            TokenPeek::Rejected if PROBES.contains(&request.uri().path()) => TokenPeek::Probe,
            TokenPeek::Rejected if is_open_route(&self.open_routes, request) => {
                TokenPeek::Unverified
            }
            peek => peek,
        }
    }
}
