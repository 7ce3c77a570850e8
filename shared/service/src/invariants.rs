//! `GET /v1/invariants`: the rules of the specification, evaluated on live state.
//!
//! Each service evaluates its rules in pure code. This module evaluates them on request and every
//! minute, and limits how often. It stores the last results and logs each change of a result. An
//! evaluation only reads memory.

mod gauges;
mod history;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use hayward_vocabulary::Timestamp;
use hayward_vocabulary::invariant_finding::{Evidence, Finding};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::authorization::{Role, RouteRoles, authorize};
use crate::http::extract::Json;
use crate::problem::{Code, Problem};
use crate::runtime::clock::{Clock, SystemClock};
use crate::runtime::shutdown::Shutdown;

use history::{History, Transition};

/// Interval of evaluations without a request.
const INTERVAL: Duration = Duration::from_mins(1);
/// The pause after an evaluation lasts this many times its duration, up to a maximum. Requests
/// during the pause get the last result or failure.
const MIN_PAUSE_FACTOR: u32 = 50;
/// Maximum pause after a successful evaluation. After a failure, the maximum is `INTERVAL`.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Timeout of an evaluation.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Only these roles may read the results, because evidence may name the work of any user (S12).
const ROUTE_ROLES: RouteRoles = &[("list_invariants", &[Role::Operator, Role::Viewer])];

/// Result of one rule at the last check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RuleStanding)]
pub struct RuleStatus {
    /// Code of the rule in the specification.
    pub id: String,
    pub title: String,
    pub result: RuleResult,
    /// Reason why the rule was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Revision of the examined state.
    pub revision: u64,
    pub checked_at: Timestamp,
    /// Last time the rule held, as far as this process knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_at: Option<Timestamp>,
    /// Number of examined objects.
    pub examined: u64,
    /// Number of violations.
    pub violations: u64,
    /// Evidence of the first ten violations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    pub took_us: u64,
}

/// Result of a rule. Later versions may have more results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleResult {
    Holds,
    Violated,
    /// The result is not known; `why` has the reason.
    NotChecked,
    #[serde(other)]
    Unknown,
}

/// The rules that this service checks in its own state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Invariants {
    pub service: String,
    pub revision: u64,
    pub checked_at: Timestamp,
    /// In order of id.
    pub rules: Vec<RuleStatus>,
}

/// A finding with the duration of its evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedFinding {
    pub finding: Finding,
    pub took_us: u64,
}

/// Evaluates one rule and measures the time.
pub fn timed_finding(check: impl FnOnce() -> Finding) -> TimedFinding {
    let started = Instant::now();
    let finding = check();
    TimedFinding {
        finding,
        took_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
    }
}

/// Findings of one evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    pub findings: Vec<TimedFinding>,
    pub revision: u64,
}

/// Evaluates the rules of a service.
pub trait InvariantSource: Send + Sync {
    fn evaluate(&self) -> Pin<Box<dyn Future<Output = Result<Evaluation, Problem>> + Send + '_>>;
}

/// Source without findings, for the description of the API.
struct NoSource;

impl InvariantSource for NoSource {
    fn evaluate(&self) -> Pin<Box<dyn Future<Output = Result<Evaluation, Problem>> + Send + '_>> {
        Box::pin(async { Err(Problem::standby()) })
    }
}

/// Monitor of the rules of one service. It is cheap to clone.
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
    /// The last result. `None` after a failure.
    last: Option<Cached<Invariants>>,
    /// The last failure. `None` after a success. An evaluation continues after its timeout, so the
    /// next one pauses too.
    failed: Option<Cached<Problem>>,
}

/// Result or failure of an evaluation.
struct Cached<T> {
    evaluated_at: Instant,
    duration: Duration,
    value: T,
}

impl<T> Cached<T> {
    /// Returns whether the pause after the evaluation is not over.
    fn is_recent(&self, max_pause: Duration) -> bool {
        self.evaluated_at.elapsed() < (self.duration * MIN_PAUSE_FACTOR).min(max_pause)
    }
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

    /// Creates a monitor for the description of the API only.
    pub fn without_source(service: &'static str) -> Self {
        Self::new(service, NoSource)
    }

    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the route. The service merges it into its own.
    pub fn routes(self) -> OpenApiRouter {
        let routes = OpenApiRouter::default().routes(routes!(list_invariants));
        authorize(routes, ROUTE_ROLES).with_state(self)
    }

    /// Evaluates every minute until the shutdown, so that a broken rule is logged.
    pub fn spawn(&self, shutdown: Shutdown) {
        let monitor = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(INTERVAL) => {}
                    () = shutdown.wait() => return,
                }
                // An error is normal on a replica that does not lead.
                drop(monitor.evaluate().await);
            }
        });
    }

    /// Evaluates the rules, or returns the last result if it is recent. One evaluation runs at a
    /// time.
    ///
    /// # Errors
    /// If this replica does not lead, or the evaluation took too long.
    pub async fn evaluate(&self) -> Result<Invariants, Problem> {
        let mut progress = self.progress.lock().await;
        if let Some(last) = progress.last.as_ref().filter(|it| it.is_recent(MAX_PAUSE)) {
            return Ok(last.value.clone());
        }
        if let Some(failed) = progress.failed.as_ref().filter(|it| it.is_recent(INTERVAL)) {
            return Err(failed.value.clone());
        }
        let started = Instant::now();
        let evaluation = tokio::time::timeout(TIMEOUT, self.source.evaluate()).await;
        let timed_out = |_| {
            let detail = "the evaluation took too long: the service is too busy";
            Problem::new(Code::Unavailable, detail).retry_after_ms(5_000)
        };
        let evaluation = evaluation
            .map_err(timed_out)
            .and_then(|evaluation| evaluation);
        let evaluation = evaluation.inspect_err(|problem| {
            progress.last = None;
            progress.failed = Some(Cached {
                evaluated_at: Instant::now(),
                duration: started.elapsed(),
                value: problem.clone(),
            });
            gauges::clear(self.service);
        })?;
        progress.failed = None;
        let now = self.clock.now();
        let transitions = progress.history.record(&evaluation, now);
        let invariants = Invariants {
            service: self.service.to_owned(),
            revision: evaluation.revision,
            checked_at: now,
            rules: progress.history.status(),
        };
        self.publish(&transitions, &invariants);
        progress.last = Some(Cached {
            evaluated_at: started,
            duration: started.elapsed(),
            value: invariants.clone(),
        });
        Ok(invariants)
    }

    fn publish(&self, transitions: &[Transition], invariants: &Invariants) {
        for transition in transitions {
            self.log(transition);
        }
        gauges::set(self.service, invariants);
    }

    fn log(&self, transition: &Transition) {
        let (service, rule) = (self.service, transition.id);
        match transition.result {
            RuleResult::Violated => tracing::error!(
                service,
                rule,
                title = transition.title,
                violations = transition.violations,
                first = transition.detail,
                "an invariant is broken"
            ),
            RuleResult::Holds => tracing::info!(service, rule, "an invariant holds again"),
            RuleResult::NotChecked | RuleResult::Unknown => tracing::warn!(
                service,
                rule,
                why = transition.detail,
                "an invariant is not checked any more"
            ),
        }
    }
}

/// Results of the rules that this service checks in its live state.
///
/// The operations manual explains the rules. A request shortly after another one gets the results
/// of the other one; `checked_at` is the time of their check.
#[utoipa::path(
    get, path = "/v1/invariants", operation_id = "list_invariants", tag = "health",
    responses(
        (status = 200, description = "results of the rules", body = Invariants),
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
