//! `hayward nodes`

mod held;
pub mod picture;

use std::path::PathBuf;

use hayward_node_status_api::{Health, NodeEntry, NodeList, NodeView};

use crate::connection::pages::{self, Pages};
use crate::connection::{Role, Service, Session};
use crate::output::words::{bytes, duration, size, word};
use crate::output::{Cell, Look, Table, Tone, toned};

const PAGES: Pages = Pages {
    list: "nodes",
    next: "next_cursor",
};

/// What is asked of them.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Show what each holds, for whom, and what is free on it, in quanta.
    #[arg(long)]
    pub held: bool,
    /// Draw them into this file (SVG): what each holds, by user and kind of work.
    #[arg(long, value_name = "FILE", conflicts_with = "held")]
    pub picture: Option<PathBuf>,
    /// What comes first in the picture.
    #[arg(long, value_enum, default_value_t, requires = "picture")]
    pub sort: picture::Sort,
}

pub async fn run(session: Session, arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.held {
        return held::run(session).await;
    }
    if let Some(file) = &arguments.picture {
        return picture::run(session, file, arguments.sort).await;
    }
    let client = session.client(Service::NodeStatus, Role::Reader)?;
    let answer = pages::all(&client, "/v1/nodes", PAGES).await?;
    session
        .out
        .answer(answer, |list: &NodeList, look| table(&list.nodes, look))
}

pub fn table(nodes: &[NodeView], look: &Look) -> String {
    if nodes.is_empty() {
        return "no nodes\n".to_owned();
    }
    let header = [
        "node",
        "state",
        "pool",
        "capacity",
        "free memory",
        "runs",
        "heard",
        "for",
        "why",
    ];
    let mut table = Table::new(header).numbers(&[5]);
    for view in nodes {
        let entry = &view.entry;
        table.row([
            (&entry.node).into(),
            state(entry),
            (&entry.pool).into(),
            size(&entry.capacity).into(),
            bytes(view.metrics.memory_available_bytes).into(),
            view.metrics.containers.into(),
            duration(view.heartbeat_age_ms).into(),
            look.age(entry.since).into(),
            toned(
                if entry.takes_work() {
                    ""
                } else {
                    &entry.reason
                },
                Tone::Faint,
            ),
        ]);
    }
    table.text(look)
}

/// One word for health and for what an operator said.
pub fn state(entry: &NodeEntry) -> Cell {
    match entry.health {
        Health::Lost => toned("lost", Tone::Bad),
        _ if !entry.schedulable => toned("off", Tone::Warning),
        Health::Healthy => toned("healthy", Tone::Good),
        health => toned(word(&health), Tone::Warning),
    }
}

#[cfg(test)]
mod tests {
    use hayward_node_status_api::Metrics;
    use hayward_vocabulary::{NodeName, Size, Timestamp};

    use super::*;

    #[test]
    fn a_table_of_nodes() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let node = |name: &str, health, schedulable, reason: &str| NodeView {
            entry: NodeEntry {
                node: NodeName::new(name).unwrap(),
                pool: "default".into(),
                capacity: Size {
                    memory_bytes: 8 << 30,
                    cpu_milli: 4000,
                    ..Size::default()
                },
                labels: std::collections::BTreeMap::new(),
                runtimes: vec!["process".into()],
                health,
                schedulable,
                reason: reason.into(),
                since: at,
                drain: None,
                boot_id: "b".into(),
                agent_instance: "a".into(),
            },
            metrics: Metrics {
                memory_available_bytes: 5 << 29,
                containers: 3,
                ..Metrics::default()
            },
            heartbeat_age_ms: 420,
            missed: 0,
            version: "0.1.0".into(),
        };
        let nodes = [
            node("node-1", Health::Healthy, true, "heartbeats arrive"),
            node("node-2", Health::Healthy, false, "a fan is broken"),
            node("node-3", Health::Lost, true, "silent for 60 s"),
            node("node-4", Health::Suspect, true, "silent for 15 s"),
        ];
        let look = Look {
            colour: false,
            now: at.plus_ms(7_500_000),
        };
        insta::assert_snapshot!(table(&nodes, &look));
    }
}
