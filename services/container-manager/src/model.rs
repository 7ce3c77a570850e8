//! What the service holds in memory and in rows: containers, deployments, and the rows of a batch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hayward_container_manager_api::{ContainerEntry, ContainerState, DesiredEntry, Goal};
use hayward_container_manager_domain as domain;
use hayward_container_manager_domain::{Life, State};
use hayward_container_manager_placement::Placement;
use hayward_vocabulary::{
    AllocationId, Launch, NodeName, Size, Timestamp, UserName, WorkId, WorkKind,
};

/// A container, with everything its row, its entries and its decisions need.
#[derive(Debug, Clone)]
pub struct Container {
    pub id: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub node: NodeName,
    pub size: Size,
    /// Its node ends it by itself when its lease runs out (I4).
    pub exclusive: bool,
    /// The one whose place it takes.
    pub predecessor: Option<AllocationId>,
    /// The request of an action that it answers.
    pub request: Option<String>,
    /// Absent once it has ended: it may hold secrets.
    pub launch: Option<Arc<Launch>>,
    /// Term of the writer that last changed what the node is told.
    pub epoch: u64,
    pub ordered_at: Timestamp,
    pub life: Life,
    pub buried_at: Option<Timestamp>,
}

impl Container {
    pub fn entry(&self) -> ContainerEntry {
        ContainerEntry {
            id: self.id.clone(),
            work: self.work.clone(),
            node: self.node.clone(),
            state: api_state(self.life.state),
            started_at: self.life.started_at,
            reason: self.life.reason.clone(),
            exit: self.life.exit.clone(),
        }
    }

    pub fn desired(&self) -> Option<DesiredEntry> {
        let goal = match self.life.desired()? {
            domain::Goal::Run => Goal::Run,
            domain::Goal::Stop => Goal::Stop,
        };
        Some(DesiredEntry {
            id: self.id.clone(),
            work: self.work.clone(),
            kind: self.kind,
            user: self.user.clone(),
            incarnation: self.life.incarnation,
            epoch: self.epoch,
            goal,
            exclusive: self.exclusive,
            size: self.size.clone(),
            launch: self.launch.as_deref()?.clone(),
        })
    }
}

/// The word of the contract for a state.
pub fn api_state(state: State) -> ContainerState {
    match state {
        State::Ordered => ContainerState::Ordered,
        State::Launching => ContainerState::Launching,
        State::Running => ContainerState::Running,
        State::Stopping => ContainerState::Stopping,
        State::Ended => ContainerState::Ended,
    }
}

/// One deployment of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    pub service: WorkId,
    pub user: UserName,
    pub ended_at: Option<Timestamp>,
}

/// The rows of one batch; of a container that changed twice, the last.
#[derive(Default)]
pub struct Rows {
    pub created: BTreeMap<AllocationId, Container>,
    pub changed: BTreeMap<AllocationId, Container>,
    pub placements: BTreeMap<String, Placement>,
    pub deleted_placements: BTreeSet<String>,
    pub deployments: BTreeMap<String, Deployment>,
    pub deleted_deployments: BTreeSet<String>,
}

/// What a term begins with.
pub struct StoredPlacements {
    pub placements: Vec<Placement>,
    pub deployments: BTreeMap<String, Deployment>,
    pub last_hosts: HashMap<WorkId, NodeName>,
}
