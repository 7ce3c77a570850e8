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

use super::impersonation::wanted;
use super::token::Pass;
use super::{Principal, Refusal, Verifier};
use crate::http::limits::lasts;
use crate::http::origin::{Origin, Witness};
use crate::http::problem::{Code, Problem};

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

pub(super) fn open_to_all(path: &str) -> bool {
    OPEN.contains(&path)
        || path
            .strip_prefix(OPEN_UNDER)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A route of one service that takes no token, by method and matched path.
pub type OpenRoute = (Method, &'static str);

pub(super) fn among(open: &[OpenRoute], request: &Request) -> bool {
    let matched = request.extensions().get::<MatchedPath>();
    matched.is_some_and(|matched| {
        open.iter()
            .any(|(method, route)| request.method() == *method && matched.as_str() == *route)
    })
}

/// Whether the token of a request is good still, for an answer that lasts (S8).
#[derive(Clone)]
pub struct StillGood {
    door: Arc<Door>,
    pass: Arc<Pass>,
}

impl StillGood {
    /// False once the token was revoked or has expired, and when the keys of issuers have changed:
    /// then it has to be shown again.
    pub fn holds(&self) -> bool {
        let verifier = self.door.verifier.as_deref();
        verifier.is_some_and(|verifier| verifier.still(&self.pass))
    }

    fn of(door: &Arc<Door>, request: &Request) -> Option<Self> {
        let pass = door.verifier.as_deref()?.pass(bearer(request).ok()?).ok()?;
        Some(Self {
            door: Arc::clone(door),
            pass: Arc::new(pass),
        })
    }
}

/// How the door of one service is kept.
#[derive(Default)]
pub struct Door {
    /// Without it nobody has a good token.
    pub verifier: Option<Arc<Verifier>>,
    pub open: Vec<OpenRoute>,
    /// Who is told of refusals (S24).
    pub witness: Option<Arc<dyn Witness>>,
}

/// Middleware: gives the request its [`Caller`], or answers 401, or 403 where it would act for
/// somebody it may not.
pub async fn authenticate(door: Arc<Door>, mut request: Request, next: Next) -> Response {
    let open = open_to_all(request.uri().path()) || among(&door.open, &request);
    let known = (!open).then(|| principal_of(door.verifier.as_deref(), &request));
    let asks = known.as_ref().and_then(|known| known.as_ref().ok());
    let asks = asks.cloned();
    let verifier = door.verifier.as_deref();
    let caller = known.map(|known| caller_of(verifier, known?, &request));
    let speaks = match &caller {
        Some(Ok(caller)) => Some(Arc::clone(&caller.0)),
        _ => asks,
    };
    let origin = Origin::of(&request, speaks);
    // Not left to the commit, for not every request comes to one.
    let caller = caller.map(|caller| caller.and_then(|it| origin.only_at().map(|_| it)));
    let response = match caller {
        Some(Err(problem)) => problem.into_response(),
        Some(Ok(caller)) => {
            // T4, S11: who asks, and for whom.
            let span = tracing::Span::current();
            span.record("actor", caller.actor());
            span.record("subject", caller.name.as_str());
            if lasts(request.uri().path())
                && let Some(good) = StillGood::of(&door, &request)
            {
                request.extensions_mut().insert(good);
            }
            request.extensions_mut().insert(caller);
            Arc::clone(&origin).scope(next.run(request)).await
        }
        None => {
            // A12: whoever shows a good token is told which parts fail; strangers one word.
            if let Ok(principal) = principal_of(door.verifier.as_deref(), &request) {
                request.extensions_mut().insert(Caller(principal));
            }
            Arc::clone(&origin).scope(next.run(request)).await
        }
    };
    let mut response = response;
    origin.tell_revision(&mut response);
    if let Some(witness) = &door.witness
        && origin.is_refusal(response.status())
    {
        witness.refused(origin.asked(), response.status().as_u16());
    }
    response
}

/// Whom the token names, or whom they act for.
fn caller_of(
    verifier: Option<&Verifier>,
    principal: Arc<Principal>,
    request: &Request,
) -> Result<Caller, Problem> {
    let placed = placed(verifier, principal);
    match wanted(request.headers())? {
        Some(user) => {
            let user = Arc::new(placed.acting_as(user)?);
            Ok(Caller(self::placed(verifier, user)))
        }
        None => Ok(Caller(placed)),
    }
}

/// The same in their tenant. Looked up each time: who leaves one is out within seconds.
fn placed(verifier: Option<&Verifier>, principal: Arc<Principal>) -> Arc<Principal> {
    match verifier.and_then(|it| it.tenant_of(&principal.name)) {
        Some(tenant) => {
            let principal = Arc::unwrap_or_clone(principal);
            Arc::new(principal.in_tenant(Some(tenant)))
        }
        None => principal,
    }
}

fn principal_of(verifier: Option<&Verifier>, request: &Request) -> Result<Arc<Principal>, Refusal> {
    let token = bearer(request)?;
    verifier.ok_or(Refusal::Forged)?.verify(token)
}

pub(super) fn bearer(request: &Request) -> Result<&str, Refusal> {
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
