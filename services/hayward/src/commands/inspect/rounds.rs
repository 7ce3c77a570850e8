//! `hayward rounds`: lists the latest decisions of the scheduler.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::views::{RoundList, RoundView};

use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, sanitize};
use crate::output::{Renderer, Table, Tone, preemption_text, toned};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Show this round with all its decisions.
    #[arg(value_name = "ROUND")]
    pub round: Option<u64>,
    /// Maximum number of rounds, the newest first.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = limit_parser())]
    pub limit: u64,
}

fn limit_parser() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1000)
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    if let Some(round) = arguments.round {
        let response = client.get(&format!("/v1/rounds/{round}")).await?;
        return session
            .out
            .print_response(response, |round: &RoundView, renderer| {
                round_text(round, renderer)
            });
    }
    let response = client
        .get(&format!("/v1/rounds?limit={}", arguments.limit))
        .await?;
    session
        .out
        .print_response(response, |list: &RoundList, renderer| {
            render_table(&list.rounds, renderer)
        })
}

pub fn render_table(rounds: &[RoundView], renderer: &Renderer) -> String {
    if rounds.is_empty() {
        return "no round has changed anything yet\n".to_owned();
    }
    let header = [
        "round",
        "age",
        "planned in",
        "granted",
        "vacated",
        "waiting",
        "refused",
    ];
    let mut table = Table::new(header).align_right(&[0, 2, 3, 4, 5, 6]);
    for round in rounds {
        let refused = round.refused.len();
        table.push_row([
            round.round.into(),
            renderer.age(round.at).into(),
            planning_time(round.planning_us).into(),
            round.grants.len().into(),
            round.vacated.len().into(),
            round.waiting.len().into(),
            toned(refused, if refused > 0 { Tone::Bad } else { Tone::Plain }),
        ]);
    }
    table.render(renderer)
}

/// Formats microseconds.
fn planning_time(us: u64) -> String {
    if us < 1000 {
        format!("{us}µs")
    } else {
        format!("{}.{}ms", us / 1000, us % 1000 / 100)
    }
}

fn round_text(round: &RoundView, renderer: &Renderer) -> String {
    let mut text = format!(
        "round {} at {}, planned in {}\n",
        round.round,
        round.at,
        planning_time(round.planning_us)
    );
    for allocation in &round.grants {
        let _ = writeln!(text, "granted  {allocation}");
    }
    for (allocation, reason) in &round.vacated {
        let _ = writeln!(
            text,
            "vacated  {}  {}",
            sanitize(allocation),
            sanitize(reason)
        );
    }
    for preemption in preemption_text::describe_preemptions_in_round(&round.receipts) {
        let _ = writeln!(text, "receipt  {preemption}");
    }
    for fault in &round.refused {
        let fault = format!("refused  {}", sanitize(fault));
        let _ = writeln!(text, "{}", renderer.paint(&fault, Tone::Bad));
    }
    if let Some(reason) = &round.without_inputs {
        let _ = writeln!(text, "cannot be replayed: {}", sanitize(reason));
    }
    if !round.waiting.is_empty() {
        let mut table = Table::new(["work", "waits for", "detail"]);
        for verdict in &round.waiting {
            table.push_row([
                (&verdict.work).into(),
                enum_text(&verdict.reason).into(),
                (&verdict.detail).into(),
            ]);
        }
        let _ = write!(text, "\n{}", table.render(renderer));
    }
    text
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::{AllocationId, Timestamp};

    use super::*;

    #[test]
    fn rounds_are_listed_and_one_round_is_detailed() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let round = RoundView {
            round: 7,
            at,
            planning_us: 1_250,
            grants: vec![AllocationId::new("alc_1").unwrap()],
            vacated: [("alc_2".to_owned(), "preempted".to_owned())].into(),
            receipts: Vec::new(),
            waiting: Vec::new(),
            refused: Vec::new(),
            without_inputs: None,
        };
        let renderer = Renderer {
            colour: false,
            now: at.plus_ms(61_000),
        };
        insta::assert_snapshot!(render_table(std::slice::from_ref(&round), &renderer));
        insta::assert_snapshot!(round_text(&round, &renderer));
    }
}
