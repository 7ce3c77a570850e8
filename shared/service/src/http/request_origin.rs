//! Origin of a command: the request with its principal, for audit records and conditions (S24).
//!
//! The server stores it in a task local of the request, so that handlers need not pass it on. A
//! command without an origin is a decision of the service itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{ConnectInfo, MatchedPath, Request};
use axum::response::Response;
use http::{HeaderName, Method, StatusCode};

use super::request_context::current_id;
use crate::auth::{Principal, Scope};
use crate::problem::{Code, Problem};
use crate::trace::trace_id_of;

pub const REVISION: HeaderName = HeaderName::from_static("hayward-revision");
/// Header that allows a change only at this revision of the service (A10).
pub const IF_REVISION: HeaderName = HeaderName::from_static("if-revision");

/// Kind of a principal, by the strongest of its scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActorKind {
    /// No valid token.
    Unauthenticated,
    Operator,
    Orchestrator,
    Owner,
    Submitter,
    Viewer,
    Auditor,
    Scraper,
    Agent,
    Runner,
    Service,
    /// A valid token without a known scope.
    Unscoped,
}

impl ActorKind {
    pub fn from_scopes(scopes: &[Scope]) -> Self {
        let kinds = scopes.iter().map(|scope| match scope {
            Scope::Operator => Self::Operator,
            Scope::Orchestrator(_) => Self::Orchestrator,
            Scope::Owner(_) => Self::Owner,
            Scope::Submitter => Self::Submitter,
            Scope::Viewer => Self::Viewer,
            Scope::Auditor => Self::Auditor,
            Scope::Scraper => Self::Scraper,
            Scope::Agent(_) => Self::Agent,
            Scope::Runner(_) => Self::Runner,
            Scope::Service(_) => Self::Service,
        });
        kinds.min().unwrap_or(Self::Unscoped)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unauthenticated => "stranger",
            Self::Operator => "operator",
            Self::Orchestrator => "orchestrator",
            Self::Owner => "owner",
            Self::Submitter => "submitter",
            Self::Viewer => "viewer",
            Self::Auditor => "auditor",
            Self::Scraper => "scraper",
            Self::Agent => "agent",
            Self::Runner => "runner",
            Self::Service => "service",
            Self::Unscoped => "nobody",
        }
    }

    /// Returns whether the actor is a part of the fleet. Such actors report many times a second and
    /// are audited together.
    pub fn is_fleet(self) -> bool {
        matches!(self, Self::Agent | Self::Runner | Self::Service)
    }
}

/// The request that a task handles.
#[derive(Debug)]
pub struct RequestOrigin {
    principal: Option<Arc<Principal>>,
    kind: ActorKind,
    address: Option<SocketAddr>,
    method: Method,
    route: Option<MatchedPath>,
    uri: http::Uri,
    if_revision: IfRevision,
    /// Whether the change is a dry run.
    dry_run: bool,
    /// Revision at which the changes of the request are visible. 0 before the first change.
    revision: AtomicU64,
}

/// Value of the header `If-Revision`.
#[derive(Debug, Clone, Copy)]
enum IfRevision {
    Absent,
    Revision(u64),
    Unreadable,
}

/// Origin of one command: the request, with its request id and trace id.
#[derive(Debug, Clone)]
pub struct CommandOrigin {
    pub request: Arc<RequestOrigin>,
    pub request_id: Option<String>,
    pub trace_id: Option<String>,
}

tokio::task_local! {
    static ORIGIN: Arc<RequestOrigin>;
}

impl RequestOrigin {
    pub fn from_request(request: &Request, principal: Option<Arc<Principal>>) -> Arc<Self> {
        let kind = principal
            .as_ref()
            .map_or(ActorKind::Unauthenticated, |principal| {
                match principal.actor {
                    // While an orchestrator acts for a user, it has the scopes of the user.
                    Some(_) => ActorKind::Orchestrator,
                    None => ActorKind::from_scopes(&principal.scopes),
                }
            });
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        Arc::new(Self {
            principal,
            kind,
            address: peer.map(|peer| peer.0),
            method: request.method().clone(),
            route: request.extensions().get::<MatchedPath>().cloned(),
            uri: request.uri().clone(),
            if_revision: if_revision_of(request),
            revision: AtomicU64::new(0),
            dry_run: !request.method().is_safe() && is_dry_run(request.uri().query()),
        })
    }

    /// Records the revision at which a change of this request is visible.
    pub fn record_revision(&self, revision: u64) {
        self.revision.fetch_max(revision, Ordering::Relaxed);
    }

    /// Adds the revision of a change to its response (A11).
    pub fn add_revision_header(&self, response: &mut Response) {
        let revision = self.revision.load(Ordering::Relaxed);
        if !self.method.is_safe() && revision > 0 && response.status().is_success() {
            let headers = response.headers_mut();
            headers.entry(REVISION).or_insert(revision.into());
        }
    }

    /// Returns whether the request is a dry run, which changes nothing (A10).
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Returns the revision at which the service must be for this change. `None` allows any
    /// revision (A10).
    ///
    /// # Errors
    /// 400 if the header is not a revision.
    pub fn if_revision(&self) -> Result<Option<u64>, Problem> {
        match self.if_revision {
            IfRevision::Absent => Ok(None),
            IfRevision::Revision(revision) => Ok(Some(revision)),
            IfRevision::Unreadable => {
                let detail = "takes a revision: a whole number";
                let problem = Problem::new(Code::BadRequest, "If-Revision cannot be understood");
                Err(problem.at("/header/if-revision", detail))
            }
        }
    }

    /// Returns the sender of the request.
    pub fn actor(&self) -> &str {
        self.principal.as_ref().map_or("", |it| it.actor())
    }

    /// Returns the represented user if the actor acts for a user, otherwise the actor (S10).
    pub fn subject(&self) -> &str {
        self.principal.as_ref().map_or("", |it| it.name.as_str())
    }

    pub fn kind(&self) -> ActorKind {
        self.kind
    }

    /// Returns the address without the port.
    pub fn address(&self) -> Option<String> {
        self.address.map(|address| address.ip().to_string())
    }

    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    pub fn route(&self) -> &str {
        self.route.as_ref().map_or("", MatchedPath::as_str)
    }

    /// Returns the path without the query, which may contain a token by mistake (S8).
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// Runs `work` with this origin as the current one.
    pub async fn scope<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        ORIGIN.scope(self, work).await
    }

    /// Adds the ids of the current request.
    pub fn for_command(self: Arc<Self>) -> CommandOrigin {
        CommandOrigin {
            request: self,
            request_id: current_id(),
            trace_id: trace_id_of(&tracing::Span::current()),
        }
    }

    /// Returns whether a refusal is audited. 401 and 403 always are, other refusals only for
    /// changes by people. Late or repeated reports of the fleet are not audited.
    pub fn is_audited_refusal(&self, status: StatusCode) -> bool {
        let is_auth_failure = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let is_change_by_person = !self.method.is_safe() && !self.kind.is_fleet();
        is_auth_failure || (is_change_by_person && status.is_client_error())
    }
}

/// Reads the header of a change. The header of a read is ignored.
fn if_revision_of(request: &Request) -> IfRevision {
    let Some(value) = request.headers().get(IF_REVISION) else {
        return IfRevision::Absent;
    };
    if request.method().is_safe() {
        return IfRevision::Absent;
    }
    let text = value.to_str().unwrap_or_default().trim();
    // A revision is a bigint in the database, which limits its value.
    let revision = text
        .parse()
        .ok()
        .filter(|it| *it <= i64::MAX.unsigned_abs());
    revision.map_or(IfRevision::Unreadable, IfRevision::Revision)
}

pub(crate) fn is_dry_run(query: Option<&str>) -> bool {
    let mut parts = query.unwrap_or("").split('&');
    parts.any(|part| part == "dry_run=true")
}

/// Returns the request of this task. Returns `None` outside a request.
pub fn current() -> Option<CommandOrigin> {
    ORIGIN
        .try_with(Arc::clone)
        .ok()
        .map(RequestOrigin::for_command)
}

/// Receives refused requests.
pub trait RefusalObserver: Send + Sync {
    fn refused(&self, request: CommandOrigin, status: u16);
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn origin(method: Method, scopes: &[Scope]) -> Arc<RequestOrigin> {
        let request = Request::builder()
            .method(method)
            .uri("/v1/things?token=secret")
            .body(Body::empty())
            .unwrap();
        RequestOrigin::from_request(&request, Some(Arc::new(Principal::new("ann", scopes))))
    }

    #[test]
    fn the_strongest_scope_gives_the_kind() {
        let agent = Scope::Agent("n1".parse().unwrap());
        let kind = |scopes: &[Scope]| ActorKind::from_scopes(scopes).as_str();
        assert_eq!(kind(&[Scope::Viewer, Scope::Operator]), "operator");
        assert_eq!(kind(&[agent, Scope::Submitter]), "submitter");
        assert_eq!(kind(&[]), "nobody");
    }

    #[test]
    fn failed_authentications_and_refused_changes_by_people_are_audited() {
        let is_audited = |method, scopes: &[Scope], status: u16| {
            origin(method, scopes).is_audited_refusal(StatusCode::from_u16(status).unwrap())
        };
        let agent = [Scope::Agent("n1".parse().unwrap())];
        assert!(is_audited(Method::GET, &[Scope::Submitter], 403));
        assert!(!is_audited(Method::GET, &[Scope::Submitter], 404));
        assert!(is_audited(Method::POST, &[Scope::Submitter], 422));
        assert!(!is_audited(Method::POST, &[Scope::Submitter], 201));
        assert!(!is_audited(Method::POST, &[Scope::Submitter], 503));
        assert!(is_audited(Method::PUT, &agent, 403) && !is_audited(Method::PUT, &agent, 409));
    }

    #[test]
    fn dry_run_and_if_revision_are_read_from_every_change() {
        let origin_of = |method: Method, query: &str, revision: Option<&str>| {
            let mut request = Request::builder()
                .method(method)
                .uri(format!("/v1/x?{query}"));
            if let Some(revision) = revision {
                request = request.header(IF_REVISION, revision);
            }
            RequestOrigin::from_request(&request.body(Body::empty()).unwrap(), None)
        };
        let is_dry_run = |query| origin_of(Method::PUT, query, None).is_dry_run();
        assert!(is_dry_run("dry_run=true") && is_dry_run("a=b&dry_run=true"));
        assert!(!is_dry_run("") && !is_dry_run("dry_run=false") && !is_dry_run("not_dry_run=true"));
        assert!(!origin_of(Method::GET, "dry_run=true", None).is_dry_run());
        let if_revision = |text| origin_of(Method::PUT, "", text).if_revision();
        assert_eq!(
            origin_of(Method::GET, "", Some("17"))
                .if_revision()
                .unwrap(),
            None
        );
        assert_eq!(if_revision(None).unwrap(), None);
        assert_eq!(if_revision(Some("17")).unwrap(), Some(17));
        for bad in ["", "-1", "\"17\"", "soon", "9223372036854775808"] {
            assert_eq!(if_revision(Some(bad)).unwrap_err().status(), 400, "{bad}");
        }
    }

    #[tokio::test]
    async fn the_origin_is_available_within_its_task() {
        assert!(current().is_none());
        let origin = origin(Method::PUT, &[Scope::Operator]);
        let current_origin = origin.scope(async { current() }).await.unwrap();
        assert_eq!(current_origin.request.actor(), "ann");
        assert_eq!(current_origin.request.path(), "/v1/things", "no query");
    }
}
