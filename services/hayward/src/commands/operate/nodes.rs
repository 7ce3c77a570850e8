//! `hayward nodes`: shows every node on one line, with its state.
//!
//! node-status has the nodes, rm-scheduler has their pools and allocations, and blocklist has their
//! blocks. The command fails only without node-status.

mod occupancy;
pub mod picture;
mod table;
pub mod watch;

use std::path::PathBuf;

use hayward_blocklist_api::{BlockEntry, BlockKind, BlockList};
use hayward_node_status_api::drain::DrainState;
use hayward_node_status_api::{Health, NodeList, NodeView};
use hayward_rm_scheduler_api::occupancy::{NodeOccupancy, Occupancy};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::format::enum_text;
use crate::output::{Cell, Tone, parse_response, print, toned};

pub use table::render;

const NODE_PAGES: PageFields = PageFields {
    list: "nodes",
    next: "next_cursor",
};
const BLOCK_PAGES: PageFields = PageFields {
    list: "items",
    next: "next_cursor",
};

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
        return occupancy::run(session).await;
    }
    if let Some(file) = &arguments.picture {
        return picture::run(session, file, arguments.sort).await;
    }
    let client = session.client(Service::NodeStatus, Role::Reader)?;
    let response = pages::read_all(&client, "/v1/nodes", NODE_PAGES).await?;
    if session.out.json {
        return session.out.json(&response);
    }
    let fleet = Fleet::from_nodes(&session, parse_response(response)?).await;
    print(&render(&fleet, &session.out.renderer()))
}

/// Nodes of the fleet, from the responses of three services.
#[derive(Debug, Default)]
pub struct Fleet {
    pub nodes: Vec<NodeView>,
    pub occupancy: Vec<NodeOccupancy>,
    pub blocks: Vec<BlockEntry>,
    /// Names of the services that did not answer.
    pub unavailable: Vec<&'static str>,
}

impl Fleet {
    /// Reads the fleet.
    ///
    /// # Errors
    /// When node-status does not answer.
    pub async fn read(session: &Session) -> anyhow::Result<Self> {
        let client = session.client(Service::NodeStatus, Role::Reader)?;
        let response = pages::read_all(&client, "/v1/nodes", NODE_PAGES).await?;
        Ok(Self::from_nodes(session, parse_response(response)?).await)
    }

    async fn from_nodes(session: &Session, list: NodeList) -> Self {
        let mut fleet = Self {
            nodes: list.nodes,
            ..Self::default()
        };
        let occupancy = read_list::<Occupancy>(
            session,
            Service::RmScheduler,
            "/v1/occupancy",
            occupancy::NODE_PAGES,
        );
        let blocks = read_list::<BlockList>(
            session,
            Service::Blocklist,
            "/v1/blocklist/items",
            BLOCK_PAGES,
        );
        let (occupancy, blocks) = tokio::join!(occupancy, blocks);
        match occupancy {
            Some(occupancy) => fleet.occupancy = occupancy.nodes,
            None => fleet.unavailable.push(Service::RmScheduler.name()),
        }
        match blocks {
            Some(blocks) => fleet.blocks = blocks.items,
            None => fleet.unavailable.push(Service::Blocklist.name()),
        }
        fleet
    }

    fn occupancy_of(&self, node: &NodeView) -> Option<&NodeOccupancy> {
        self.occupancy.iter().find(|it| it.node == node.entry.node)
    }

    /// Returns the block of the node for all work. Returns `None` without a block.
    fn block_of(&self, node: &NodeView) -> Option<&BlockEntry> {
        let is_block_of_node = |it: &&BlockEntry| {
            it.kind == BlockKind::Node && it.identifier == node.entry.node.as_str()
        };
        // A block for a single job does not block the node.
        self.blocks
            .iter()
            .filter(is_block_of_node)
            .find(|it| it.job.is_none())
    }
}

/// Reads a list. Returns `None` if the service does not answer, or if its response has an unknown
/// format.
async fn read_list<T: DeserializeOwned>(
    session: &Session,
    service: Service,
    path: &str,
    pages: PageFields,
) -> Option<T> {
    let client = session.client(service, Role::Reader).ok()?;
    let response: Value = pages::read_all(&client, path, pages).await.ok()?;
    parse_response(response).ok()
}

/// Returns one word for the health of the node and for the decisions of operators.
pub fn state_cell(view: &NodeView) -> Cell {
    let entry = &view.entry;
    match (entry.health, view.drain_state) {
        (Health::Lost, _) => toned("lost", Tone::Bad),
        (Health::Suspect, _) => toned("suspect", Tone::Warning),
        (_, Some(DrainState::Failed)) => toned("drain failed", Tone::Bad),
        (_, Some(DrainState::Paused)) => toned("drain paused", Tone::Warning),
        (_, Some(state)) => toned(enum_text(&state), Tone::Warning),
        _ if !entry.schedulable => toned("off", Tone::Warning),
        (Health::Healthy, None) => toned("healthy", Tone::Good),
        (health, None) => toned(enum_text(&health), Tone::Warning),
    }
}
