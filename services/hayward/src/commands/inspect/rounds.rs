//! `hayward rounds`: lists the latest decisions of the scheduler.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::views::{RoundList, RoundView};

use crate::connection::{Role, Service, Session};
use crate::output::format::{clean, word};
use crate::output::reasons;
use crate::output::{Renderer, Table, Tone, toned};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// One round, with every decision of it.
    #[arg(value_name = "ROUND")]
    pub round: Option<u64>,
    /// The newest so many.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = limit())]
    pub limit: u64,
}

fn limit() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1000)
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    if let Some(round) = arguments.round {
        let answer = client.get(&format!("/v1/rounds/{round}")).await?;
        return session.out.answer(answer, |round: &RoundView, renderer| {
            detail(round, renderer)
        });
    }
    let answer = client
        .get(&format!("/v1/rounds?limit={}", arguments.limit))
        .await?;
    session.out.answer(answer, |list: &RoundList, renderer| {
        table(&list.rounds, renderer)
    })
}

pub fn table(rounds: &[RoundView], renderer: &Renderer) -> String {
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
    let mut table = Table::new(header).numbers(&[0, 2, 3, 4, 5, 6]);
    for round in rounds {
        let refused = round.refused.len();
        table.row([
            round.round.into(),
            renderer.age(round.at).into(),
            planned(round.planning_us).into(),
            round.grants.len().into(),
            round.vacated.len().into(),
            round.waiting.len().into(),
            toned(refused, if refused > 0 { Tone::Bad } else { Tone::Plain }),
        ]);
    }
    table.text(renderer)
}

fn planned(us: u64) -> String {
    if us < 1000 {
        format!("{us}µs")
    } else {
        format!("{}.{}ms", us / 1000, us % 1000 / 100)
    }
}

fn detail(round: &RoundView, renderer: &Renderer) -> String {
    let mut text = format!(
        "round {} at {}, planned in {}\n",
        round.round,
        round.at,
        planned(round.planning_us)
    );
    for allocation in &round.grants {
        let _ = writeln!(text, "granted  {allocation}");
    }
    for (allocation, reason) in &round.vacated {
        let _ = writeln!(text, "vacated  {}  {}", clean(allocation), clean(reason));
    }
    for story in reasons::preemptions_in_round(&round.receipts) {
        let _ = writeln!(text, "receipt  {story}");
    }
    for fault in &round.refused {
        let fault = format!("refused  {}", clean(fault));
        let _ = writeln!(text, "{}", renderer.paint(&fault, Tone::Bad));
    }
    if let Some(why) = &round.without_inputs {
        let _ = writeln!(text, "cannot be replayed: {}", clean(why));
    }
    if !round.waiting.is_empty() {
        let mut table = Table::new(["work", "waits for", "detail"]);
        for verdict in &round.waiting {
            table.row([
                (&verdict.work).into(),
                word(&verdict.reason).into(),
                (&verdict.detail).into(),
            ]);
        }
        let _ = write!(text, "\n{}", table.text(renderer));
    }
    text
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::{AllocationId, Timestamp};

    use super::*;

    #[test]
    fn rounds_and_one_round() {
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
        insta::assert_snapshot!(table(std::slice::from_ref(&round), &renderer));
        insta::assert_snapshot!(detail(&round, &renderer));
    }
}
