//! A forecast as text. Changes of work come first, then shares.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::what_if::{Change, Forecast, VacatedProcess};

use crate::output::format::{enum_text, format_count, format_duration, sanitize};
use crate::output::{Cell, Renderer, Table, Tone, toned};

pub fn render_forecast(forecast: &Forecast, renderer: &Renderer) -> String {
    let mut text = heading(forecast, renderer);
    for (title, body) in [
        ("would start", start_table(forecast, renderer)),
        ("would have to go", leave_table(forecast, renderer)),
        ("would wait", wait_table(forecast, renderer)),
        (
            "processes, where the end differs",
            move_table(forecast, renderer),
        ),
        ("quanta", share_table(forecast, renderer)),
    ] {
        if let Some(body) = body {
            let _ = write!(text, "\n{}\n{body}", renderer.title(title));
        }
    }
    for (list, count) in &forecast.left_out {
        let _ = writeln!(text, "{count} more under {}", sanitize(list));
    }
    text
}

fn heading(forecast: &Forecast, renderer: &Renderer) -> String {
    let rounds = format_count(forecast.rounds, "round");
    let outcome = if forecast.settled {
        format!("nothing would change any more after {rounds}")
    } else {
        let warning =
            format!("after {rounds} it would still be changing: ask for more with --rounds");
        renderer.paint(&warning, Tone::Warning)
    };
    let mut text = format!("reckoned from revision {}; {outcome}\n", forecast.revision);
    if let Some(service) = &forecast.silent {
        let warning = format!(
            "{} is silent: until it is heard, nothing is taken back",
            sanitize(service)
        );
        let _ = writeln!(text, "{}", renderer.paint(&warning, Tone::Warning));
    }
    if forecast.starts.is_empty() && forecast.leaves.is_empty() && forecast.moves.is_empty() {
        text.push_str("nothing would move\n");
    }
    text
}

/// Returns the table as text. Returns `None` without rows.
fn non_empty<const N: usize>(table: &Table<N>, renderer: &Renderer) -> Option<String> {
    (!table.is_empty()).then(|| table.render(renderer))
}

fn start_table(forecast: &Forecast, renderer: &Renderer) -> Option<String> {
    let header = ["round", "work", "user", "class", "node", "processes"];
    let mut table = Table::new(header).align_right(&[0, 5]);
    for start in &forecast.starts {
        table.push_row([
            start.round.into(),
            (&start.work).into(),
            (&start.user).into(),
            (&start.class).into(),
            (&start.node).into(),
            start.processes.into(),
        ]);
    }
    non_empty(&table, renderer)
}

/// Renders the leaving processes. Neighbours in the list that leave for the same reason share a
/// row.
fn leave_table(forecast: &Forecast, renderer: &Renderer) -> Option<String> {
    let header = [
        "round",
        "work",
        "user",
        "node",
        "processes",
        "why",
        "for",
        "lost",
    ];
    let mut table = Table::new(header).align_right(&[0, 4, 7]);
    let share_row = |left: &VacatedProcess, right: &VacatedProcess| {
        (left.round, &left.work, &left.node) == (right.round, &right.work, &right.node)
            && left.reason == right.reason
            && (&left.beneficiary, &left.for_user) == (&right.beneficiary, &right.for_user)
    };
    for group in forecast.leaves.chunk_by(share_row) {
        let leave = &group[0];
        let lost_ms = group.iter().filter_map(|it| it.lost_ms);
        let lost_ms = lost_ms.reduce(u64::saturating_add);
        let beneficiary = match (&leave.beneficiary, &leave.for_user) {
            (Some(work), Some(user)) => format!("{work} of {user}"),
            (None, Some(user)) => user.to_string(),
            _ => "-".to_owned(),
        };
        table.push_row([
            leave.round.into(),
            (&leave.work).into(),
            (&leave.user).into(),
            (&leave.node).into(),
            group.len().into(),
            enum_text(&leave.reason).into(),
            beneficiary.into(),
            lost_ms.map_or("-".to_owned(), format_duration).into(),
        ]);
    }
    non_empty(&table, renderer)
}

fn wait_table(forecast: &Forecast, renderer: &Renderer) -> Option<String> {
    let mut table = Table::new(["work", "user", "reason", "detail"]);
    for wait in &forecast.waits {
        let tone = if wait.refused {
            Tone::Bad
        } else {
            Tone::Warning
        };
        let user = wait
            .user
            .as_ref()
            .map_or("-".to_owned(), ToString::to_string);
        table.push_row([
            (&wait.work).into(),
            user.into(),
            toned(enum_text(&wait.reason), tone),
            (&wait.detail).into(),
        ]);
    }
    non_empty(&table, renderer)
}

/// Renders the number of processes now, at the end without the change (anyway), and at the end with
/// it (then).
fn move_table(forecast: &Forecast, renderer: &Renderer) -> Option<String> {
    let header = ["work", "user", "class", "now", "anyway", "then"];
    let mut table = Table::new(header).align_right(&[3, 4, 5]);
    for entry in &forecast.moves {
        table.push_row([
            (&entry.work).into(),
            (&entry.user).into(),
            (&entry.class).into(),
            entry.now.into(),
            entry.without.into(),
            changed_cell(entry.without, entry.with),
        ]);
    }
    non_empty(&table, renderer)
}

fn share_table(forecast: &Forecast, renderer: &Renderer) -> Option<String> {
    let header = [
        "class / user",
        "due anyway",
        "due then",
        "held anyway",
        "held then",
    ];
    let mut table = Table::new(header).align_right(&[1, 2, 3, 4]);
    let shares = &forecast.shares;
    let unchanged = Change::default();
    push_shares(&mut table, "all nodes".into(), shares.capacity, shares.held);
    for class in &shares.classes {
        if class.users.is_empty() && class.due == unchanged && class.held == unchanged {
            continue;
        }
        push_shares(
            &mut table,
            toned(&class.class, Tone::Good),
            class.due,
            class.held,
        );
        for user in &class.users {
            push_shares(
                &mut table,
                format!("  {}", user.user).into(),
                user.due,
                user.held,
            );
        }
    }
    non_empty(&table, renderer)
}

fn push_shares(table: &mut Table<5>, name: Cell, due: Change, held: Change) {
    table.push_row([
        name,
        due.without.into(),
        changed_cell(due.without, due.with),
        held.without.into(),
        changed_cell(held.without, held.with),
    ]);
}

/// Returns the number with the change. Its colour shows an increase or a decrease.
fn changed_cell(without: u64, with: u64) -> Cell {
    match with.cmp(&without) {
        std::cmp::Ordering::Less => toned(with, Tone::Bad),
        std::cmp::Ordering::Equal => with.into(),
        std::cmp::Ordering::Greater => toned(with, Tone::Good),
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::Timestamp;

    use super::*;

    fn renderer() -> Renderer {
        Renderer {
            colour: false,
            now: Timestamp::default(),
        }
    }

    fn parse_forecast(json: &str) -> Forecast {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_forecast_lists_starts_waits_leaves_and_moves() {
        let forecast = parse_forecast(
            r#"{"revision": 41, "at": "2026-11-21T10:42:00Z", "rounds": 4, "settled": true,
            "starts": [{"round": 2, "work": "job_b", "user": "ben", "class": "high",
                        "node": "n1", "processes": 2, "order": 4}],
            "waits": [{"work": "job_c", "user": "cy", "class": "low", "refused": false,
                       "reason": "no_host_large_enough", "detail": "no node is large enough"}],
            "leaves": [{"round": 1, "work": "job_a", "user": "ann", "node": "n1", "order": 1,
                        "reason": "preempted", "detail": "others are due it", "lost_ms": 61000,
                        "beneficiary": "job_b", "for_user": "ben"}],
            "moves": [{"work": "job_a", "user": "ann", "class": "high", "now": 8, "without": 8,
                       "with": 4}],
            "shares": {"capacity": {"without": 8, "with": 8}, "held": {"without": 8, "with": 8},
              "classes": [{"class": "high", "due": {"without": 8, "with": 8},
                "held": {"without": 8, "with": 8},
                "users": [{"user": "ann", "due": {"without": 8, "with": 4},
                           "held": {"without": 8, "with": 4}}]},
               {"class": "low", "due": {"without": 0, "with": 0},
                "held": {"without": 0, "with": 0}, "users": []}]},
            "left_out": {"starts": 7}}"#,
        );
        insta::assert_snapshot!(render_forecast(&forecast, &renderer()));
    }

    #[test]
    fn a_silent_service_and_unchanged_work_are_named() {
        let forecast = parse_forecast(
            r#"{"revision": 41, "at": "2026-11-21T10:42:00Z", "rounds": 10, "settled": false,
            "silent": "node-status", "starts": [], "waits": [], "leaves": [], "moves": [],
            "shares": {"capacity": {"without": 8, "with": 8}, "held": {"without": 0, "with": 0},
                       "classes": []}}"#,
        );
        insta::assert_snapshot!(render_forecast(&forecast, &renderer()));
    }
}
