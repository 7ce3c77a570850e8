//! `hayward doctor`: checks the health of the fleet and names remedies.
//!
//! The command calls all services in parallel. A missing response is a finding and delays no other
//! check. The evaluation of the responses does no I/O.

mod advice;
mod collect;
mod evaluate;
mod facts;
mod identity;
mod render;

use std::process::ExitCode;

use serde::Serialize;

use crate::connection::{Service, Session};
use crate::output::print;

pub use collect::disk_space;
use evaluate::Finding;
pub use evaluate::{MAX_CLOCK_DIFFERENCE_MS, is_low};
use facts::Facts;

/// Exit code when no service answered.
const EXIT_NO_SERVICE: u8 = 2;

#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(rename = "well")]
    is_healthy: bool,
    #[serde(rename = "needs")]
    findings: &'a [Finding],
    facts: &'a Facts,
}

/// Prints the findings. Returns success for a healthy fleet, failure for findings, and 2 if no
/// service answered.
pub async fn run(session: Session) -> anyhow::Result<ExitCode> {
    // A fleet without addresses is one error instead of five.
    if let Err(error) = session.url(Service::JobConverter) {
        crate::output::note(&format!("hayward: {error:#}"));
        return Ok(ExitCode::from(EXIT_NO_SERVICE));
    }
    let facts = Box::pin(collect::collect_facts(&session)).await;
    let findings = evaluate::evaluate_facts(&facts);
    if session.out.json {
        let report = Report {
            is_healthy: findings.is_empty(),
            findings: &findings,
            facts: &facts,
        };
        session.out.json(&serde_json::to_value(&report)?)?;
    } else {
        print(&render::render(&facts, &findings, &session.out.renderer()))?;
    }
    let has_response = facts.services.iter().any(|it| it.status.is_ok());
    Ok(match (has_response, findings.is_empty()) {
        (false, _) => ExitCode::from(EXIT_NO_SERVICE),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    })
}
