//! `hayward shares`: shows the arithmetic of shares, from capacity by pool, priority, class and
//! user to each piece of work. The tables show the numbers of the scheduler unchanged.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::shares::{
    Budgets, ClassShare, LedgerLine, PoolShare, PriorityShare, Shares, Tally, WorkShare,
};
use hayward_vocabulary::{WorkKind, plural};

use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_duration};
use crate::output::{Cell, Renderer, Table, Tone, bars, toned};

/// Characters of the longest bar.
const BAR_WIDTH: u64 = 24;

pub async fn run(session: Session) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let response = client.get("/v1/shares").await?;
    session
        .out
        .print_response(response, |shares: &Shares, renderer| {
            render(shares, renderer)
        })
}

pub fn render(shares: &Shares, renderer: &Renderer) -> String {
    let mut text = format!(
        "round {}, {}: {}, {} held, {} free\n",
        shares.round,
        renderer.ago(shares.at),
        plural::quanta(shares.capacity),
        shares.held,
        shares.free,
    );
    if !shares.pools.is_empty() {
        let _ = write!(text, "\n{}", pool_table(&shares.pools, renderer));
    }
    for pool in &shares.divided {
        let _ = writeln!(
            text,
            "\npool {pool} is divided among queues: hayward queues"
        );
    }
    for pool in &shares.outside {
        let _ = writeln!(
            text,
            "\npool {pool} is planned by an external planner: hayward planners"
        );
    }
    text.push_str(&preempted_text(&shares.budgets));
    if shares.classes.iter().any(has_demand) {
        let _ = write!(text, "\n{}", priority_table(&shares.priorities, renderer));
        let _ = write!(text, "\n{}", share_table(shares, renderer));
    }
    for (held, label) in [
        (shares.elsewhere, "on nodes that are gone"),
        (shares.unclassed.held, "by work that no longer has a class"),
    ] {
        if held > 0 {
            let _ = writeln!(text, "\nand {held} held {label}");
        }
    }
    if !shares.ledger.is_empty() {
        text.push_str("\nsince the first round, in quanta times time\n");
        text.push_str(&ledger_table(&shares.ledger, renderer));
    }
    text
}

fn pool_table(pools: &[PoolShare], renderer: &Renderer) -> String {
    let header = [
        "pool",
        "total",
        "closed",
        "usable",
        "held",
        "free",
        "closed or free because",
    ];
    let mut table = Table::new(header).align_right(&[1, 2, 3, 4, 5]);
    for pool in pools {
        let mut name = pool.pool.clone();
        if pool.tree != pool.pool {
            let _ = write!(name, " in {}", pool.tree);
        }
        table.push_row([
            name.into(),
            pool.total.into(),
            (pool.total - pool.usable).into(),
            pool.usable.into(),
            pool.held.into(),
            pool.free.into(),
            toned(unused_reasons(pool), Tone::Faint),
        ]);
    }
    table.render(renderer)
}

/// Lists the quanta preempted within the last hour by pool and user. A budget limits them if the
/// policy sets one. (B5)
fn preempted_text(budgets: &Budgets) -> String {
    let spent_text = |name: String, spent: u64, allowed: Option<u64>| match allowed {
        Some(allowed) => format!("{name} {spent} of {allowed}"),
        None => format!("{name} {spent}"),
    };
    let pools = budgets.pools.iter().filter(|pool| pool.spent > 0);
    let pools = pools.map(|it| spent_text(format!("pool {}", it.pool), it.spent, it.allowed));
    let users = budgets.users.iter();
    let users = users.map(|it| spent_text(it.user.to_string(), it.spent, it.allowed));
    let others = budgets.others.iter().filter(|it| it.spent > 0);
    let others = others.map(|it| spent_text(format!("others in {}", it.tree), it.spent, None));
    let spent: Vec<String> = pools.chain(users).chain(others).collect();
    if spent.is_empty() {
        return String::new();
    }
    let spent = spent.join(", ");
    format!("\npreempted within the last hour, in quanta: {spent}\n")
}

/// Joins the amounts that are not zero, each with its label.
fn join_nonzero(parts: &[(u64, &str)]) -> String {
    let nonzero = parts.iter().filter(|(quanta, _)| *quanta > 0);
    let nonzero: Vec<String> = nonzero
        .map(|(quanta, label)| format!("{quanta} {label}"))
        .collect();
    nonzero.join(", ")
}

/// Lists why quanta of a pool are closed or free.
fn unused_reasons(pool: &PoolShare) -> String {
    join_nonzero(&[
        (pool.lost, "lost"),
        (pool.offline, "varied off"),
        (pool.blocked, "blocked"),
        (pool.declined, "decline work"),
        (pool.withheld, "on nodes with work without a class"),
        (pool.over, "held beyond the capacity of nodes"),
        (pool.held_closed, "still held on closed nodes"),
        (pool.idle.meant, "reserved for waiting work"),
        (pool.idle.kept, "unused because of a rule"),
        (pool.idle.split, "in pieces too small for any process"),
        (pool.idle.capped, "free because of caps"),
        (pool.idle.unasked, "without demand"),
    ])
}

fn priority_table(priorities: &[PriorityShare], renderer: &Renderer) -> String {
    let header = [
        "priority",
        "of pool",
        "available",
        "taken",
        "due",
        "held",
        "classes",
    ];
    let mut table = Table::new(header).align_right(&[0, 2, 3, 4, 5]);
    for group in priorities {
        // A priority without a turn got no part of this round.
        let Some(turn) = group.turn else {
            continue;
        };
        table.push_row([
            group.priority.into(),
            group.tree.as_deref().unwrap_or("-").into(),
            turn.available.into(),
            turn.taken.into(),
            group.tally.due.into(),
            group.tally.held.into(),
            format!(
                "{} ({})",
                group.classes.join(", "),
                enum_text(&group.policy)
            )
            .into(),
        ]);
    }
    table.render(renderer)
}

fn share_table(shares: &Shares, renderer: &Renderer) -> String {
    let header = ["class / user / work", "due", "held", "held of due", ""];
    let mut table = Table::new(header).align_right(&[1, 2]);
    // The longest possible bar is the whole capacity, or all allocations if they exceed it.
    let scale = shares.capacity.max(shares.held);
    for class in shares.classes.iter().filter(|class| has_demand(class)) {
        let name = toned(class_label(class), Tone::Good);
        table.push_row(share_row(
            name,
            &class.tally,
            scale,
            share_notes(&class.tally, class.left),
        ));
        for user in &class.users {
            let name = format!("  {}", user.user).into();
            table.push_row(share_row(
                name,
                &user.tally,
                scale,
                share_notes(&user.tally, user.left),
            ));
            for work in &user.work {
                let name = format!("    {}", work.work).into();
                table.push_row(share_row(name, &work.tally, scale, process_text(work)));
            }
        }
        if let Some(others) = &class.others {
            let name = match others.users {
                1 => "  one other user".to_owned(),
                users => format!("  {users} other users"),
            };
            let note = share_notes(&others.tally, others.left);
            table.push_row(share_row(name.into(), &others.tally, scale, note));
        }
    }
    table.render(renderer)
}

fn has_demand(class: &ClassShare) -> bool {
    !class.users.is_empty() || class.others.is_some()
}

fn share_row(name: Cell, tally: &Tally, scale: u64, note: String) -> [Cell; 5] {
    [
        name,
        tally.due.into(),
        tally.held.into(),
        bars::draw_share(tally.held, tally.due, scale, BAR_WIDTH).into(),
        toned(note, Tone::Faint),
    ]
}

fn class_label(class: &ClassShare) -> String {
    format!("{} (weight {})", class.class, class.weight)
}

/// Returns remarks about the entitlement and the allocations.
fn share_notes(tally: &Tally, left: u64) -> String {
    join_nonzero(&[
        (tally.lent, "lent"),
        (tally.resting, "due on closed nodes"),
        (left, "given, but less than a process"),
        (tally.vacating, "leaving"),
    ])
}

fn process_text(work: &WorkShare) -> String {
    let mut text = match work.kind {
        WorkKind::Reservation => "a whole node".to_owned(),
        _ if work.wanted == 1 => format!("{} of 1 process", work.current),
        _ => format!("{} of {} processes", work.current, work.wanted),
    };
    if work.order > 1 {
        let _ = write!(text, ", {} quanta each", work.order);
    }
    if work.leaving > 0 {
        let _ = write!(text, ", {} leaving", work.leaving);
    }
    if let Some(limit) = limit_text(work) {
        let _ = write!(text, ", {limit}");
    }
    text
}

/// Returns why a job may use fewer processes than its cap without reductions. Returns `None` if
/// nothing reduces the cap.
fn limit_text(work: &WorkShare) -> Option<String> {
    let cap = &work.cap;
    // The smallest limit decides, so the limit that equals the reduced cap is the reason.
    let is_binding = |limit: Option<u64>| limit == Some(work.wanted);
    if work.kind != WorkKind::Job || work.wanted >= cap.base {
        return None;
    }
    let reason = if is_binding(cap.initialization) {
        "until its first task is done"
    } else if is_binding(cap.room) {
        "by the space of its nodes"
    } else if is_binding(cap.doubling) {
        "by doubling"
    } else {
        "by the predicted end of its tasks"
    };
    Some(format!("limited {reason}"))
}

fn ledger_table(rows: &[LedgerLine], renderer: &Renderer) -> String {
    let header = ["user", "class", "due", "received", "received/due"];
    let mut table = Table::new(header).align_right(&[2, 3, 4]);
    for entry in rows {
        let (due, received) = (entry.due_quantum_ms, entry.received_quantum_ms);
        let percent = u128::from(received) * 100 / u128::from(due.max(1));
        table.push_row([
            (&entry.user).into(),
            (&entry.class).into(),
            format_duration(due).into(),
            format_duration(received).into(),
            if due == 0 {
                "-".to_owned()
            } else {
                format!("{percent} %")
            }
            .into(),
        ]);
    }
    table.render(renderer)
}

#[cfg(test)]
mod tests;
