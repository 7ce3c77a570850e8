//! Shows the progress of a drain, as text and as a bar until its end.

use std::time::{Duration, Instant};

use anyhow::bail;
use hayward_node_status_api::drain::{DrainBlocker, DrainState, DrainView};
use indicatif::{ProgressBar, ProgressStyle};

use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_duration, sanitize};
use crate::output::{Facts, Renderer, Table, Tone, note, print, toned};

/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time that a service may be down before the watcher gives up.
const OUTAGE_TIMEOUT: Duration = Duration::from_mins(1);

pub fn render(view: &DrainView, renderer: &Renderer) -> String {
    let mut facts = Facts::default();
    let tone = match view.state {
        DrainState::Drained => Tone::Good,
        DrainState::Failed => Tone::Bad,
        _ => Tone::Warning,
    };
    facts.add("node", &view.node);
    facts.add("drain", toned(enum_text(&view.state), tone));
    facts.add("why", &view.why);
    facts.add("since", renderer.ago(view.state_since));
    if let Some(next) = &view.next {
        let after = next
            .after_ms
            .map(|ms| format!("in {}: ", format_duration(ms)));
        facts.add(
            "next",
            format!("{}{}", after.unwrap_or_default(), next.what),
        );
    }
    let number = view.order.number;
    let started = renderer.ago(view.order.since);
    facts.add(
        "order",
        format!("{number}, by {} {started}: {}", view.by, view.order.reason),
    );
    if let Some(deadline) = view.order.deadline {
        facts.add("deadline", deadline);
    }
    if let Some(moves) = &view.moves {
        let summary = format!(
            "{} of {} moved, {} without a successor, {} still there",
            moves.moved, moves.total, moves.failed, moves.remaining
        );
        facts.add("work", summary);
    }
    let containers = view.containers.map(|count| count.to_string());
    let containers = containers.unwrap_or_else(|| "not known yet".to_owned());
    facts.add("containers", containers);
    let mut text = facts.render(renderer);
    let blockers = view.moves.as_ref().map(|moves| &moves.blockers[..]);
    text += &blockers_table(blockers.unwrap_or_default(), renderer);
    text
}

fn blockers_table(blockers: &[DrainBlocker], renderer: &Renderer) -> String {
    if blockers.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["stays", "of", "why", "detail"]);
    for blocker in blockers {
        table.push_row([
            (&blocker.work).into(),
            (&blocker.user).into(),
            blocker.why.replace('_', " ").into(),
            (&blocker.detail).into(),
        ]);
    }
    format!("\n{}", table.render(renderer))
}

/// Draws until the drain is over, then prints how it ended. Returns success if the node is empty.
pub async fn watch(session: &Session, path: &str) -> anyhow::Result<()> {
    let client = session.client(Service::NodeStatus, Role::Reader)?;
    let bar = ProgressBar::no_length();
    let (mut last_response, mut last_line) = (Instant::now(), String::new());
    let view = loop {
        match client.get::<DrainView>(path).await {
            Ok(view) => {
                last_response = Instant::now();
                draw(&bar, &mut last_line, &view);
                let is_in_progress =
                    matches!(view.state, DrainState::Draining | DrainState::Paused);
                if !is_in_progress {
                    break view;
                }
            }
            Err(error) if error.retryable() && last_response.elapsed() < OUTAGE_TIMEOUT => {
                bar.set_message(format!("{error}; trying on"));
            }
            Err(error) => {
                bar.finish_and_clear();
                return Err(error.into());
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    bar.finish_and_clear();
    if session.out.json {
        session.out.json(&serde_json::to_value(&view)?)?;
    } else {
        print(&render(&view, &session.out.renderer()))?;
    }
    if view.state != DrainState::Drained {
        bail!("{} is not drained: {}", view.node, sanitize(&view.why));
    }
    Ok(())
}

/// Draws a bar on a terminal. Without a terminal it prints one line for each change.
fn draw(bar: &ProgressBar, last_line: &mut String, view: &DrainView) {
    let line = sanitize(&format!("{}: {}", enum_text(&view.state), view.why));
    if bar.is_hidden() {
        if *last_line != line {
            note(&line);
            *last_line = line;
        }
        return;
    }
    if let Some(moves) = &view.moves {
        if bar.length().is_none() {
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} gone; {msg}");
            // The default style replaces an invalid template.
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        bar.set_length(moves.total);
        bar.set_position(moves.total.saturating_sub(moves.remaining));
    }
    bar.set_message(line);
    bar.tick();
}

#[cfg(test)]
mod tests {
    use hayward_node_status_api::drain::DrainMoves;
    use hayward_node_status_api::{DrainOrder, Next};
    use hayward_vocabulary::{NodeName, Timestamp};

    use super::*;

    #[test]
    fn progress_names_the_blockers_and_their_owners() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let view = DrainView {
            node: NodeName::new("node-2").unwrap(),
            order: DrainOrder {
                number: 2,
                since: at,
                deadline: Some(at.plus_ms(1_800_000)),
                paused: false,
                reason: "new disk".into(),
            },
            by: "ann".into(),
            state: DrainState::Draining,
            state_since: at,
            why: "2 still placed here, 1 of them stay by themselves".into(),
            next: Some(Next {
                what: "what is still here is moved without regard to its disruption limits".into(),
                after_ms: Some(1_710_000),
            }),
            moves: Some(DrainMoves {
                total: 5,
                moved: 2,
                failed: 1,
                remaining: 2,
                blockers: vec![DrainBlocker {
                    allocation: "alc_1".into(),
                    work: "rsv_1".into(),
                    user: "ben".into(),
                    why: "reservation".into(),
                    detail: "is never taken away".into(),
                }],
            }),
            containers: None,
        };
        let renderer = Renderer {
            colour: false,
            now: at.plus_ms(90_000),
        };
        insta::assert_snapshot!(render(&view, &renderer));
    }
}
