//! Shows a dry run of a drain, which the planner of rm-scheduler computes.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::what_if::{DrainMove, DrainPreview, Forecast, WhatIf};
use hayward_vocabulary::NodeName;
use serde_json::Value;

use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_count, format_duration, sanitize};
use crate::output::{Renderer, Table, Tone, toned};

pub async fn run(session: &Session, node: &NodeName) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let question = WhatIf {
        drain: vec![node.clone()],
        ..WhatIf::default()
    };
    let response: Value = client.post("/v1/what-if", &question, None).await?;
    session
        .out
        .print_response(response, |forecast: &Forecast, renderer| {
            render(node, forecast, renderer)
        })
}

fn render(node: &NodeName, forecast: &Forecast, renderer: &Renderer) -> String {
    let mut text = String::new();
    if let Some(service) = &forecast.silent {
        let warning = format!(
            "{} does not answer: nothing moves until it does",
            sanitize(service)
        );
        text += &(renderer.paint(&warning, Tone::Warning) + "\n");
    }
    match forecast.drains.iter().find(|it| it.node == *node) {
        None => text += "this version of rm-scheduler does not preview drains\n",
        Some(drain) => text += &preview_text(drain, renderer),
    }
    text
}

fn preview_text(drain: &DrainPreview, renderer: &Renderer) -> String {
    let DrainPreview { node, total, .. } = drain;
    if *total == 0 {
        return format!("no work is on {node}: the drain would end at once\n");
    }
    let allocations = format_count(*total, "allocation");
    let mut text = format!("{allocations} on {node}\n");
    let moves = moves_table(&drain.moves, renderer);
    if !moves.is_empty() {
        let _ = write!(text, "\n{moves}");
    }
    let mut stays_table = Table::new(["stays", "of", "why", "detail"]);
    for allocation in &drain.stays {
        stays_table.push_row([
            toned(&allocation.work, Tone::Bad),
            (&allocation.user).into(),
            enum_text(&allocation.why).into(),
            (&allocation.detail).into(),
        ]);
    }
    if !stays_table.is_empty() {
        let _ = write!(text, "\n{}", stays_table.render(renderer));
    }
    text += "\n";
    if drain.without_room > 0 {
        let warning = format!(
            "{} find no room elsewhere and would wait\n",
            drain.without_room
        );
        text += &renderer.paint(&warning, Tone::Warning);
    }
    if let Some(ms) = drain.estimate_ms {
        let _ = writeln!(text, "takes up to {}", format_duration(ms));
    } else if let Some(reason) = &drain.no_estimate {
        let _ = writeln!(
            text,
            "how long it takes cannot be said: {}",
            sanitize(reason)
        );
    }
    text
}

/// Lists the moves. Processes with the same result share a line.
fn moves_table(moves: &[DrainMove], renderer: &Renderer) -> String {
    let header = [
        "moves",
        "of",
        "processes",
        "quanta",
        "to",
        "at a time",
        "time to end",
    ];
    let mut table = Table::new(header).align_right(&[2, 3, 5, 6]);
    let have_same_outcome = |left: &DrainMove, right: &DrainMove| {
        (&left.work, left.order, &left.to, left.why_not)
            == (&right.work, right.order, &right.to, right.why_not)
    };
    for group in moves.chunk_by(have_same_outcome) {
        let first_move = &group[0];
        let destination = match (&first_move.to, &first_move.why_not) {
            (Some(node), _) => node.as_str().into(),
            (None, Some(reason)) => {
                toned(format!("no room ({})", enum_text(reason)), Tone::Warning)
            }
            (None, None) => "is not started again".into(),
        };
        let limit = first_move.disruption_limit.map(|limit| limit.to_string());
        table.push_row([
            (&first_move.work).into(),
            (&first_move.user).into(),
            group.len().into(),
            first_move.order.into(),
            destination,
            limit.as_deref().unwrap_or("all").into(),
            format_duration(first_move.stop_grace_ms).into(),
        ]);
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render(renderer)
    }
}
