//! Where a change comes from: the principal and the request behind it (S11, S24).
//!
//! The frame says it once for each request, for the task that works on it. Whoever passes a command
//! on asks for it there, so no handler carries it; a command without one is the service's own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{ConnectInfo, MatchedPath, Request};
use axum::response::Response;
use http::{HeaderName, Method, StatusCode};

use super::problem::{Code, Problem};
use super::request_context::current_id;
use crate::auth::{Principal, Scope};
use crate::trace::trace_id_of;

pub const REVISION: HeaderName = HeaderName::from_static("hayward-revision");
/// A change is wanted only if nothing has changed since this revision (A10).
pub const IF_REVISION: HeaderName = HeaderName::from_static("if-revision");

/// What kind of party a principal is, by the strongest of its scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActorKind {
    /// Nobody whose token was good.
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
    /// A good token without a scope this version knows.
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

    /// A part of the fleet, which reports many times a second and decides nothing of its own.
    pub fn is_fleet(self) -> bool {
        matches!(self, Self::Agent | Self::Runner | Self::Service)
    }
}

/// The request a task works on.
#[derive(Debug)]
pub struct Origin {
    principal: Option<Arc<Principal>>,
    kind: ActorKind,
    address: Option<SocketAddr>,
    method: Method,
    route: Option<MatchedPath>,
    path: http::Uri,
    if_revision: IfRevision,
    /// A change that is only to be tried.
    dry_run: bool,
    /// At which its changes are visible; zero while there are none.
    revision: AtomicU64,
}

/// `If-Revision`, as it was sent.
#[derive(Debug, Clone, Copy)]
enum IfRevision {
    Absent,
    Revision(u64),
    Unreadable,
}

/// The same with its ids, as it goes with a command.
#[derive(Debug, Clone)]
pub struct CommandOrigin {
    pub origin: Arc<Origin>,
    pub request_id: Option<String>,
    pub trace_id: Option<String>,
}

tokio::task_local! {
    static ORIGIN: Arc<Origin>;
}

impl Origin {
    pub fn from_request(request: &Request, principal: Option<Arc<Principal>>) -> Arc<Self> {
        let kind = principal
            .as_ref()
            .map_or(ActorKind::Unauthenticated, |principal| {
                match principal.actor {
                    // Whoever acts for somebody has that user's scopes, and is none.
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
            path: request.uri().clone(),
            if_revision: if_revision_of(request),
            revision: AtomicU64::new(0),
            dry_run: !request.method().is_safe() && is_dry_run(request.uri().query()),
        })
    }

    /// What was asked for its sake is visible at this revision.
    pub fn record_revision(&self, revision: u64) {
        self.revision.fetch_max(revision, Ordering::Relaxed);
    }

    /// A11: a change says at which revision it can be read, also where its route forgets to.
    pub fn add_revision_header(&self, answer: &mut Response) {
        let revision = self.revision.load(Ordering::Relaxed);
        if !self.method.is_safe() && revision > 0 && answer.status().is_success() {
            let headers = answer.headers_mut();
            headers.entry(REVISION).or_insert(revision.into());
        }
    }

    /// A10: nothing may come of it, whatever route it is.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// A10: the revision that the service has to be at for this to be done; `None` in any other
    /// case.
    ///
    /// # Errors
    /// 400 where the header is there and is no revision.
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

    /// Who sent the request.
    pub fn actor(&self) -> &str {
        self.principal.as_ref().map_or("", |it| it.actor())
    }

    /// For whom: the actor, unless it acts for somebody else (S10).
    pub fn subject(&self) -> &str {
        self.principal.as_ref().map_or("", |it| it.name.as_str())
    }

    pub fn kind(&self) -> ActorKind {
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
    pub fn for_command(self: Arc<Self>) -> CommandOrigin {
        CommandOrigin {
            origin: self,
            request_id: current_id(),
            trace_id: trace_id_of(&tracing::Span::current()),
        }
    }

    /// Whether an answer is a refusal that is kept: of whom we do not know or who may not, and of
    /// changes by people. That a part of the fleet asks too late or twice is everyday.
    pub fn is_audited_refusal(&self, status: StatusCode) -> bool {
        let door = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let changes = !self.method.is_safe() && !self.kind.is_fleet();
        door || (changes && status.is_client_error())
    }
}

/// Of a change; what only reads is answered whatever the revision.
fn if_revision_of(request: &Request) -> IfRevision {
    let Some(value) = request.headers().get(IF_REVISION) else {
        return IfRevision::Absent;
    };
    if request.method().is_safe() {
        return IfRevision::Absent;
    }
    let text = value.to_str().unwrap_or_default().trim();
    // A revision is a bigint of the database.
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

/// The request this task works on, if it works on one.
pub fn current() -> Option<CommandOrigin> {
    ORIGIN.try_with(Arc::clone).ok().map(Origin::for_command)
}

/// Who is told of refused requests.
pub trait RefusalObserver: Send + Sync {
    fn refused(&self, asked: CommandOrigin, status: u16);
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
        Origin::from_request(&request, Some(Arc::new(Principal::new("ann", scopes))))
    }

    #[test]
    fn s24_the_strongest_scope_names_the_kind() {
        let agent = Scope::Agent("n1".parse().unwrap());
        let kind = |scopes: &[Scope]| ActorKind::from_scopes(scopes).as_str();
        assert_eq!(kind(&[Scope::Viewer, Scope::Operator]), "operator");
        assert_eq!(kind(&[agent, Scope::Submitter]), "submitter");
        assert_eq!(kind(&[]), "nobody");
    }

    #[test]
    fn s24_refusals_at_the_door_are_kept_and_refused_changes_of_people() {
        let kept = |method, scopes: &[Scope], status: u16| {
            origin(method, scopes).is_audited_refusal(StatusCode::from_u16(status).unwrap())
        };
        let agent = [Scope::Agent("n1".parse().unwrap())];
        assert!(kept(Method::GET, &[Scope::Submitter], 403));
        assert!(!kept(Method::GET, &[Scope::Submitter], 404));
        assert!(kept(Method::POST, &[Scope::Submitter], 422));
        assert!(!kept(Method::POST, &[Scope::Submitter], 201));
        assert!(!kept(Method::POST, &[Scope::Submitter], 503));
        assert!(kept(Method::PUT, &agent, 403) && !kept(Method::PUT, &agent, 409));
    }

    #[test]
    fn a10_what_is_to_be_tried_or_depends_on_a_revision_is_known_of_every_request() {
        let origin_of = |method: Method, query: &str, revision: Option<&str>| {
            let mut request = Request::builder()
                .method(method)
                .uri(format!("/v1/x?{query}"));
            if let Some(revision) = revision {
                request = request.header(IF_REVISION, revision);
            }
            Origin::from_request(&request.body(Body::empty()).unwrap(), None)
        };
        let tried = |query| origin_of(Method::PUT, query, None).is_dry_run();
        assert!(tried("dry_run=true") && tried("a=b&dry_run=true"));
        assert!(!tried("") && !tried("dry_run=false") && !tried("not_dry_run=true"));
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
    async fn a_task_knows_whose_request_it_works_on() {
        assert!(current().is_none());
        let origin = origin(Method::PUT, &[Scope::Operator]);
        let seen = origin.scope(async { current() }).await.unwrap();
        assert_eq!(seen.origin.actor(), "ann");
        assert_eq!(seen.origin.path(), "/v1/things", "no query");
    }
}
