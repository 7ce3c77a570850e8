//! `hayward shares`: who is due what and who holds what, from class to user to work.

use std::fmt::Write as _;

use hayward_rm_scheduler_api::views::{ClassShare, LedgerLine, Shares, WorkShare};
use hayward_vocabulary::WorkKind;

use crate::connection::{Role, Service, Session};
use crate::output::words::duration;
use crate::output::{Look, Table, Tone, bars, toned};

/// Places of the longest bar.
const WIDTH: u64 = 24;

pub async fn run(session: Session) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let answer = client.get("/v1/shares").await?;
    session
        .out
        .answer(answer, |shares: &Shares, look| text(shares, look))
}

pub fn text(shares: &Shares, look: &Look) -> String {
    let mut text = format!(
        "round {}, {}: {}, {} held, {} free\n",
        shares.round,
        look.ago(shares.at),
        match shares.capacity {
            1 => "1 quantum".to_owned(),
            quanta => format!("{quanta} quanta"),
        },
        shares.held,
        shares.free,
    );
    let asked = shares.classes.iter().any(|class| !class.users.is_empty());
    if asked {
        text.push('\n');
        text.push_str(&tree(shares, look));
    }
    if !shares.ledger.is_empty() {
        text.push_str("\nsince the first round, in quanta times time\n");
        text.push_str(&ledger(&shares.ledger, look));
    }
    text
}

fn tree(shares: &Shares, look: &Look) -> String {
    let header = ["class / user / work", "due", "held", "held of due", ""];
    let mut table = Table::new(header).numbers(&[1, 2]);
    let bar = |held, due| bars::share(held, due, shares.capacity.max(shares.held), WIDTH);
    for class in shares
        .classes
        .iter()
        .filter(|class| !class.users.is_empty())
    {
        table.row([
            toned(name_of(class), Tone::Good),
            class.due.into(),
            class.held.into(),
            bar(class.held, class.due).into(),
            "".into(),
        ]);
        for user in &class.users {
            table.row([
                format!("  {}", user.user).into(),
                user.due.into(),
                user.held.into(),
                bar(user.held, user.due).into(),
                "".into(),
            ]);
            for work in &user.work {
                let due = work.counted * work.order;
                let held = (work.current + work.leaving) * work.order;
                table.row([
                    format!("    {}", work.work).into(),
                    due.into(),
                    held.into(),
                    bar(held, due).into(),
                    toned(processes(work), Tone::Faint),
                ]);
            }
        }
    }
    table.text(look)
}

fn name_of(class: &ClassShare) -> String {
    format!("{} (weight {})", class.class, class.weight)
}

fn processes(work: &WorkShare) -> String {
    let mut text = match work.kind {
        WorkKind::Reservation => "a machine".to_owned(),
        _ if work.wanted == 1 => format!("{} of 1 process", work.current),
        _ => format!("{} of {} processes", work.current, work.wanted),
    };
    if work.order > 1 {
        let _ = write!(text, ", {} quanta each", work.order);
    }
    if work.leaving > 0 {
        let _ = write!(text, ", {} leaving", work.leaving);
    }
    text
}

fn ledger(lines: &[LedgerLine], look: &Look) -> String {
    let header = ["user", "class", "due", "received", "received/due"];
    let mut table = Table::new(header).numbers(&[2, 3, 4]);
    for line in lines {
        let (due, received) = (line.due_quantum_ms, line.received_quantum_ms);
        let percent = u128::from(received) * 100 / u128::from(due.max(1));
        table.row([
            (&line.user).into(),
            (&line.class).into(),
            duration(due).into(),
            duration(received).into(),
            if due == 0 {
                "-".to_owned()
            } else {
                format!("{percent} %")
            }
            .into(),
        ]);
    }
    table.text(look)
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::views::UserShare;
    use hayward_vocabulary::{Timestamp, UserName, WorkId};

    use super::*;

    fn work(id: &str, order: u64, current: u64, leaving: u64) -> WorkShare {
        WorkShare {
            work: WorkId::new(id).unwrap(),
            kind: WorkKind::Job,
            order,
            wanted: 40,
            counted: 4,
            current,
            leaving,
        }
    }

    #[test]
    fn a_tree_of_shares() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let ada = UserName::new("ada").unwrap();
        let user = |due, held, work| UserShare {
            user: ada.clone(),
            due,
            held,
            work,
        };
        let class = |name: &str, users| ClassShare {
            class: name.into(),
            weight: 100,
            due: 12,
            held: 13,
            users,
        };
        let shares = Shares {
            round: 41,
            at,
            capacity: 24,
            held: 13,
            free: 11,
            classes: vec![
                class(
                    "high",
                    vec![user(
                        12,
                        13,
                        vec![work("job_1", 1, 4, 1), work("job_2", 2, 4, 0)],
                    )],
                ),
                class("low", Vec::new()),
            ],
            ledger: vec![LedgerLine {
                user: ada.clone(),
                class: "high".into(),
                due_quantum_ms: 120_000,
                received_quantum_ms: 118_000,
            }],
        };
        insta::assert_snapshot!(text(
            &shares,
            &Look {
                colour: false,
                now: at.plus_ms(2_000)
            }
        ));
    }
}
