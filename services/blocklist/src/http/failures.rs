//! `POST /v1/blocklist/failures`: failures that owners of jobs report, for evaluation by the
//! strategy.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_blocklist_api::{FailureAnswer, FailureReport};
use hayward_blocklist_domain::{Attempt, Fact, FactKind};
use hayward_service::auth::Caller;
use hayward_service::http::extract::Json;
use hayward_service::http::problem::{Code, FieldFault, Problem};
use hayward_vocabulary::{ExitCause, NodeName, Timestamp, UserName, WorkId};
use serde::Deserialize;

use super::{App, require_reporter, revision_header};
use crate::command::Command;

/// Maximum number of locations of one report.
const MAX_LOCATIONS: usize = 1000;
/// Maximum number of characters of a cause.
const MAX_CAUSE_CHARS: usize = 1024;
/// Cause code of a slow task.
const SLOW_TASK: &str = "slow_task";

/// JSON of the API type `FailureReport` before validation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureReportBody {
    job_id: String,
    locations: Vec<Location>,
    cause: String,
    #[serde(default)]
    cause_code: Option<String>,
    #[serde(default)]
    intended: bool,
    timestamp: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Location {
    node: String,
    #[serde(default)]
    worker: Option<String>,
}

impl FailureReportBody {
    /// Returns the facts of the report. The report of an intended end has none.
    fn into_facts(self, reporter: &str) -> Result<Vec<(NodeName, Fact)>, Problem> {
        let mut faults = Vec::new();
        let mut add_fault = |pointer: String, detail: String| {
            faults.push(FieldFault { pointer, detail });
        };
        let work = WorkId::new(self.job_id.as_str());
        if let Err(error) = &work {
            add_fault("/job_id".to_owned(), error.to_string());
        }
        let user = UserName::new(reporter);
        let at = self.timestamp.parse::<Timestamp>();
        if at.is_err() {
            let expected = "must be an RFC 3339 timestamp, such as 2026-11-21T10:42:00Z";
            add_fault("/timestamp".to_owned(), expected.to_owned());
        }
        if self.cause.trim().is_empty() || self.cause.chars().count() > MAX_CAUSE_CHARS {
            add_fault(
                "/cause".to_owned(),
                format!("must have 1 to {MAX_CAUSE_CHARS} characters"),
            );
        }
        let code = self.cause_code.as_deref();
        // Cause codes have the same form as names of nodes.
        if let Some(Err(error)) = code.map(NodeName::new) {
            let error = error.to_string().replacen("node", "class", 1);
            add_fault("/cause_code".to_owned(), error);
        }
        let locations = self.parse_locations(&mut faults);
        let (Ok(work), Ok(user), Ok(at), true) = (work, user, at, faults.is_empty()) else {
            return Err(invalid_report(faults));
        };
        let parsed = parse_cause_code(code);
        if self.intended || parsed.cause == ExitCause::Intended {
            return Ok(Vec::new());
        }
        let attempt = Attempt {
            work,
            user,
            cause: parsed.cause,
            cause_class: parsed.cause_class,
            has_run: false,
            occupied_ms: 0,
        };
        let to_fact = |(node, worker): (NodeName, &str)| {
            let fact = Fact {
                // A repeated report gets the same key, so that it adds no second fact.
                key: format!(
                    "told/{reporter}/{}/{node}/{worker}/{}",
                    attempt.work,
                    at.unix_ms()
                ),
                kind: parsed.kind,
                at,
                attempt: Some(attempt.clone()),
                spent: false,
            };
            (node, fact)
        };
        Ok(locations.into_iter().map(to_fact).collect())
    }

    /// Returns the node and the worker of each valid location. The worker is empty if there is
    /// none. Adds a fault for each invalid location.
    fn parse_locations(&self, faults: &mut Vec<FieldFault>) -> Vec<(NodeName, &str)> {
        if !(1..=MAX_LOCATIONS).contains(&self.locations.len()) {
            faults.push(FieldFault {
                pointer: "/locations".to_owned(),
                detail: format!("takes 1 to {MAX_LOCATIONS} locations"),
            });
        }
        let mut locations = Vec::new();
        for (index, location) in self.locations.iter().enumerate() {
            match NodeName::new(location.node.as_str()) {
                Ok(node) => locations.push((node, location.worker.as_deref().unwrap_or(""))),
                Err(error) => faults.push(FieldFault {
                    pointer: format!("/locations/{index}/node"),
                    detail: error.to_string(),
                }),
            }
        }
        locations
    }
}

fn invalid_report(faults: Vec<FieldFault>) -> Problem {
    let mut problem = Problem::new(Code::Invalid, "invalid failure report");
    problem.errors = faults;
    problem
}

/// Meaning of a cause code.
struct ParsedCause {
    kind: FactKind,
    cause: ExitCause,
    /// Class of a failure that counts against the node. `None` if the code is not a class.
    cause_class: Option<String>,
}

/// Interprets a cause code as a slow task, the cause of an exit, or a cause class.
fn parse_cause_code(code: Option<&str>) -> ParsedCause {
    let failure = |cause, cause_class| ParsedCause {
        kind: FactKind::Failure,
        cause,
        cause_class,
    };
    let Some(code) = code else {
        return failure(ExitCause::Unknown, None);
    };
    if code == SLOW_TASK {
        return ParsedCause {
            kind: FactKind::Slow,
            cause: ExitCause::Unknown,
            cause_class: None,
        };
    }
    let intended_causes = [
        "placement",
        "release",
        "evacuation",
        "preemption",
        "cancellation",
    ];
    if intended_causes.contains(&code) {
        return failure(ExitCause::Intended, None);
    }
    match serde_json::from_value(code.into()) {
        Ok(ExitCause::Unknown) | Err(_) => failure(ExitCause::Unknown, Some(code.to_owned())),
        Ok(cause) => failure(cause, None),
    }
}

/// Report failures on nodes. The strategy evaluates them. The response has the items that it added.
#[utoipa::path(
    post, path = "/v1/blocklist/failures", operation_id = "report_failures", tag = "evidence",
    request_body = FailureReport,
    responses(
        (status = 202, description = "recorded", body = FailureAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 403, description = "neither operator, owner nor service", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "invalid failure report", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn report_failures(
    State(app): State<App>,
    caller: Caller,
    Json(report): Json<FailureReportBody>,
) -> Result<(StatusCode, HeaderMap, Json<FailureAnswer>), Problem> {
    let facts = report.into_facts(require_reporter(&caller)?)?;
    let committed = app
        .handle
        .execute(|reply| Command::ReportFailures(facts, reply))
        .await?;
    let answer = FailureAnswer {
        items: committed.value,
        revision: committed.revision,
    };
    Ok((
        StatusCode::ACCEPTED,
        revision_header(committed.revision),
        Json(answer),
    ))
}
