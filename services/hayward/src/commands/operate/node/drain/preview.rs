//! Shows a dry run of a drain, which the planner of rm-scheduler computes.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::what_if::{DrainMove, DrainPreview, Forecast, WhatIf};
use hayward_vocabulary::NodeName;
use serde_json::Value;

use crate::connection::{Role, Service, Session};
use crate::output::format::{clean, count, duration, word};
use crate::output::{Renderer, Table, Tone, toned};

pub async fn run(session: &Session, node: &NodeName) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Operator)?;
    let ask = WhatIf {
        drain: vec![node.clone()],
        ..WhatIf::default()
    };
    let answer: Value = client.post("/v1/what-if", &ask, None).await?;
    session.out.answer(answer, |forecast: &Forecast, renderer| {
        text(node, forecast, renderer)
    })
}

fn text(node: &NodeName, forecast: &Forecast, renderer: &Renderer) -> String {
    let mut text = String::new();
    if let Some(silent) = &forecast.silent {
        let warning = format!(
            "{} is silent: until it is heard, nothing moves",
            clean(silent)
        );
        text += &(renderer.paint(&warning, Tone::Warning) + "\n");
    }
    match forecast.drains.iter().find(|it| it.node == *node) {
        None => text += "this rm-scheduler cannot tell what stands there\n",
        Some(drain) => text += &preview_text(drain, renderer),
    }
    text
}

fn preview_text(drain: &DrainPreview, renderer: &Renderer) -> String {
    let DrainPreview { node, total, .. } = drain;
    if *total == 0 {
        return format!("nothing stands on {node}: it would be empty at once\n");
    }
    let stand = count(*total, "allocation");
    let mut text = format!("{stand} on {node}\n");
    let moves = moving(&drain.moves, renderer);
    if !moves.is_empty() {
        let _ = write!(text, "\n{moves}");
    }
    let mut stays = Table::new(["stays", "of", "why", "detail"]);
    for it in &drain.stays {
        stays.row([
            toned(&it.work, Tone::Bad),
            (&it.user).into(),
            word(&it.why).into(),
            (&it.detail).into(),
        ]);
    }
    if !stays.is_empty() {
        let _ = write!(text, "\n{}", stays.text(renderer));
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
        let _ = writeln!(text, "takes up to {}", duration(ms));
    } else if let Some(why) = &drain.no_estimate {
        let _ = writeln!(text, "how long it takes cannot be said: {}", clean(why));
    }
    text
}

/// Lists the moves. Processes with the same result share a line.
fn moving(moves: &[DrainMove], renderer: &Renderer) -> String {
    let header = [
        "moves",
        "of",
        "processes",
        "quanta",
        "to",
        "at a time",
        "time to end",
    ];
    let mut table = Table::new(header).numbers(&[2, 3, 5, 6]);
    let alike = |one: &DrainMove, other: &DrainMove| {
        (&one.work, one.order, &one.to, one.why_not)
            == (&other.work, other.order, &other.to, other.why_not)
    };
    for group in moves.chunk_by(alike) {
        let it = &group[0];
        let to = match (&it.to, &it.why_not) {
            (Some(node), _) => node.as_str().into(),
            (None, Some(why)) => toned(format!("no room ({})", word(why)), Tone::Warning),
            (None, None) => "is not started again".into(),
        };
        let limit = it.disruption_limit.map(|limit| limit.to_string());
        table.row([
            (&it.work).into(),
            (&it.user).into(),
            group.len().into(),
            it.order.into(),
            to,
            limit.as_deref().unwrap_or("all").into(),
            duration(it.stop_grace_ms).into(),
        ]);
    }
    if table.is_empty() {
        String::new()
    } else {
        table.text(renderer)
    }
}
