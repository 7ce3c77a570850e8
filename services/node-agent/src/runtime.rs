//! The interface to a runtime, which runs containers on a real node ([`real`], with its processes
//! and its container engine) or a simulated one ([`simulated`]).
//!
//! A runtime receives commands and answers later with a [`RuntimeEvent`]. The runtime never decides
//! what to start: it starts each ordered container once and reports the result.

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
    /// Owner of the work. The owner determines the system account (S16).
    pub user: UserName,
    pub size: Size,
    /// Whether the container ends when the lease of the node expires (I4).
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
    /// The container was killed but does not end, for this reason (F31).
    Stuck(String),
    /// All processes of the container have ended, or the container never started.
    Ended(Exit),
}

/// Sender of a bounded channel. A runtime waits while the channel is full.
pub type EventSender = mpsc::Sender<RuntimeEvent>;

/// A container that a runtime found when the agent started.
#[derive(Debug)]
pub struct FoundContainer {
    pub incarnation: u64,
    pub epoch: u64,
    /// Boot under which the container was ordered, if known.
    pub boot_id: Option<String>,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub evidence: Evidence,
}

/// A piece of output.
#[derive(Debug)]
pub struct OutputPiece {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

pub trait Runtime: Send + Sync {
    /// Returns the names of the available runtimes, for the inventory. They may change.
    fn available_runtimes(&self) -> Vec<String>;

    /// Returns the labels of the node.
    fn labels(&self) -> BTreeMap<String, String>;

    /// Finds the containers of a previous agent, and watches live ones. A container reported as
    /// [`Evidence::NoTrace`] cannot start any more.
    ///
    /// # Errors
    /// If the state of the node cannot be inspected.
    fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, FoundContainer>>;

    /// Starts the container and returns at once. The intent is already in the journal.
    fn launch(&self, container: Container);

    /// Asks the container to end, and kills it after its grace.
    fn stop(&self, id: &AllocationId);

    /// Deletes the data of an ended container.
    fn forget(&self, id: &AllocationId);

    /// Returns at most `max_bytes` of output from `offset` on, among the last `backlog` bytes.
    /// Returns `None` if there is no such output.
    fn output(
        &self,
        id: &AllocationId,
        offset: u64,
        max_bytes: u64,
        backlog: u64,
    ) -> Option<OutputPiece>;

    /// Returns whether containers ever have output.
    fn has_output(&self) -> bool {
        true
    }
}
