//! `GET /v1/invariants`: the rules of the specification, evaluated on live state (section 1).
//!
//! What a rule says of the working set is pure code in each service. Here is what they share: a
//! look on demand and one each minute, how often looks are taken, what is remembered from look to
//! look, and who is told. A look reads memory alone and changes nothing. Somebody is told when the
//! result of a rule changes, and not each time it is looked at.

mod gauges;
mod history;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use hayward_vocabulary::Timestamp;
use hayward_vocabulary::invariant::{Evidence, Finding};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::authorization::{Role, RouteRoles, authorize};
use crate::http::extract::Json;
use crate::http::problem::{Code, Problem};
use crate::runtime::clock::{Clock, SystemClock};
use crate::runtime::shutdown::Shutdown;

use history::{History, Transition};

/// Between the looks that nobody asks for.
const INTERVAL: Duration = Duration::from_mins(1);
/// The part of the time that looks take at most: who asks more often is given the last one.
const MIN_PAUSE_FACTOR: u32 = 50;
/// However long one took, part of which is waiting for rows, the next may come after this.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// No look takes longer; what takes longer is no cheap look.
const TIMEOUT: Duration = Duration::from_secs(10);

/// S12: what is evidence may name anybody's work.
const TABLE: RouteRoles = &[("list_invariants", &[Role::Operator, Role::Viewer])];

/// How one rule stood at the last look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RuleStanding)]
pub struct RuleStatus {
    /// As in the specification, such as `I2`.
    pub id: String,
    pub title: String,
    pub result: RuleResult,
    /// Why it was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Of the state that was looked at.
    pub revision: u64,
    pub checked_at: Timestamp,
    /// When it last held, as far as this process knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_at: Option<Timestamp>,
    /// How many things were looked at.
    pub examined: u64,
    /// How often it is broken.
    pub violations: u64,
    /// Where it is broken: the first ten places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    pub took_us: u64,
}

/// Open: a later version may say more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleResult {
    Holds,
    Violated,
    /// It is not known; `why` says why.
    NotChecked,
    #[serde(other)]
    Unknown,
}

/// The rules this service can see in its own state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Invariants {
    pub service: String,
    pub revision: u64,
    pub checked_at: Timestamp,
    /// In order of id.
    pub rules: Vec<RuleStatus>,
}

/// A finding, and what it took to come to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedFinding {
    pub finding: Finding,
    pub took_us: u64,
}

/// Looks at one rule and at the clock.
pub fn timed_finding(look: impl FnOnce() -> Finding) -> TimedFinding {
    let started = Instant::now();
    let finding = look();
    TimedFinding {
        finding,
        took_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
    }
}

/// What one look saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    pub findings: Vec<TimedFinding>,
    pub revision: u64,
}

/// Takes a look, or says why it cannot.
pub trait InvariantSource: Send + Sync {
    fn evaluate(&self) -> Pin<Box<dyn Future<Output = Result<Evaluation, Problem>> + Send + '_>>;
}

/// Nothing can be seen: for descriptions alone.
struct NoSource;

impl InvariantSource for NoSource {
    fn evaluate(&self) -> Pin<Box<dyn Future<Output = Result<Evaluation, Problem>> + Send + '_>> {
        Box::pin(async { Err(Problem::standby()) })
    }
}

/// Watches over the rules of one service. Cheap to clone.
#[derive(Clone)]
pub struct InvariantMonitor {
    service: &'static str,
    source: Arc<dyn InvariantSource>,
    clock: Arc<dyn Clock>,
    progress: Arc<Mutex<Progress>>,
}

#[derive(Default)]
struct Progress {
    history: History,
    last: Option<(Instant, Duration, Invariants)>,
    /// What was asked for is not taken back when patience ends, so the next waits for it as well.
    failed: Option<(Instant, Duration, Problem)>,
}

impl InvariantMonitor {
    pub fn new(service: &'static str, source: impl InvariantSource + 'static) -> Self {
        Self {
            service,
            source: Arc::new(source),
            clock: Arc::new(SystemClock),
            progress: Arc::default(),
        }
    }

    /// One that is only described.
    pub fn described(service: &'static str) -> Self {
        Self::new(service, NoSource)
    }

    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The route, to be merged into those of the service.
    pub fn routes(self) -> OpenApiRouter {
        let routes = OpenApiRouter::default().routes(routes!(list_invariants));
        authorize(routes, TABLE).with_state(self)
    }

    /// Looks each minute until the shutdown, so that a broken rule is told when nobody asks.
    pub fn spawn(&self, shutdown: Shutdown) {
        let monitor = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(INTERVAL) => {}
                    () = shutdown.wait() => return,
                }
                // A replica that does not lead has nothing to look at, and says so when asked.
                drop(monitor.evaluate().await);
            }
        });
    }

    /// A look at the rules: a new one, or the last one where looks come too close together. One at
    /// a time; who comes meanwhile waits.
    ///
    /// # Errors
    /// When there is nothing to look at, such as where this replica does not lead.
    pub async fn evaluate(&self) -> Result<Invariants, Problem> {
        let mut progress = self.progress.lock().await;
        if let Some((taken, cost, answer)) = &progress.last
            && taken.elapsed() < (*cost * MIN_PAUSE_FACTOR).min(MAX_PAUSE)
        {
            return Ok(answer.clone());
        }
        if let Some((taken, cost, problem)) = &progress.failed
            && taken.elapsed() < (*cost * MIN_PAUSE_FACTOR).min(INTERVAL)
        {
            return Err(problem.clone());
        }
        let started = Instant::now();
        let evaluation = tokio::time::timeout(TIMEOUT, self.source.evaluate()).await;
        let too_long = |_| {
            let detail = "a look took too long: the service has too much else to do";
            Problem::new(Code::Unavailable, detail).retry_after_ms(5_000)
        };
        let evaluation = evaluation
            .map_err(too_long)
            .and_then(|evaluation| evaluation);
        let evaluation = evaluation.inspect_err(|problem| {
            progress.last = None;
            progress.failed = Some((Instant::now(), started.elapsed(), problem.clone()));
            gauges::clear(self.service);
        })?;
        progress.failed = None;
        let now = self.clock.now();
        let transitions = progress.history.record(&evaluation, now);
        let answer = Invariants {
            service: self.service.to_owned(),
            revision: evaluation.revision,
            checked_at: now,
            rules: progress.history.status(),
        };
        self.publish(&transitions, &answer);
        progress.last = Some((started, started.elapsed(), answer.clone()));
        Ok(answer)
    }

    fn publish(&self, transitions: &[Transition], answer: &Invariants) {
        for transition in transitions {
            self.log(transition);
        }
        gauges::set(self.service, answer);
    }

    fn log(&self, transition: &Transition) {
        let (service, rule) = (self.service, transition.id);
        match transition.now {
            RuleResult::Violated => tracing::error!(
                service,
                rule,
                title = transition.title,
                violations = transition.violations,
                first = transition.first,
                "an invariant is broken"
            ),
            RuleResult::Holds => tracing::info!(service, rule, "an invariant holds again"),
            RuleResult::NotChecked | RuleResult::Unknown => tracing::warn!(
                service,
                rule,
                why = transition.first,
                "an invariant is not checked any more"
            ),
        }
    }
}

/// How the invariants stand that this service can see: a look at live state.
///
/// What a rule says is in the operations manual. A look that follows another closely is answered
/// from that one; `checked_at` says from when it is.
#[utoipa::path(
    get, path = "/v1/invariants", operation_id = "list_invariants", tag = "health",
    responses(
        (status = 200, description = "how the rules stand", body = Invariants),
        (status = 403, description = "this takes the scope operator or viewer", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
async fn list_invariants(
    State(monitor): State<InvariantMonitor>,
) -> Result<Json<Invariants>, Problem> {
    monitor.evaluate().await.map(Json)
}

#[cfg(test)]
mod tests;
