//! `hayward node`: one machine.

use hayward_node_status_api::{NodeEntry, NodeHistory, NodeView, Schedulable};
use hayward_vocabulary::NodeName;
use serde_json::Value;

use crate::commands::nodes;
use crate::connection::{Role, Service, Session};
use crate::output::words::{bytes, count, duration, size, thousandths, word};
use crate::output::{Facts, Look, Table, print, read};

/// Changes that are shown with a node.
const CHANGES: usize = 10;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Show one node, how it feels and what became of it
    Show(Which),
    /// Vary a node off: it takes no new work, and what runs there is taken off
    Off(Vary),
    /// Vary a node on again
    On(Vary),
    /// Forget a node that was lost for good
    Forget(Which),
}

#[derive(Debug, Clone, clap::Args)]
pub struct Which {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    pub node: NodeName,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Vary {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    pub node: NodeName,
    /// Why; shown to everyone who asks about the node.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Show(which) => show(&session, &which.node).await,
        Command::Off(vary) => set(&session, vary, false).await,
        Command::On(vary) => set(&session, vary, true).await,
        Command::Forget(which) => {
            let client = session.client(Service::NodeStatus, Role::Operator)?;
            let answer: Value = client.delete(&format!("/v1/nodes/{}", which.node)).await?;
            session.out.answer(answer, |(): &(), _| {
                format!("{} is forgotten\n", which.node)
            })
        }
    }
}

async fn show(session: &Session, node: &NodeName) -> anyhow::Result<()> {
    let client = session.client(Service::NodeStatus, Role::Reader)?;
    let answer: Value = client.get(&format!("/v1/nodes/{node}")).await?;
    if session.out.json {
        return session.out.json(&answer);
    }
    let view: NodeView = read(answer)?;
    let history: NodeHistory = client
        .get(&format!("/v1/nodes/{node}/history?limit={CHANGES}"))
        .await?;
    print(&text(&view, &history, &session.out.look()))
}

async fn set(session: &Session, vary: Vary, schedulable: bool) -> anyhow::Result<()> {
    let client = session.client(Service::NodeStatus, Role::Operator)?;
    let body = Schedulable {
        schedulable,
        reason: vary.reason,
    };
    let path = format!("/v1/nodes/{}/schedulable", vary.node);
    let answer: Value = client.put(&path, &body).await?;
    session.out.answer(answer, |entry: &NodeEntry, _| {
        format!(
            "{} is {}\n",
            entry.node,
            if entry.schedulable { "on" } else { "off" }
        )
    })
}

fn text(view: &NodeView, history: &NodeHistory, look: &Look) -> String {
    let (entry, metrics) = (&view.entry, &view.metrics);
    let mut facts = Facts::default();
    facts.say("node", &entry.node);
    facts.say("state", nodes::state(entry));
    facts.say("why", &entry.reason);
    facts.say(
        "since",
        format!("{}, {}", entry.since, look.ago(entry.since)),
    );
    facts.say("pool", &entry.pool);
    facts.say("capacity", size(&entry.capacity));
    facts.say("free memory", bytes(metrics.memory_available_bytes));
    facts.say("free disk", bytes(metrics.disk_free_bytes));
    facts.say("load", thousandths(metrics.load_centi * 10));
    facts.say("containers", metrics.containers);
    let missed = count(view.missed, "heartbeat");
    facts.say(
        "heard",
        format!("{} ago, {missed} missed", duration(view.heartbeat_age_ms)),
    );
    facts.say("runtimes", entry.runtimes.join(", "));
    facts.say("agent", &view.version);
    for (name, value) in &entry.labels {
        facts.say("label", format!("{name}={value}"));
    }
    let mut table = Table::new(["at", "health", "takes work", "by", "why"]);
    for change in &history.changes {
        table.row([
            change.at.into(),
            word(&change.health).into(),
            if change.schedulable { "on" } else { "off" }.into(),
            change.by.as_deref().unwrap_or("-").into(),
            (&change.reason).into(),
        ]);
    }
    let history = if table.is_empty() {
        String::new()
    } else {
        format!("\n{}", table.text(look))
    };
    facts.text(look) + &history
}
