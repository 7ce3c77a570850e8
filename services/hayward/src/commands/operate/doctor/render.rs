//! Renders the findings and facts of `hayward doctor` as a page for people.

use std::fmt::Write as _;

use hayward_service::invariants::{RuleResult, RuleStatus};

use super::evaluate::Finding;
use super::facts::{BlockedNode, Facts, NodeFacts, ServiceFacts, WaitingWork};
use crate::output::format::{format_bytes, format_duration, sanitize};
use crate::output::{Renderer, Table, Tone, toned};

/// Number of findings that are printed in full. All others are only counted.
const MAX_FINDINGS: usize = 20;
/// Number of blocked nodes that are printed with their cause.
const MAX_BLOCKED_NODES: usize = 3;

pub fn render(facts: &Facts, findings: &[Finding], renderer: &Renderer) -> String {
    let mut text = summary(findings, renderer);
    text.push('\n');
    text.push_str(&service_table(&facts.services, renderer));
    text.push('\n');
    // Writing to a string never fails.
    let _ = writeln!(text, "invariants  {}", invariants_text(&facts.services));
    let _ = writeln!(
        text,
        "nodes       {}",
        value_or_error(&facts.nodes, nodes_text)
    );
    let _ = writeln!(
        text,
        "blocked     {}",
        value_or_error(&facts.blocked, |all| blocked_text(all))
    );
    let _ = writeln!(
        text,
        "waiting     {}",
        value_or_error(&facts.waiting, |all| waiting_text(all))
    );
    if let Some(disk) = facts.disk {
        let (free, total) = (
            format_bytes(disk.free_bytes),
            format_bytes(disk.total_bytes),
        );
        let _ = writeln!(text, "disk        {free} of {total} left here");
    }
    text
}

fn summary(findings: &[Finding], renderer: &Renderer) -> String {
    if findings.is_empty() {
        return renderer.paint("the fleet is well", Tone::Good) + "\n";
    }
    let count_text = match findings.len() {
        1 => "1 thing needs you".to_owned(),
        many => format!("{many} things need you"),
    };
    let mut text = renderer.paint(&count_text, Tone::Bad) + "\n";
    for (index, finding) in findings.iter().take(MAX_FINDINGS).enumerate() {
        let (description, action) = (sanitize(&finding.description), sanitize(&finding.action));
        let _ = write!(
            text,
            "\n{:>2}. {description}\n    do: {action}\n",
            index + 1
        );
    }
    if let Some(more) = findings
        .len()
        .checked_sub(MAX_FINDINGS)
        .filter(|more| *more > 0)
    {
        let _ = write!(text, "\n    and {more} more: --json has all\n");
    }
    text
}

fn value_or_error<T>(fact: &Result<T, String>, describe: impl FnOnce(&T) -> String) -> String {
    match fact {
        Ok(fact) => sanitize(&describe(fact)),
        Err(error) => sanitize(&format!("not known: {error}")),
    }
}

fn service_table(all: &[ServiceFacts], renderer: &Renderer) -> String {
    let header = [
        "service", "state", "version", "schema", "epoch", "revision", "clock", "behind",
    ];
    let mut table = Table::new(header).align_right(&[3, 4, 5, 6]);
    for service in all {
        let Ok(status) = &service.status else {
            let dash = || "-".into();
            let unreachable = toned("away", Tone::Bad);
            let name = service.name.into();
            table.push_row([
                name,
                unreachable,
                dash(),
                dash(),
                dash(),
                dash(),
                dash(),
                dash(),
            ]);
            continue;
        };
        let (state, tone) = match (status.ready, status.leader) {
            (true, true) => ("leads", Tone::Good),
            (true, false) => ("ready", Tone::Good),
            (false, _) => ("not ready", Tone::Bad),
        };
        let number_text =
            |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
        table.push_row([
            service.name.into(),
            toned(state, tone),
            (&status.version).into(),
            number_text(status.schema).into(),
            number_text(status.epoch).into(),
            number_text(status.revision).into(),
            clock_text(service.clock_ahead_ms).into(),
            lag_text(service).into(),
        ]);
    }
    table.render(renderer)
}

/// Formats a clock difference. A difference below the precision of the date header is shown as
/// zero.
fn clock_text(ahead_ms: Option<i64>) -> String {
    match ahead_ms {
        None => "-".to_owned(),
        Some(ms) if ms.abs() <= 1_000 => "same".to_owned(),
        Some(ms) => {
            let sign = if ms < 0 { '-' } else { '+' };
            format!("{sign}{}", format_duration(ms.unsigned_abs()))
        }
    }
}

/// Lists the publications that the service follows, each with its unread revisions.
fn lag_text(service: &ServiceFacts) -> String {
    let lags = service.lags.iter().map(|lag| {
        let state = match (lag.stale, lag.behind) {
            (true, _) => "silent".to_owned(),
            (false, Some(behind)) => behind.to_string(),
            (false, None) => "?".to_owned(),
        };
        format!("{} {state}", lag.publication)
    });
    let text = lags.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn invariants_text(services: &[ServiceFacts]) -> String {
    let invariants = services.iter().filter_map(|it| it.invariants.as_ref().ok());
    let rules: Vec<&RuleStatus> = invariants.flat_map(|all| &all.rules).collect();
    let rules_with = |result: RuleResult| {
        let matching = rules.iter().filter(|rule| rule.result == result);
        matching.map(|rule| rule.id.as_str()).collect::<Vec<_>>()
    };
    let (violated, unchecked) = (
        rules_with(RuleResult::Violated),
        rules_with(RuleResult::NotChecked),
    );
    let mut text = format!("{} hold", rules_with(RuleResult::Holds).len());
    for (ids, state) in [(violated, "broken"), (unchecked, "not checked")] {
        // Several services check the same rule.
        let mut names = ids.clone();
        names.sort_unstable();
        names.dedup();
        if !ids.is_empty() {
            let _ = write!(text, ", {} {state} ({})", ids.len(), names.join(", "));
        }
    }
    text
}

fn nodes_text(facts: &NodeFacts) -> String {
    let parts = [
        (facts.healthy, "healthy"),
        (facts.quiesced, "asking for no work"),
        (facts.suspect, "suspect"),
        (facts.lost, "lost"),
        (facts.varied_off, "varied off"),
        (facts.drains, "drained or draining"),
    ];
    let nonzero = parts.iter().filter(|(count, _)| *count > 0);
    let nonzero: Vec<String> = nonzero
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    if nonzero.is_empty() {
        "none".to_owned()
    } else {
        nonzero.join(", ")
    }
}

fn blocked_text(all: &[BlockedNode]) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    let count_where = |condition: fn(&&BlockedNode) -> bool| all.iter().filter(condition).count();
    let on_trial = count_where(|it| it.on_trial);
    let automatic = count_where(|it| it.automatic && !it.on_trial);
    let first: Vec<String> = all
        .iter()
        .take(MAX_BLOCKED_NODES)
        .map(|it| format!("{}: {}", it.node, it.cause))
        .collect();
    let blocked = all.len() - on_trial;
    format!(
        "{blocked} ({automatic} of them automatically), {on_trial} on trial; {}",
        first.join("; ")
    )
}

fn waiting_text(all: &[WaitingWork]) -> String {
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
        format_duration(longest.waits_ms)
    )
}
