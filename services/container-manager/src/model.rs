//! Types of the stored rows: containers, deployments, and the rows that one batch writes.

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
    /// True if the node ends the container when the lease of the node expires (I4).
    pub exclusive: bool,
    /// The container that this one replaces, and that must end first. `None` if there is none.
    pub predecessor: Option<AllocationId>,
    /// The request of a placement action for which the allocation was granted, if any.
    pub request: Option<String>,
    /// `None` once the container has ended, because launch data may contain secrets.
    pub launch: Option<Arc<Launch>>,
    /// Term in which container-manager last changed the entry in the desired set.
    pub epoch: u64,
    pub ordered_at: Timestamp,
    pub lifecycle: Lifecycle,
    /// Time at which the container was archived, because it had ended and its allocation was
    /// removed. `None` before.
    pub archived_at: Option<Timestamp>,
}

impl Container {
    /// Returns the entry in the publication `containers`.
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

    /// Returns the entry in the desired set of the node. `None` if the container is not in it.
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
    /// `None` while the deployment is live.
    pub ended_at: Option<Timestamp>,
}

/// Rows that one batch writes: the last version of each row, and the ids of deleted rows.
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
