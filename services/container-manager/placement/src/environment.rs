//! The containers and neighbours that placement actions see, and the effects they may have.

use hayward_vocabulary::{AllocationId, NodeName, Processor, Role, Timestamp, UserName, WorkId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveState {
    /// Reserved: in the desired set of no node.
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
    /// Why it is in its state, if its node reported a reason.
    pub reason: Option<String>,
}

pub trait Environment {
    fn now(&self) -> Timestamp;
    /// Current term of container-manager.
    fn epoch(&self) -> u64;
    fn is_live(&self, deployment: &str) -> bool;
    fn processor(&self, work: &WorkId) -> Option<(Processor, UserName)>;
    /// All processors of the same deployment.
    fn processors(&self, deployment: &str) -> Vec<(WorkId, Role)>;
    /// Whether it is a worker of a worker pool. Only the owner of the pool may move those.
    fn is_pool_worker(&self, work: &WorkId) -> bool;
    fn live_containers(&self, work: &WorkId) -> Vec<LiveContainer>;
    /// The container granted for a request, unless it has ended.
    fn granted(&self, work: &WorkId, request: &str) -> Option<LiveContainer>;
    /// Why a request is not granted yet, if rm-scheduler gave a reason.
    fn wait_reason(&self, request: &str) -> Option<String>;
    /// Whether it has ever run.
    fn has_run(&self, allocation: &AllocationId) -> bool;
    fn last_host(&self, work: &WorkId) -> Option<NodeName>;
    /// The `machines` of its service; empty if any host will do.
    fn listed_hosts(&self, work: &WorkId) -> Vec<NodeName>;
    /// Why a host accepts no new process of this work; none if it does.
    fn closed_reason(&self, host: &NodeName, work: &WorkId) -> Option<String>;

    fn stop(&mut self, allocation: &AllocationId);
    fn launch(&mut self, allocation: &AllocationId);
    /// Releases a held container.
    fn release(&mut self, allocation: &AllocationId);
}

/// The active processor of a group: the processor itself, or the one it is a standby of.
fn active_of(work: &WorkId, role: &Role) -> WorkId {
    match role {
        Role::Active => work.clone(),
        Role::Standby { of, .. } => of.clone(),
    }
}

/// Whether a host is outside the `machines` of the service.
pub fn is_unlisted(env: &impl Environment, work: &WorkId, host: &NodeName) -> bool {
    let machines = env.listed_hosts(work);
    !machines.is_empty() && !machines.contains(host)
}

/// All other processors that must not share a host with it.
pub fn partners(env: &impl Environment, work: &WorkId) -> Vec<(WorkId, Role)> {
    let Some((processor, _)) = env.processor(work) else {
        return Vec::new();
    };
    let active = active_of(work, &processor.role);
    let mut all = env.processors(&processor.deployment);
    all.retain(|(other, role)| other != work && active_of(other, role) == active);
    all
}

/// A partner with a container on the host.
pub fn conflict(env: &impl Environment, work: &WorkId, host: &NodeName) -> Option<WorkId> {
    let on_host = |(other, _): &(WorkId, Role)| {
        let live = env.live_containers(other);
        live.iter().any(|container| container.host == *host)
    };
    let found = partners(env, work).into_iter().find(on_host);
    found.map(|(other, _)| other)
}

/// Its container that is not held; the one that stays, if another is stopping.
pub fn current_container(work: &WorkId, env: &impl Environment) -> Option<LiveContainer> {
    let mut live = env.live_containers(work);
    live.retain(|it| it.state != LiveState::Held);
    live.sort_by_key(|it| it.state == LiveState::Stopping);
    live.into_iter().next()
}

/// The host on which it runs or last ran.
pub fn last_known_host(work: &WorkId, env: &impl Environment) -> Option<NodeName> {
    let container = current_container(work, env).map(|it| it.host);
    container.or_else(|| env.last_host(work))
}

/// Whether a container of it is running.
pub(crate) fn is_up(env: &impl Environment, work: &WorkId) -> bool {
    let live = env.live_containers(work);
    live.iter().any(|it| it.state == LiveState::Running)
}
