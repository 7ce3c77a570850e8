//! The one narrow door to whatever containers run in. Behind it is a machine ([`real`]: processes
//! of its own, and containers of its engine) or the pretence of one ([`simulated`]); in front of it
//! everything is the same code.
//!
//! A runtime is told and answers later, through [`News`]. It never decides: it starts what it is
//! told to start, once per directory, and says what became of it.

pub mod cgroups;
pub mod docker;
pub mod process;
pub mod real;
pub mod simulated;

use std::collections::BTreeMap;

use hayward_node_agent_domain::Trace;
use hayward_vocabulary::{AllocationId, Exit, Launch, Size, Timestamp, UserName, WorkId};
use tokio::sync::mpsc;

/// A container to start.
#[derive(Debug, Clone)]
pub struct Container {
    pub id: AllocationId,
    pub incarnation: u64,
    pub epoch: u64,
    pub work: WorkId,
    /// Whose share is charged, and so as whom it runs (S16).
    pub user: UserName,
    pub size: Size,
    /// It is ended when the lease of the node runs out (I4).
    pub exclusive: bool,
    pub launch: Launch,
}

/// What became of a container.
#[derive(Debug, Clone)]
pub struct News {
    pub id: AllocationId,
    pub incarnation: u64,
    pub event: Event,
}

#[derive(Debug, Clone)]
pub enum Event {
    Started {
        pid: u32,
        at: Timestamp,
    },
    /// It was killed and does not end, for this reason (F31).
    Stuck(String),
    Ended(Exit),
}

/// Bounded: a runtime that has too much to say waits.
pub type NewsSender = mpsc::Sender<News>;

/// What a runtime still knows after the agent was away.
#[derive(Debug)]
pub struct Found {
    pub incarnation: u64,
    pub epoch: u64,
    /// Boot it was ordered under, where that is known.
    pub boot_id: Option<String>,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub trace: Trace,
}

/// A piece of output: `bytes` from `offset` on.
#[derive(Debug)]
pub struct Piece {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

pub trait Runtime: Send + Sync {
    /// What can be run now, as the inventory of the node says it. It may change.
    fn offers(&self) -> Vec<String>;

    /// What users and operators should know of it, as labels of the node.
    fn labels(&self) -> BTreeMap<String, String>;

    /// Looks for what an earlier agent left, and watches what lives. What is reported as
    /// [`Trace::Untouched`] cannot start any more.
    ///
    /// # Errors
    /// When the machine does not let itself be looked at: then nothing may be concluded.
    fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, Found>>;

    /// Starts it. The intent is on disk. Returns at once.
    fn launch(&self, container: Container);

    /// Asks it to end, gracefully first.
    fn stop(&self, id: &AllocationId);

    /// Drops what is kept of an ended container.
    fn forget(&self, id: &AllocationId);

    /// Output from `offset` on, of the last `backlog` bytes at most, `most` bytes at most.
    fn output(&self, id: &AllocationId, offset: u64, most: u64, backlog: u64) -> Option<Piece>;

    /// Whether there is ever any output.
    fn writes(&self) -> bool {
        true
    }
}
