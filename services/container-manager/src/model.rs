//! Row types: containers, deployments, and the rows that one batch writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hayward_container_manager_api::{ContainerEntry, ContainerState, DesiredEntry, Goal};
use hayward_container_manager_domain as domain;
use hayward_container_manager_domain::{Lifecycle, State};
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
    /// True if its node ends it when the lease of the node expires (I4).
    pub exclusive: bool,
    /// The container that it replaces and that must end first. `None` if it replaces no container.
    pub predecessor: Option<AllocationId>,
    /// The placement request that it was granted for, if any.
    pub request: Option<String>,
    /// `None` once it has ended, because launch data may contain secrets.
    pub launch: Option<Arc<Launch>>,
    /// Term of the manager that last changed its entry in the desired set.
    pub epoch: u64,
    pub ordered_at: Timestamp,
    pub lifecycle: Lifecycle,
    /// Time at which it was archived: it had ended, and its allocation was removed. `None` before.
    pub archived_at: Option<Timestamp>,
}

impl Container {
    /// Returns its entry in the publication `containers`.
    pub fn entry(&self) -> ContainerEntry {
        ContainerEntry {
            id: self.id.clone(),
            work: self.work.clone(),
            node: self.node.clone(),
            state: to_api_state(self.lifecycle.state),
            started_at: self.lifecycle.started_at,
            reason: self.lifecycle.reason.clone(),
            exit: self.lifecycle.exit.clone(),
        }
    }

    /// Returns its entry in the desired set of its node, if it is in it.
    pub fn desired_entry(&self) -> Option<DesiredEntry> {
        let goal = match self.lifecycle.goal()? {
            domain::Goal::Run => Goal::Run,
            domain::Goal::Stop => Goal::Stop,
        };
        Some(DesiredEntry {
            id: self.id.clone(),
            work: self.work.clone(),
            kind: self.kind,
            user: self.user.clone(),
            incarnation: self.lifecycle.incarnation,
            epoch: self.epoch,
            goal,
            exclusive: self.exclusive,
            size: self.size.clone(),
            launch: self.launch.as_deref()?.clone(),
        })
    }
}

/// Converts a state to that of the API.
pub fn to_api_state(state: State) -> ContainerState {
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
    /// `None` while it is live.
    pub ended_at: Option<Timestamp>,
}

/// Rows that one batch writes. Contains only the last version of each row.
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
