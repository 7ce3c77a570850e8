//! `hayward doctor`: checks the health of the fleet and names remedies.
//!
//! It calls all services in parallel. A missing response is a finding and delays no other check.
//! Pure code evaluates the responses.

mod advice;
mod collect;
mod evaluate;
mod facts;
mod render;

use std::process::ExitCode;

use serde::Serialize;

use crate::connection::{Service, Session};
use crate::output::print;

pub use collect::disk_space;
use evaluate::Need;
pub use evaluate::{CLOCK_MS, is_low};
use facts::Facts;

/// Exit code when no service answered.
const BLIND: u8 = 2;

#[derive(Debug, Serialize)]
struct Findings<'a> {
    well: bool,
    needs: &'a [Need],
    facts: &'a Facts,
}

/// Prints the findings. Returns success for a healthy fleet, failure for findings, and 2 if no
/// service answered.
pub async fn run(session: Session) -> anyhow::Result<ExitCode> {
    if let Err(error) = session.url(Service::ALL[0]) {
        crate::output::note(&format!("hayward: {error:#}"));
        return Ok(ExitCode::from(BLIND));
    }
    let facts = Box::pin(collect::all(&session)).await;
    let needs = evaluate::needs(&facts);
    if session.out.json {
        let findings = Findings {
            well: needs.is_empty(),
            needs: &needs,
            facts: &facts,
        };
        session.out.json(&serde_json::to_value(&findings)?)?;
    } else {
        print(&render::page(&facts, &needs, &session.out.renderer()))?;
    }
    let any_answer = facts.services.iter().any(|it| it.status.is_ok());
    Ok(match (any_answer, needs.is_empty()) {
        (false, _) => ExitCode::from(BLIND),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    })
}
