//! `hayward replay`: plans a saved round again with the planner of this program, and compares the
//! two plans byte by byte.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use hayward_rm_scheduler::replay::{Replay, Replayed};
use serde_json::json;
use serde_json::value::RawValue;

use crate::commands::work::submit::{display_name, read_text};
use crate::connection::{Role, Service, Session};
use crate::output::format::{format_count, sanitize};
use crate::output::{Renderer, Tone, note, print};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The number of a round that changed something, or a file that `--save` wrote. `-` is standard
    /// input.
    #[arg(value_name = "ROUND|FILE")]
    pub round_or_file: String,
    /// Save the inputs and the plan of the round to this file, as a test case.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (name, text) = load_round(&session, &arguments.round_or_file).await?;
    if let Some(file) = &arguments.save {
        std::fs::write(file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let replay = Replay::read(&text).with_context(|| name.clone())?;
    let started = Instant::now();
    let plan = replay.plan();
    let planning_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let replayed = replay.compare(plan)?;
    if session.out.json {
        let mut response = serde_json::to_value(&replayed)?;
        response["planning_us"] = json!(planning_us);
        session.out.json(&response)?;
    } else {
        print(&summary(&replayed, planning_us, &session.out.renderer()))?;
    }
    if replayed.equal {
        return Ok(ExitCode::SUCCESS);
    }
    note(&format!("{name}: this planner makes another plan of it"));
    Ok(ExitCode::FAILURE)
}

/// Loads the saved round. Returns its text and its name in the output.
async fn load_round(session: &Session, round_or_file: &str) -> anyhow::Result<(String, String)> {
    let Ok(round) = round_or_file.parse::<u64>() else {
        let file = PathBuf::from(round_or_file);
        return Ok((display_name(&file), read_text(&file)?));
    };
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let path = format!("/v1/rounds/{round}/inputs");
    // The JSON stays unparsed, because the comparison is by text.
    let response: Box<RawValue> = client.get(&path).await?;
    Ok((format!("round {round}"), response.get().to_owned()))
}

fn summary(replayed: &Replayed, planning_us: u64, renderer: &Renderer) -> String {
    let (verdict, tone) = if replayed.equal {
        ("the same plan, to the byte", Tone::Good)
    } else {
        ("another plan", Tone::Bad)
    };
    let mut text = format!(
        "round {}: {}\n",
        replayed.round,
        renderer.paint(verdict, tone)
    );
    let _ = writeln!(
        text,
        "{}, {}, planned in {}.{:03}ms",
        format_count(replayed.grants as u64, "grant"),
        format_count(replayed.vacates as u64, "vacate"),
        planning_us / 1_000,
        planning_us % 1_000,
    );
    for (reason, number) in &replayed.verdicts {
        let _ = writeln!(text, "  {number:>7}  {}", reason.replace('_', " "));
    }
    for difference in &replayed.differences {
        let _ = writeln!(text, "{}", sanitize(difference));
    }
    text
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::Timestamp;

    use super::*;

    #[test]
    fn a_replay_summary_lists_the_differences() {
        let replayed = Replayed {
            round: 7,
            equal: false,
            grants: 1,
            vacates: 2,
            verdicts: [("satisfied".to_owned(), 3), ("at_fair_share".to_owned(), 1)].into(),
            differences: vec!["/grants/0/node: kept \"n1\", now \"n2\"".into()],
            plan: hayward_rm_scheduler::replay::Plan::default(),
        };
        let renderer = Renderer {
            colour: false,
            now: Timestamp::default(),
        };
        insta::assert_snapshot!(summary(&replayed, 1_250, &renderer));
    }
}
