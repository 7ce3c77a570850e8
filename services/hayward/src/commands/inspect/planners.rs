//! `hayward planners`: shows the planner of each pool, and the state of external planners.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::planners::{
    ExternalPlanner, PlannerAnswer, PlannerKind, Planners, PoolPlanning,
};
use hayward_vocabulary::plural;

use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_count, format_duration, sanitize};
use crate::output::{Renderer, Table, Tone, toned};

/// Maximum number of refused steps in the output.
const MAX_REFUSED_STEPS: usize = 20;

pub async fn run(session: Session) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let response = client.get("/v1/planners").await?;
    session
        .out
        .print_response(response, |planners: &Planners, renderer| {
            render(planners, renderer)
        })
}

pub fn render(planners: &Planners, renderer: &Renderer) -> String {
    let mut text = format!(
        "round {}, {}\n\n",
        planners.round,
        renderer.ago(planners.at)
    );
    let mut table = Table::new(["pool", "planned by", "where"]);
    for pool in &planners.pools {
        let planner = match pool.kind {
            PlannerKind::FairShare => "fair shares".to_owned(),
            PlannerKind::Capacity => "queues".to_owned(),
            PlannerKind::Http => "a planner outside".to_owned(),
            PlannerKind::Unknown => enum_text(&pool.kind),
        };
        let url = pool.outside.as_ref().map(|it| sanitize(&it.url));
        table.push_row([
            (&pool.pool).into(),
            planner.into(),
            url.unwrap_or_default().into(),
        ]);
    }
    text.push_str(&table.render(renderer));
    for PoolPlanning { pool, outside, .. } in &planners.pools {
        if let Some(planner) = outside {
            let _ = write!(text, "\npool {pool}: {}", planner_state(planner, renderer));
        }
    }
    text
}

/// Describes the current request to an external planner, its failures and its last answer.
fn planner_state(planner: &ExternalPlanner, renderer: &Renderer) -> String {
    let mut text = String::new();
    let request = match (planner.asking, &planner.next_attempt_at) {
        (true, _) => "is being asked".to_owned(),
        (false, Some(at)) => match at.ms_since(renderer.now) {
            0 => "is asked again now".to_owned(),
            ms => format!("is asked again in {}", format_duration(ms)),
        },
        (false, None) => "is not asked: nothing is lacking there".to_owned(),
    };
    let _ = writeln!(text, "{request}");
    if let Some(failure) = planner
        .last_failure
        .as_ref()
        .filter(|_| planner.failures > 0)
    {
        let failure_text = format!(
            "{} in a row, the last {}: {}",
            format_count(planner.failures, "failure"),
            renderer.ago(failure.at),
            sanitize(&failure.detail)
        );
        let _ = writeln!(text, "  {}", renderer.paint(&failure_text, Tone::Warning));
    }
    match &planner.last_answer {
        None => text.push_str("  has not answered yet\n"),
        Some(response) => text.push_str(&response_text(response, renderer)),
    }
    text
}

fn response_text(response: &PlannerAnswer, renderer: &Renderer) -> String {
    let duration_text = format_duration(response.took_ms);
    let mut text = format!(
        "  answered {}, within {duration_text}",
        renderer.ago(response.at)
    );
    match response.used_in {
        None => text.push_str(", and no round has used it yet\n"),
        Some(round) => {
            let _ = writeln!(
                text,
                "; round {round} granted {}, told {} to leave, refused {}",
                plural::processes(response.granted),
                response.vacated,
                format_count(response.refusals, "step"),
            );
        }
    }
    if response.refused.is_empty() {
        return text;
    }
    let mut table = Table::new(["step", "of", "on", "refused", "because"]);
    for step in response.refused.iter().take(MAX_REFUSED_STEPS) {
        table.push_row([
            sanitize(&step.at).into(),
            sanitize(&step.what).into(),
            sanitize(step.node.as_deref().unwrap_or_default()).into(),
            toned(enum_text(&step.reason), Tone::Warning),
            sanitize(&step.detail).into(),
        ]);
    }
    text.push_str(&table.render(renderer));
    let omitted = response
        .refusals
        .saturating_sub(response.refused.len().min(MAX_REFUSED_STEPS) as u64);
    if omitted > 0 {
        let _ = writeln!(text, "and {omitted} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::planners::{PlannerFailure, RefusedStep, StepRefusal};
    use hayward_vocabulary::Timestamp;

    use super::*;

    #[test]
    fn planners_and_refused_steps_are_listed() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let step = RefusedStep {
            at: "/grants/1".into(),
            what: "job_a".into(),
            node: Some("atlantis\u{1b}[31m".into()),
            reason: StepRefusal::UnknownNode,
            detail: "there is no node atlantis".into(),
        };
        let planner = ExternalPlanner {
            url: "http://127.0.0.1:9000/".into(),
            timeout_ms: 2_000,
            asking: false,
            failures: 2,
            last_failure: Some(PlannerFailure {
                at,
                detail: "no answer within 2000 ms".into(),
            }),
            next_attempt_at: Some(at.plus_ms(1_000)),
            last_answer: Some(PlannerAnswer {
                at,
                took_ms: 12,
                revision: 40,
                used_in: Some(41),
                granted: 2,
                vacated: 1,
                refusals: 3,
                refused: vec![step],
            }),
        };
        let idle = ExternalPlanner {
            failures: 0,
            next_attempt_at: None,
            last_answer: None,
            ..planner.clone()
        };
        let pool = |pool: &str, kind, outside| PoolPlanning {
            pool: pool.into(),
            kind,
            outside,
        };
        let planners = Planners {
            round: 41,
            at,
            pools: vec![
                pool("batch", PlannerKind::Capacity, None),
                pool("default", PlannerKind::FairShare, None),
                pool("idle", PlannerKind::Http, Some(idle)),
                pool("out", PlannerKind::Http, Some(planner)),
            ],
        };
        let renderer = Renderer {
            colour: false,
            now: at,
        };
        let text = render(&planners, &renderer);
        assert!(!text.contains('\u{1b}'));
        insta::assert_snapshot!(text);
    }
}
