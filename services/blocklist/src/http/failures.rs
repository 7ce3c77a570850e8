//! `POST /v1/blocklist/failures`: what owners of jobs saw, for the strategy to judge.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_blocklist_api::{FailureAnswer, FailureReport};
use hayward_blocklist_domain::{Attempt, Fact, What};
use hayward_service::auth::Caller;
use hayward_service::http::extract::Json;
use hayward_service::http::problem::{Code, FieldFault, Problem};
use hayward_vocabulary::{ExitCause, NodeName, Timestamp, UserName, WorkId};
use serde::Deserialize;

use super::{App, reporter, revision};
use crate::command::Command;

/// Locations of one report.
const LOCATIONS: usize = 1000;
/// Characters of a cause.
const CAUSE: usize = 1024;
const SLOW: &str = "slow_task";

/// The JSON of a `FailureReport`, before its words are understood.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
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

impl Draft {
    /// The facts in it: none where it was intended.
    fn read(self, by: &str) -> Result<Vec<(NodeName, Fact)>, Problem> {
        let mut faults = Vec::new();
        let mut fault = |pointer: String, detail: String| {
            faults.push(FieldFault { pointer, detail });
        };
        let work = WorkId::new(self.job_id.as_str());
        if let Err(error) = &work {
            fault("/job_id".to_owned(), error.to_string());
        }
        let user = UserName::new(by);
        let at = self.timestamp.parse::<Timestamp>();
        if at.is_err() {
            let wanted = "an instant is RFC 3339, like 2026-11-21T10:42:00Z";
            fault("/timestamp".to_owned(), wanted.to_owned());
        }
        if self.cause.trim().is_empty() || self.cause.chars().count() > CAUSE {
            fault(
                "/cause".to_owned(),
                format!("takes 1 to {CAUSE} characters"),
            );
        }
        let code = self.cause_code.as_deref();
        if let Some(Err(error)) = code.map(NodeName::new) {
            let error = error.to_string().replacen("node", "class", 1);
            fault("/cause_code".to_owned(), error);
        }
        if !(1..=LOCATIONS).contains(&self.locations.len()) {
            fault(
                "/locations".to_owned(),
                format!("takes 1 to {LOCATIONS} places"),
            );
        }
        let mut nodes = Vec::new();
        for (number, location) in self.locations.iter().enumerate() {
            match NodeName::new(location.node.as_str()) {
                Ok(node) => nodes.push((node, location.worker.as_deref().unwrap_or(""))),
                Err(error) => fault(format!("/locations/{number}/node"), error.to_string()),
            }
        }
        let (Ok(work), Ok(user), Ok(at), true) = (work, user, at, faults.is_empty()) else {
            let mut problem = Problem::new(Code::Invalid, "this does not say what failed where");
            problem.errors = faults;
            return Err(problem);
        };
        let (what, cause, code) = meaning(code);
        if self.intended || cause == ExitCause::Intended {
            return Ok(Vec::new());
        }
        let fact = |(node, worker): (NodeName, &str)| {
            let fact = Fact {
                // The same report told again is the same fact.
                key: format!("told/{by}/{work}/{node}/{worker}/{}", at.unix_ms()),
                what,
                at,
                attempt: Some(Attempt {
                    work: work.clone(),
                    user: user.clone(),
                    cause,
                    code: code.clone(),
                    ran: false,
                    held_ms: 0,
                }),
                spent: false,
            };
            (node, fact)
        };
        Ok(nodes.into_iter().map(fact).collect())
    }
}

/// What a class says: slowness, a cause of an exit, or a fault of the machine.
fn meaning(code: Option<&str>) -> (What, ExitCause, Option<String>) {
    let Some(code) = code else {
        return (What::Failed, ExitCause::Unknown, None);
    };
    if code == SLOW {
        return (What::Slow, ExitCause::Unknown, None);
    }
    let intended = [
        "placement",
        "release",
        "evacuation",
        "preemption",
        "cancellation",
    ];
    if intended.contains(&code) {
        return (What::Failed, ExitCause::Intended, None);
    }
    match serde_json::from_value(code.into()) {
        Ok(ExitCause::Unknown) | Err(_) => {
            (What::Failed, ExitCause::Unknown, Some(code.to_owned()))
        }
        Ok(cause) => (What::Failed, cause, None),
    }
}

/// Tells what failed where. The strategy in force judges it; the answer has the items that came of
/// it, if any.
#[utoipa::path(
    post, path = "/v1/blocklist/failures", operation_id = "report_failures", tag = "evidence",
    request_body = FailureReport,
    responses(
        (status = 202, description = "taken note of", body = FailureAnswer,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 403, description = "neither operator, owner nor service", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "a report that means nothing", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn report_failures(
    State(app): State<App>,
    caller: Caller,
    Json(draft): Json<Draft>,
) -> Result<(StatusCode, HeaderMap, Json<FailureAnswer>), Problem> {
    let facts = draft.read(reporter(&caller)?)?;
    let told = app
        .handle
        .ask(|reply| Command::Report(facts, reply))
        .await?;
    let answer = FailureAnswer {
        items: told.value,
        revision: told.revision,
    };
    Ok((StatusCode::ACCEPTED, revision(told.revision), Json(answer)))
}
