//! `hayward nodes`: shows every node on one line, with its state.
//!
//! node-status has the nodes, rm-scheduler has their pools and allocations, and blocklist has their
//! blocks. Only node-status has to answer.

mod held;
pub mod picture;
mod table;

use std::path::PathBuf;

use hayward_blocklist_api::{BlockEntry, BlockKind, BlockList};
use hayward_node_status_api::drain::DrainState;
use hayward_node_status_api::{Health, NodeList, NodeView};
use hayward_rm_scheduler_api::occupancy::{NodeOccupancy, Occupancy};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connection::pages::{self, Pages};
use crate::connection::{Role, Service, Session};
use crate::output::format::word;
use crate::output::{Cell, Tone, print, read, toned};

pub use table::text;

const PAGES: Pages = Pages {
    list: "nodes",
    next: "next_cursor",
};
const BLOCKS: Pages = Pages {
    list: "items",
    next: "next_cursor",
};

/// Form of the output.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Show the work on each node, its users, and the free space, in quanta.
    #[arg(long)]
    pub held: bool,
    /// Draw the nodes into this file (SVG), with their work by user and kind.
    #[arg(long, value_name = "FILE", conflicts_with = "held")]
    pub picture: Option<PathBuf>,
    /// Order of the nodes in the picture.
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
    if session.out.json {
        return session.out.json(&answer);
    }
    let fleet = Fleet::around(&session, read(answer)?).await;
    print(&text(&fleet, &session.out.renderer()))
}

/// Nodes of the fleet, from the responses of three services.
#[derive(Debug, Default)]
pub struct Fleet {
    pub nodes: Vec<NodeView>,
    pub held: Vec<NodeOccupancy>,
    pub blocks: Vec<BlockEntry>,
    /// Names of the services that did not answer.
    pub silent: Vec<&'static str>,
}

impl Fleet {
    /// Reads the fleet.
    ///
    /// # Errors
    /// When node-status does not answer.
    pub async fn read(session: &Session) -> anyhow::Result<Self> {
        let client = session.client(Service::NodeStatus, Role::Reader)?;
        let answer = pages::all(&client, "/v1/nodes", PAGES).await?;
        Ok(Self::around(session, read(answer)?).await)
    }

    async fn around(session: &Session, list: NodeList) -> Self {
        let mut fleet = Self {
            nodes: list.nodes,
            ..Self::default()
        };
        let held = ask::<Occupancy>(session, Service::RmScheduler, "/v1/occupancy", held::PAGES);
        let blocks = ask::<BlockList>(session, Service::Blocklist, "/v1/blocklist/items", BLOCKS);
        let (held, blocks) = tokio::join!(held, blocks);
        match held {
            Some(held) => fleet.held = held.nodes,
            None => fleet.silent.push(Service::RmScheduler.name()),
        }
        match blocks {
            Some(blocks) => fleet.blocks = blocks.items,
            None => fleet.silent.push(Service::Blocklist.name()),
        }
        fleet
    }

    fn held_on(&self, node: &NodeView) -> Option<&NodeOccupancy> {
        self.held.iter().find(|it| it.node == node.entry.node)
    }

    fn block_of(&self, node: &NodeView) -> Option<&BlockEntry> {
        let ours = |it: &&BlockEntry| {
            it.kind == BlockKind::Node && it.identifier == node.entry.node.as_str()
        };
        // A block for a single job does not block the node.
        self.blocks.iter().filter(ours).find(|it| it.job.is_none())
    }
}

/// Reads a list. Returns `None` if the service does not answer, or if its response has an unknown
/// format.
async fn ask<T: DeserializeOwned>(
    session: &Session,
    service: Service,
    path: &str,
    pages: Pages,
) -> Option<T> {
    let client = session.client(service, Role::Reader).ok()?;
    let answer: Value = pages::all(&client, path, pages).await.ok()?;
    read(answer).ok()
}

/// Returns one word for the health of the node and for the decisions of operators.
pub fn state(view: &NodeView) -> Cell {
    let entry = &view.entry;
    match (entry.health, view.drain_state) {
        (Health::Lost, _) => toned("lost", Tone::Bad),
        (Health::Suspect, _) => toned("suspect", Tone::Warning),
        (_, Some(DrainState::Failed)) => toned("drain failed", Tone::Bad),
        (_, Some(DrainState::Paused)) => toned("drain paused", Tone::Warning),
        (_, Some(state)) => toned(word(&state), Tone::Warning),
        _ if !entry.schedulable => toned("off", Tone::Warning),
        (Health::Healthy, None) => toned("healthy", Tone::Good),
        (health, None) => toned(word(&health), Tone::Warning),
    }
}
