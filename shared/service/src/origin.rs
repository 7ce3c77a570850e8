//! Where a change comes from: the principal and the request behind it (S11, S24).
//!
//! The frame says it once for each request, for the task that works on it. Whoever passes a command
//! on asks for it there, so no handler carries it; a command without one is the service's own.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, MatchedPath, Request};
use http::{Method, StatusCode};

use crate::auth::{Principal, Scope};
use crate::request::{current_id, trace_id_of};

/// What kind of party a principal is, by the strongest of its scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nobody whose token was good.
    Stranger,
    Operator,
    Orchestrator,
    Owner,
    Submitter,
    Viewer,
    Auditor,
    Agent,
    Runner,
    Service,
    /// A good token without a scope this version knows.
    Nobody,
}

impl Kind {
    pub fn of(scopes: &[Scope]) -> Self {
        let kinds = scopes.iter().map(|scope| match scope {
            Scope::Operator => Self::Operator,
            Scope::Orchestrator(_) => Self::Orchestrator,
            Scope::Owner(_) => Self::Owner,
            Scope::Submitter => Self::Submitter,
            Scope::Viewer => Self::Viewer,
            Scope::Auditor => Self::Auditor,
            Scope::Agent(_) => Self::Agent,
            Scope::Runner(_) => Self::Runner,
            Scope::Service(_) => Self::Service,
        });
        kinds.min().unwrap_or(Self::Nobody)
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Stranger => "stranger",
            Self::Operator => "operator",
            Self::Orchestrator => "orchestrator",
            Self::Owner => "owner",
            Self::Submitter => "submitter",
            Self::Viewer => "viewer",
            Self::Auditor => "auditor",
            Self::Agent => "agent",
            Self::Runner => "runner",
            Self::Service => "service",
            Self::Nobody => "nobody",
        }
    }

    /// A part of the fleet, which reports many times a second and decides nothing of its own.
    pub fn is_machine(self) -> bool {
        matches!(self, Self::Agent | Self::Runner | Self::Service)
    }
}

/// The request a task works on.
#[derive(Debug)]
pub struct Origin {
    principal: Option<Arc<Principal>>,
    kind: Kind,
    address: Option<SocketAddr>,
    method: Method,
    route: Option<MatchedPath>,
    path: http::Uri,
}

/// The same with its ids, as it goes with a command.
#[derive(Debug, Clone)]
pub struct Asked {
    pub origin: Arc<Origin>,
    pub request_id: Option<String>,
    pub trace_id: Option<String>,
}

tokio::task_local! {
    static ORIGIN: Arc<Origin>;
}

impl Origin {
    pub fn of(request: &Request, principal: Option<Arc<Principal>>) -> Arc<Self> {
        let kind = principal
            .as_ref()
            .map_or(Kind::Stranger, |principal| match principal.actor {
                // Whoever acts for somebody has that user's scopes, and is none.
                Some(_) => Kind::Orchestrator,
                None => Kind::of(&principal.scopes),
            });
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        Arc::new(Self {
            principal,
            kind,
            address: peer.map(|peer| peer.0),
            method: request.method().clone(),
            route: request.extensions().get::<MatchedPath>().cloned(),
            path: request.uri().clone(),
        })
    }

    /// Who sent the request.
    pub fn actor(&self) -> &str {
        self.principal.as_ref().map_or("", |it| it.actor())
    }

    /// For whom: the actor, unless it acts for somebody else (S10).
    pub fn subject(&self) -> &str {
        self.principal.as_ref().map_or("", |it| it.name.as_str())
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Without the port, which is another with each connection.
    pub fn address(&self) -> Option<String> {
        self.address.map(|address| address.ip().to_string())
    }

    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    pub fn route(&self) -> &str {
        self.route.as_ref().map_or("", MatchedPath::as_str)
    }

    /// Without the query: tokens do not belong there (S8), but nobody can be kept from it.
    pub fn path(&self) -> &str {
        self.path.path()
    }

    /// Does the work of a request as its own.
    pub async fn scope<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        ORIGIN.scope(self, work).await
    }

    /// The request with its ids, from within its task.
    pub fn asked(self: Arc<Self>) -> Asked {
        Asked {
            origin: self,
            request_id: current_id(),
            trace_id: trace_id_of(&tracing::Span::current()),
        }
    }

    /// Whether an answer is a refusal that is kept: of whom we do not know or who may not, and of
    /// changes by people. That a part of the fleet asks too late or twice is everyday.
    pub fn is_refusal(&self, status: StatusCode) -> bool {
        let door = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let changes = !self.method.is_safe() && !self.kind.is_machine();
        door || (changes && status.is_client_error())
    }
}

/// The request this task works on, if it works on one.
pub fn current() -> Option<Asked> {
    ORIGIN.try_with(Arc::clone).ok().map(Origin::asked)
}

/// Who is told of refused requests.
pub trait Witness: Send + Sync {
    fn refused(&self, asked: Asked, status: u16);
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn origin(method: Method, scopes: &[Scope]) -> Arc<Origin> {
        let request = Request::builder()
            .method(method)
            .uri("/v1/things?token=secret")
            .body(Body::empty())
            .unwrap();
        Origin::of(&request, Some(Arc::new(Principal::new("ann", scopes))))
    }

    #[test]
    fn s24_the_strongest_scope_names_the_kind() {
        let agent = Scope::Agent("n1".parse().unwrap());
        let kind = |scopes: &[Scope]| Kind::of(scopes).word();
        assert_eq!(kind(&[Scope::Viewer, Scope::Operator]), "operator");
        assert_eq!(kind(&[agent, Scope::Submitter]), "submitter");
        assert_eq!(kind(&[]), "nobody");
    }

    #[test]
    fn s24_refusals_at_the_door_are_kept_and_refused_changes_of_people() {
        let kept = |method, scopes: &[Scope], status: u16| {
            origin(method, scopes).is_refusal(StatusCode::from_u16(status).unwrap())
        };
        let agent = [Scope::Agent("n1".parse().unwrap())];
        assert!(kept(Method::GET, &[Scope::Submitter], 403));
        assert!(!kept(Method::GET, &[Scope::Submitter], 404));
        assert!(kept(Method::POST, &[Scope::Submitter], 422));
        assert!(!kept(Method::POST, &[Scope::Submitter], 201));
        assert!(!kept(Method::POST, &[Scope::Submitter], 503));
        assert!(kept(Method::PUT, &agent, 403) && !kept(Method::PUT, &agent, 409));
    }

    #[tokio::test]
    async fn a_task_knows_whose_request_it_works_on() {
        assert!(current().is_none());
        let origin = origin(Method::PUT, &[Scope::Operator]);
        let seen = origin.scope(async { current() }).await.unwrap();
        assert_eq!(seen.origin.actor(), "ann");
        assert_eq!(seen.origin.path(), "/v1/things", "no query");
    }
}
