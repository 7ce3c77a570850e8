//! Describes the effects of a policy change as text: changed pools, classes and entitlements, and
//! processes that would start or leave.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyMoves, ProcessShift};

use crate::output::format::sanitize;
use crate::output::{Renderer, Table};

/// Maximum number of lines of each list in the output.
const MAX_LINES: usize = 20;

pub fn render(response: &PolicyAnswer, dry_run: bool, renderer: &Renderer) -> String {
    let mut text = String::new();
    let generation = response.view.generation;
    if response.changes.is_empty() {
        text.push_str("the policy equals the policy in force\n");
    } else {
        push_list(&mut text, "changes", response.changes.iter().cloned());
    }
    if !response.notes.is_empty() {
        push_list(&mut text, "notes", response.notes.iter().cloned());
    }
    if let Some(moves) = &response.moves {
        push_moves(&mut text, moves, renderer);
    }
    // Writing to a string never fails.
    let _ = if dry_run {
        // The response has the generation that the policy would get.
        let from = generation.saturating_sub(1);
        writeln!(
            text,
            "nothing was changed; with `--from {from}`, `apply` refuses if the policy in force \
             changes"
        )
    } else {
        writeln!(text, "the policy in force is number {generation}")
    };
    text
}

/// Adds a titled list, shortened to [`MAX_LINES`].
fn push_list(text: &mut String, title: &str, lines: impl ExactSizeIterator<Item = String>) {
    let omitted = lines.len().saturating_sub(MAX_LINES);
    let _ = writeln!(text, "{title}:");
    for line in lines.take(MAX_LINES) {
        let _ = writeln!(text, "  {}", sanitize(&line));
    }
    if omitted > 0 {
        let _ = writeln!(text, "  and {omitted} more (--json has them)");
    }
}

fn push_moves(text: &mut String, moves: &PolicyMoves, renderer: &Renderer) {
    if moves.is_empty() {
        let _ = writeln!(text, "nothing would move");
        return;
    }
    if !moves.nodes.is_empty() {
        let lines = moves.nodes.iter();
        let lines = lines.map(|it| format!("{}: {} to {}", it.node, it.before, it.after));
        push_list(text, "nodes that change pool", lines);
    }
    if !moves.work.is_empty() {
        let lines = moves
            .work
            .iter()
            .map(|it| format!("{} of {}: {}", it.work, it.user, it.why));
        push_list(text, "work whose class changes", lines);
    }
    push_entitlements(text, moves, renderer);
    for (title, shifts) in [
        ("would start", &moves.started),
        ("would be preempted", &moves.preempted),
    ] {
        if !shifts.is_empty() {
            push_list(text, title, shifts.iter().map(shift_text));
        }
    }
}

fn shift_text(shift: &ProcessShift) -> String {
    let noun = if shift.processes == 1 {
        "process"
    } else {
        "processes"
    };
    format!(
        "{} {noun} of {}, {}",
        shift.processes, shift.work, shift.user
    )
}

/// Lists the entitlement before and after, one line for each class and user with a difference.
fn push_entitlements(text: &mut String, moves: &PolicyMoves, renderer: &Renderer) {
    if moves.classes.is_empty() && moves.users.is_empty() {
        return;
    }
    let mut table = Table::new(["due, in quanta", "user", "before", "after"]).align_right(&[2, 3]);
    for shift in &moves.classes {
        table.push_row([
            (&shift.class).into(),
            "".into(),
            shift.due_before.into(),
            shift.due_after.into(),
        ]);
    }
    for shift in &moves.users {
        table.push_row([
            (&shift.class).into(),
            (&shift.user).into(),
            shift.due_before.into(),
            shift.due_after.into(),
        ]);
    }
    text.push_str(&table.render(renderer));
}
