//! Row types: containers, deployments, and the rows that one batch writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hayward_container_manager_api::{ContainerEntry, ContainerState, DesiredEntry, Goal};
use hayward_container_manager_domain as domain;
use hayward_container_manager_domain::{Life, State};
use hayward_container_manager_placement::Placement;
use hayward_vocabulary::{
    AllocationId, Launch, NodeName, Size, Timestamp, UserName, WorkId, WorkKind,
};

#[derive(Debug, Clone)]
pub struct Container {
    pub id: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub node: NodeName,
    pub size: Size,
    /// Its node ends it when the lease of the node expires (I4).
    pub exclusive: bool,
    /// The container that it replaces; it starts after that one has ended.
    pub predecessor: Option<AllocationId>,
    /// The placement request that it was granted for.
    pub request: Option<String>,
    /// Removed at the end, because it may contain secrets.
    pub launch: Option<Arc<Launch>>,
    /// Term of the manager that last changed its entry in the desired set.
    pub epoch: u64,
    pub ordered_at: Timestamp,
    pub life: Life,
    /// When it was buried: it has ended, and its allocation is gone.
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

/// The state as the API names it.
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

/// Rows that one batch writes. Only the last version of each row is kept.
#[derive(Default)]
pub struct Rows {
    pub created: BTreeMap<AllocationId, Container>,
    pub changed: BTreeMap<AllocationId, Container>,
    pub placements: BTreeMap<String, Placement>,
    pub deleted_placements: BTreeSet<String>,
    pub deployments: BTreeMap<String, Deployment>,
    pub deleted_deployments: BTreeSet<String>,
}

/// Placement rows, as loaded at the start of a term.
pub struct StoredPlacements {
    pub placements: Vec<Placement>,
    pub deployments: BTreeMap<String, Deployment>,
    pub last_hosts: HashMap<WorkId, NodeName>,
}
