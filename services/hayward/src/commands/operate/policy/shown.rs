//! Effects of a policy change, as text.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyMoves, ProcessShift};

use crate::output::format::clean;
use crate::output::{Renderer, Table};

/// Maximum number of lines of each list in the output.
const SHOWN: usize = 20;

pub fn answer(answer: &PolicyAnswer, dry: bool, renderer: &Renderer) -> String {
    let mut text = String::new();
    let generation = answer.view.generation;
    if answer.changes.is_empty() {
        text.push_str("it says what the policy in force says\n");
    } else {
        lines(&mut text, "changes", answer.changes.iter().cloned());
    }
    if !answer.notes.is_empty() {
        lines(&mut text, "notes", answer.notes.iter().cloned());
    }
    if let Some(moves) = &answer.moves {
        moved(&mut text, moves, renderer);
    }
    // Writing to a string never fails.
    let _ = if dry {
        let from = generation.saturating_sub(1);
        writeln!(
            text,
            "nothing was changed; `--from {from}` applies it to this policy and no other"
        )
    } else {
        writeln!(text, "the policy in force is number {generation}")
    };
    text
}

fn lines(text: &mut String, title: &str, all: impl ExactSizeIterator<Item = String>) {
    let over = all.len().saturating_sub(SHOWN);
    let _ = writeln!(text, "{title}:");
    for line in all.take(SHOWN) {
        let _ = writeln!(text, "  {}", clean(&line));
    }
    if over > 0 {
        let _ = writeln!(text, "  and {over} more (--json has them)");
    }
}

fn moved(text: &mut String, moves: &PolicyMoves, renderer: &Renderer) {
    if moves.is_still() {
        let _ = writeln!(text, "nothing would move");
        return;
    }
    if !moves.nodes.is_empty() {
        let shifts = moves.nodes.iter();
        let rows = shifts.map(|it| format!("{}: {} to {}", it.node, it.before, it.after));
        lines(text, "nodes that change pool", rows);
    }
    if !moves.work.is_empty() {
        let rows = moves
            .work
            .iter()
            .map(|it| format!("{} of {}: {}", it.work, it.user, it.why));
        lines(text, "work whose class changes", rows);
    }
    dues(text, moves, renderer);
    for (title, shifts) in [
        ("would start", &moves.started),
        ("would be taken back", &moves.preempted),
    ] {
        if !shifts.is_empty() {
            lines(text, title, shifts.iter().map(processes));
        }
    }
}

fn processes(shift: &ProcessShift) -> String {
    let word = if shift.processes == 1 {
        "process"
    } else {
        "processes"
    };
    format!(
        "{} {word} of {}, {}",
        shift.processes, shift.work, shift.user
    )
}

/// Lists the entitlement before and after, one line for each class and user with a difference.
fn dues(text: &mut String, moves: &PolicyMoves, renderer: &Renderer) {
    if moves.classes.is_empty() && moves.users.is_empty() {
        return;
    }
    let mut table = Table::new(["due, in quanta", "user", "before", "after"]).numbers(&[2, 3]);
    for shift in &moves.classes {
        table.row([
            (&shift.class).into(),
            "".into(),
            shift.due_before.into(),
            shift.due_after.into(),
        ]);
    }
    for shift in &moves.users {
        table.row([
            (&shift.class).into(),
            (&shift.user).into(),
            shift.due_before.into(),
            shift.due_after.into(),
        ]);
    }
    text.push_str(&table.text(renderer));
}
