//! Renders the findings as a page for people.

use std::fmt::Write as _;

use hayward_service::invariants::{RuleResult, RuleStatus};

use super::evaluate::Need;
use super::facts::{Blocked, Facts, NodeFacts, ServiceFacts, Waiting};
use crate::output::format::{bytes, clean, duration};
use crate::output::{Renderer, Table, Tone, toned};

/// Number of findings that are printed in full. All others are only counted.
const SHOWN: usize = 20;

pub fn page(facts: &Facts, needs: &[Need], renderer: &Renderer) -> String {
    let mut text = verdict(needs, renderer);
    text.push('\n');
    text.push_str(&services(&facts.services, renderer));
    text.push('\n');
    // Writing to a string never fails.
    let _ = writeln!(text, "invariants  {}", invariants(&facts.services));
    let _ = writeln!(text, "nodes       {}", value_or_error(&facts.nodes, nodes));
    let _ = writeln!(
        text,
        "blocked     {}",
        value_or_error(&facts.blocked, |all| blocked(all))
    );
    let _ = writeln!(
        text,
        "waiting     {}",
        value_or_error(&facts.waiting, |all| waiting(all))
    );
    if let Some(disk) = facts.disk {
        let (free, total) = (bytes(disk.free_bytes), bytes(disk.total_bytes));
        let _ = writeln!(text, "disk        {free} of {total} left here");
    }
    text
}

fn verdict(needs: &[Need], renderer: &Renderer) -> String {
    if needs.is_empty() {
        return renderer.paint("the fleet is well", Tone::Good) + "\n";
    }
    let things = match needs.len() {
        1 => "1 thing needs you".to_owned(),
        many => format!("{many} things need you"),
    };
    let mut text = renderer.paint(&things, Tone::Bad) + "\n";
    for (at, need) in needs.iter().take(SHOWN).enumerate() {
        let (what, action) = (clean(&need.what), clean(&need.action));
        let _ = write!(text, "\n{:>2}. {what}\n    do: {action}\n", at + 1);
    }
    if let Some(more) = needs.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        let _ = write!(text, "\n    and {more} more: --json has all\n");
    }
    text
}

fn value_or_error<T>(answer: &Result<T, String>, human: impl FnOnce(&T) -> String) -> String {
    match answer {
        Ok(answer) => clean(&human(answer)),
        Err(error) => clean(&format!("not known: {error}")),
    }
}

fn services(all: &[ServiceFacts], renderer: &Renderer) -> String {
    let header = [
        "service", "state", "version", "schema", "epoch", "revision", "clock", "behind",
    ];
    let mut table = Table::new(header).numbers(&[3, 4, 5, 6]);
    for service in all {
        let Ok(status) = &service.status else {
            let dash = || "-".into();
            let away = toned("away", Tone::Bad);
            let name = service.name.into();
            table.row([name, away, dash(), dash(), dash(), dash(), dash(), dash()]);
            continue;
        };
        let (state, tone) = match (status.ready, status.leader) {
            (true, true) => ("leads", Tone::Good),
            (true, false) => ("ready", Tone::Good),
            (false, _) => ("not ready", Tone::Bad),
        };
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
        table.row([
            service.name.into(),
            toned(state, tone),
            (&status.version).into(),
            number(status.schema).into(),
            number(status.epoch).into(),
            number(status.revision).into(),
            clock(service.clock_ahead_ms).into(),
            behind(service).into(),
        ]);
    }
    table.text(renderer)
}

/// Formats a clock difference. A difference below the precision of the date header is shown as
/// zero.
fn clock(ahead_ms: Option<i64>) -> String {
    match ahead_ms {
        None => "-".to_owned(),
        Some(ms) if ms.abs() <= 1_000 => "same".to_owned(),
        Some(ms) => {
            let sign = if ms < 0 { '-' } else { '+' };
            format!("{sign}{}", duration(ms.unsigned_abs()))
        }
    }
}

fn behind(service: &ServiceFacts) -> String {
    let lags = service.lags.iter().map(|lag| {
        let how = match (lag.stale, lag.behind) {
            (true, _) => "silent".to_owned(),
            (false, Some(behind)) => behind.to_string(),
            (false, None) => "?".to_owned(),
        };
        format!("{} {how}", lag.publication)
    });
    let text = lags.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn invariants(services: &[ServiceFacts]) -> String {
    let answers = services.iter().filter_map(|it| it.invariants.as_ref().ok());
    let rules: Vec<&RuleStatus> = answers.flat_map(|all| &all.rules).collect();
    let with = |result: RuleResult| {
        let found = rules.iter().filter(|rule| rule.result == result);
        found.map(|rule| rule.id.as_str()).collect::<Vec<_>>()
    };
    let (broken, unknown) = (with(RuleResult::Violated), with(RuleResult::NotChecked));
    let mut text = format!("{} hold", with(RuleResult::Holds).len());
    for (ids, how) in [(broken, "broken"), (unknown, "not checked")] {
        let mut names = ids.clone();
        names.dedup();
        names.sort_unstable();
        names.dedup();
        if !ids.is_empty() {
            let _ = write!(text, ", {} {how} ({})", ids.len(), names.join(", "));
        }
    }
    text
}

fn nodes(nodes: &NodeFacts) -> String {
    let parts = [
        (nodes.healthy, "healthy"),
        (nodes.quiesced, "asking for no work"),
        (nodes.suspect, "suspect"),
        (nodes.lost, "lost"),
        (nodes.off, "varied off"),
        (nodes.drains, "drained or draining"),
    ];
    let there = parts.iter().filter(|(count, _)| *count > 0);
    let there: Vec<String> = there.map(|(count, how)| format!("{count} {how}")).collect();
    if there.is_empty() {
        "none".to_owned()
    } else {
        there.join(", ")
    }
}

fn blocked(all: &[Blocked]) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    let number = |condition: fn(&&Blocked) -> bool| all.iter().filter(condition).count();
    let trial = number(|it| it.on_trial);
    let judged = number(|it| it.automatic && !it.on_trial);
    let first: Vec<String> = all
        .iter()
        .take(3)
        .map(|it| format!("{}: {}", it.node, it.cause))
        .collect();
    let blocked = all.len() - trial;
    format!(
        "{blocked} ({judged} of them by judgement), {trial} on trial; {}",
        first.join("; ")
    )
}

fn waiting(all: &[Waiting]) -> String {
    let Some(longest) = all.first() else {
        return "nothing".to_owned();
    };
    let reason = longest.reason.as_deref().unwrap_or("no reason is known");
    let others = match all.len() - 1 {
        0 => String::new(),
        others => format!(", and at least {others} more"),
    };
    format!(
        "{} for {}{others}: {reason}",
        longest.work,
        duration(longest.waits_ms)
    )
}
