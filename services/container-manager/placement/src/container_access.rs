//! Interface of placement actions to the containers: what an action may read, and the orders that
//! it may give.

use hayward_vocabulary::{AllocationId, NodeName, Processor, Role, Timestamp, UserName, WorkId};

/// State of a container that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveState {
    /// Reserved for a successor. The container is not in the desired set of its node.
    Held,
    /// Ordered to start.
    Pending,
    Running,
    Stopping,
}

/// A container that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveContainer {
    pub allocation: AllocationId,
    pub host: NodeName,
    pub state: LiveState,
    /// Reason for the state. `None` if the node reported no reason.
    pub reason: Option<String>,
}

/// State that placement actions read, and the orders that they give.
pub trait Environment {
    fn now(&self) -> Timestamp;
    /// Current term of container-manager.
    fn epoch(&self) -> u64;
    /// Returns whether the deployment has not ended.
    fn is_live(&self, deployment: &str) -> bool;
    /// Returns a processor and its owner.
    fn processor(&self, work: &WorkId) -> Option<(Processor, UserName)>;
    /// Returns all processors of a deployment.
    fn processors(&self, deployment: &str) -> Vec<(WorkId, Role)>;
    /// Returns whether the work is a worker of a worker pool, which only the owner of the pool may
    /// move.
    fn is_pool_worker(&self, work: &WorkId) -> bool;
    fn live_containers(&self, work: &WorkId) -> Vec<LiveContainer>;
    /// Returns the container granted for a request. `None` if no container was granted, or if the
    /// granted container has ended.
    fn find_granted(&self, work: &WorkId, request: &str) -> Option<LiveContainer>;
    /// Returns why a request is not granted yet. `None` if rm-scheduler gave no reason.
    fn wait_reason(&self, request: &str) -> Option<String>;
    /// Returns whether the container has ever run.
    fn has_run(&self, allocation: &AllocationId) -> bool;
    fn last_host(&self, work: &WorkId) -> Option<NodeName>;
    /// Returns the `machines` of the service. Empty if every host is allowed.
    fn listed_hosts(&self, work: &WorkId) -> Vec<NodeName>;
    /// Returns why a host accepts no new process of the work. `None` if it accepts one.
    fn closed_reason(&self, host: &NodeName, work: &WorkId) -> Option<String>;

    fn stop(&mut self, allocation: &AllocationId);
    fn launch(&mut self, allocation: &AllocationId);
    /// Releases a held container.
    fn release(&mut self, allocation: &AllocationId);
}

/// Returns the active processor of a group: the processor itself, or the one it is a standby of.
fn active_processor(work: &WorkId, role: &Role) -> WorkId {
    match role {
        Role::Active => work.clone(),
        Role::Standby { of, .. } => of.clone(),
    }
}

/// Returns whether a host is outside the `machines` of the service.
pub fn is_unlisted(env: &impl Environment, work: &WorkId, host: &NodeName) -> bool {
    let machines = env.listed_hosts(work);
    !machines.is_empty() && !machines.contains(host)
}

/// Returns all other processors that must not share a host with the processor.
pub fn partners(env: &impl Environment, work: &WorkId) -> Vec<(WorkId, Role)> {
    let Some((processor, _)) = env.processor(work) else {
        return Vec::new();
    };
    let active = active_processor(work, &processor.role);
    let mut all = env.processors(&processor.deployment);
    all.retain(|(other, role)| other != work && active_processor(other, role) == active);
    all
}

/// Returns a partner that has a container on the host.
pub fn conflicting_partner(
    env: &impl Environment,
    work: &WorkId,
    host: &NodeName,
) -> Option<WorkId> {
    let on_host = |(other, _): &(WorkId, Role)| {
        let live = env.live_containers(other);
        live.iter().any(|container| container.host == *host)
    };
    let partner = partners(env, work).into_iter().find(on_host);
    partner.map(|(other, _)| other)
}

/// Returns the container of a processor that is not held. If there are two, the container that is
/// not stopping is preferred.
pub fn current_container(work: &WorkId, env: &impl Environment) -> Option<LiveContainer> {
    let mut live = env.live_containers(work);
    live.retain(|it| it.state != LiveState::Held);
    live.sort_by_key(|it| it.state == LiveState::Stopping);
    live.into_iter().next()
}

/// Returns the host on which the processor runs or last ran.
pub fn last_known_host(work: &WorkId, env: &impl Environment) -> Option<NodeName> {
    let container = current_container(work, env).map(|it| it.host);
    container.or_else(|| env.last_host(work))
}

/// Returns whether a container of the processor is running.
pub(crate) fn is_up(env: &impl Environment, work: &WorkId) -> bool {
    let live = env.live_containers(work);
    live.iter().any(|it| it.state == LiveState::Running)
}
