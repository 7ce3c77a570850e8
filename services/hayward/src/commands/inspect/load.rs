//! `hayward load`: shows demand and capacity by pool and by class.

use hayward_rm_scheduler_api::load::{ClassLoad, Load, NodesOfOrder, PoolLoad};

use crate::connection::{Role, Service, Session};
use crate::output::format::enum_text;
use crate::output::{Renderer, Table, Tone, toned};

pub async fn run(session: Session) -> anyhow::Result<()> {
    let client = session.client(Service::RmScheduler, Role::Reader)?;
    let response = client.get("/v1/load").await?;
    session
        .out
        .print_response(response, |load: &Load, renderer| render(load, renderer))
}

pub fn render(load: &Load, renderer: &Renderer) -> String {
    let mut text = format!("round {}, {}\n\n", load.round, renderer.ago(load.at));
    text.push_str(&pool_table(&load.pools, renderer));
    text.push('\n');
    text.push_str(&class_table(&load.classes, renderer));
    text
}

fn pool_table(pools: &[PoolLoad], renderer: &Renderer) -> String {
    let header = [
        "pool",
        "nodes",
        "up",
        "quanta",
        "usable",
        "free",
        "asked for",
        "had",
        "free pieces",
    ];
    let mut table = Table::new(header).align_right(&[1, 2, 3, 4, 5, 6, 7]);
    for pool in pools {
        let lacks_space = pool.requested > pool.usable;
        table.push_row([
            (&pool.pool).into(),
            pool.nodes.into(),
            pool.up.into(),
            pool.total.into(),
            pool.usable.into(),
            pool.free.into(),
            toned(
                pool.requested,
                if lacks_space {
                    Tone::Warning
                } else {
                    Tone::Plain
                },
            ),
            pool.awarded.into(),
            toned(free_pieces_text(&pool.orders), Tone::Faint),
        ]);
    }
    table.render(renderer)
}

/// Lists the nodes with free space by their free quanta, the largest first. For example, `3 × 8`
/// means three nodes with eight free quanta each.
fn free_pieces_text(orders: &[NodesOfOrder]) -> String {
    let free_pieces = orders.iter().rev().filter(|nodes| nodes.order > 0);
    let free_pieces = free_pieces.map(|nodes| (nodes.free + nodes.partly, nodes.order));
    let nonempty = free_pieces.filter(|(count, _)| *count > 0);
    let terms: Vec<String> = nonempty
        .map(|(count, quanta)| format!("{count} × {quanta}"))
        .collect();
    terms.join(", ")
}

/// Renders one row for each class and size of its processes.
fn class_table(classes: &[ClassLoad], renderer: &Renderer) -> String {
    let header = [
        "class",
        "policy",
        "pool",
        "work",
        "waiting",
        "quanta each",
        "could use",
        "may use now",
        "due",
        "has",
        "leaving",
    ];
    let mut table = Table::new(header).align_right(&[3, 4, 5, 6, 7, 8, 9, 10]);
    for class in classes {
        for (index, processes) in class.orders.iter().enumerate() {
            let is_first = index == 0;
            let in_first_row = |text: String| if is_first { text } else { String::new() };
            table.push_row([
                in_first_row(class.class.clone()).into(),
                in_first_row(enum_text(&class.policy)).into(),
                in_first_row(class.pool.clone()).into(),
                in_first_row(class.work.to_string()).into(),
                in_first_row(class.waiting.to_string()).into(),
                processes.order.into(),
                processes.wanted.into(),
                processes.requested.into(),
                processes.counted.into(),
                processes.awarded.into(),
                processes.leaving.into(),
            ]);
        }
    }
    if table.is_empty() {
        return "no class has demand\n".to_owned();
    }
    table.render(renderer)
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::load::ProcessesOfOrder;
    use hayward_rm_scheduler_api::policy::SharePolicy;
    use hayward_vocabulary::Timestamp;

    use super::*;

    fn default_pool() -> PoolLoad {
        let nodes = |quanta, free, partly| NodesOfOrder {
            order: quanta,
            nodes: free,
            up: free,
            free,
            partly,
        };
        PoolLoad {
            pool: "default".into(),
            parent: None,
            nodes: 4,
            up: 3,
            lost: 0,
            offline: 0,
            blocked: 1,
            declined: 0,
            total: 16,
            usable: 12,
            free: 6,
            requested: 24,
            awarded: 6,
            orders: vec![nodes(0, 1, 0), nodes(2, 0, 1), nodes(4, 1, 0)],
        }
    }

    fn processes(quanta: u64, awarded: u64) -> ProcessesOfOrder {
        ProcessesOfOrder {
            order: quanta,
            wanted: 40,
            requested: 8,
            counted: 4,
            awarded,
            leaving: 1,
        }
    }

    #[test]
    fn demand_is_shown_next_to_supply() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let load = Load {
            round: 41,
            at,
            pools: vec![default_pool()],
            classes: vec![
                ClassLoad {
                    class: "normal".into(),
                    policy: SharePolicy::FairShare,
                    pool: "default".into(),
                    priority: 10,
                    weight: 100,
                    work: 2,
                    waiting: 1,
                    orders: vec![processes(1, 2), processes(2, 2)],
                },
                ClassLoad {
                    class: "reserve".into(),
                    policy: SharePolicy::Reserve,
                    pool: "default".into(),
                    priority: 1,
                    weight: 100,
                    work: 0,
                    waiting: 0,
                    orders: Vec::new(),
                },
            ],
        };
        let renderer = Renderer {
            colour: false,
            now: at.plus_ms(2_000),
        };
        insta::assert_snapshot!(render(&load, &renderer));
    }
}
