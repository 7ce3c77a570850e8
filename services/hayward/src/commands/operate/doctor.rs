//! `hayward doctor`: is the fleet well, and if not, what to do.
//!
//! Everybody is asked at the same time; what does not answer is a finding and keeps nobody else
//! from being looked at. What follows from the answers is decided by pure code ([`judge`]).

mod advice;
mod collect;
mod evaluate;
mod facts;
mod render;

use std::process::ExitCode;

use serde::Serialize;

use crate::connection::{Service, Session};
use crate::output::print;

pub use collect::room;
use evaluate::Need;
pub use evaluate::{CLOCK_MS, is_low};
use facts::Facts;

/// It could not be looked at all.
const BLIND: u8 = 2;

#[derive(Debug, Serialize)]
struct Findings<'a> {
    well: bool,
    needs: &'a [Need],
    facts: &'a Facts,
}

/// Success when the fleet is well, failure when something needs somebody, and 2 when nothing could
/// be looked at.
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
        print(&render::page(&facts, &needs, &session.out.look()))?;
    }
    let seen = facts.services.iter().any(|it| it.status.is_ok());
    Ok(match (seen, needs.is_empty()) {
        (false, _) => ExitCode::from(BLIND),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    })
}
