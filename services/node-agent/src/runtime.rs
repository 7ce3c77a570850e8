//! The interface to what runs containers: a real machine ([`real`], with its processes and its
//! container engine) or a simulated one ([`simulated`]).
//!
//! A runtime receives commands and answers later with a [`RuntimeEvent`]. It never decides: it
//! starts what it is ordered to start, once per directory, and reports the result.

pub mod docker;
pub mod process;
pub mod real;
pub mod simulated;

use std::collections::BTreeMap;

use hayward_node_agent_domain::Evidence;
use hayward_vocabulary::{AllocationId, Exit, Launch, Size, Timestamp, UserName, WorkId};
use tokio::sync::mpsc;

/// A container to start.
#[derive(Debug, Clone)]
pub struct Container {
    pub id: AllocationId,
    pub incarnation: u64,
    pub epoch: u64,
    pub work: WorkId,
    /// Owner of the work; determines the system account (S16).
    pub user: UserName,
    pub size: Size,
    /// Ends when the lease of the node expires (I4).
    pub exclusive: bool,
    pub launch: Launch,
}

/// A change of a container.
#[derive(Debug, Clone)]
pub struct RuntimeEvent {
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
    /// It was killed but does not end, for this reason (F31).
    Stuck(String),
    Ended(Exit),
}

/// Bounded: a runtime waits while the channel is full.
pub type EventSender = mpsc::Sender<RuntimeEvent>;

/// A container that a runtime found when the agent started.
#[derive(Debug)]
pub struct Found {
    pub incarnation: u64,
    pub epoch: u64,
    /// Boot under which it was ordered, if known.
    pub boot_id: Option<String>,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub evidence: Evidence,
}

/// A piece of output.
#[derive(Debug)]
pub struct Piece {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

pub trait Runtime: Send + Sync {
    /// Names of the available runtimes, for the inventory. May change.
    fn offers(&self) -> Vec<String>;

    /// Labels of the node.
    fn labels(&self) -> BTreeMap<String, String>;

    /// Finds the containers of a previous agent, and watches live ones. A container reported as
    /// [`Evidence::Untouched`] cannot start any more.
    ///
    /// # Errors
    /// If the machine cannot be inspected.
    fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, Found>>;

    /// Starts it and returns at once. The intent is already in the journal.
    fn launch(&self, container: Container);

    /// Asks it to end, gracefully first.
    fn stop(&self, id: &AllocationId);

    /// Deletes the data of an ended container.
    fn forget(&self, id: &AllocationId);

    /// At most `most` bytes of output from `offset` on, among the last `backlog` bytes.
    fn output(&self, id: &AllocationId, offset: u64, most: u64, backlog: u64) -> Option<Piece>;

    /// Whether containers ever have output.
    fn writes(&self) -> bool {
        true
    }
}
