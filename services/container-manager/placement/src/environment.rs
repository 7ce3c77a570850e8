//! What the machine sees, and what it may do.

use hayward_vocabulary::{AllocationId, NodeName, Processor, Role, Timestamp, UserName, WorkId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveState {
    /// Reserved: no node has been told of it.
    Held,
    /// Told to start.
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
    /// Why it is as it is, where its node says.
    pub reason: Option<String>,
}

pub trait Environment {
    fn now(&self) -> Timestamp;
    /// Term of the manager.
    fn epoch(&self) -> u64;
    fn is_live(&self, deployment: &str) -> bool;
    fn processor(&self, work: &WorkId) -> Option<(Processor, UserName)>;
    /// All processors of the same deployment.
    fn processors(&self, deployment: &str) -> Vec<(WorkId, Role)>;
    /// A worker of a pool, which only the owner of the pool may move.
    fn is_pool_worker(&self, work: &WorkId) -> bool;
    fn live_containers(&self, work: &WorkId) -> Vec<LiveContainer>;
    /// What was granted for a request, while it has not ended.
    fn granted(&self, work: &WorkId, request: &str) -> Option<LiveContainer>;
    /// Why a request is not granted, as far as the scheduler says.
    fn wait_reason(&self, request: &str) -> Option<String>;
    /// It has come to run, whatever has become of it.
    fn has_run(&self, allocation: &AllocationId) -> bool;
    fn last_host(&self, work: &WorkId) -> Option<NodeName>;
    /// The machines its owner has listed; empty means any.
    fn listed_hosts(&self, work: &WorkId) -> Vec<NodeName>;
    /// Why a host takes nothing new of this work.
    fn closed_reason(&self, host: &NodeName, work: &WorkId) -> Option<String>;

    fn stop(&mut self, allocation: &AllocationId);
    fn launch(&mut self, allocation: &AllocationId);
    /// Gives back what is held.
    fn release(&mut self, allocation: &AllocationId);
}

/// The active one of a processor; itself where it is one.
fn active_of(work: &WorkId, role: &Role) -> WorkId {
    match role {
        Role::Active => work.clone(),
        Role::Standby { of, .. } => of.clone(),
    }
}

/// A host outside the machines that its owner has listed.
pub fn is_unlisted(env: &impl Environment, work: &WorkId, host: &NodeName) -> bool {
    let machines = env.listed_hosts(work);
    !machines.is_empty() && !machines.contains(host)
}

/// All others that must not share a host with it (11.1).
pub fn partners(env: &impl Environment, work: &WorkId) -> Vec<(WorkId, Role)> {
    let Some((processor, _)) = env.processor(work) else {
        return Vec::new();
    };
    let active = active_of(work, &processor.role);
    let mut all = env.processors(&processor.deployment);
    all.retain(|(other, role)| other != work && active_of(other, role) == active);
    all
}

/// A partner that stands on the host.
pub fn conflict(env: &impl Environment, work: &WorkId, host: &NodeName) -> Option<WorkId> {
    let on_host = |(other, _): &(WorkId, Role)| {
        let live = env.live_containers(other);
        live.iter().any(|container| container.host == *host)
    };
    let found = partners(env, work).into_iter().find(on_host);
    found.map(|(other, _)| other)
}

/// What stands of the processor and is not held in reserve.
pub fn current_container(work: &WorkId, env: &impl Environment) -> Option<LiveContainer> {
    let mut live = env.live_containers(work);
    live.retain(|it| it.state != LiveState::Held);
    // The one that stays, where another one is on its way out.
    live.sort_by_key(|it| it.state == LiveState::Stopping);
    live.into_iter().next()
}

/// Where it runs, or ran last.
pub fn last_known_host(work: &WorkId, env: &impl Environment) -> Option<NodeName> {
    let container = current_container(work, env).map(|it| it.host);
    container.or_else(|| env.last_host(work))
}

/// Not running, or only on its way there.
pub(crate) fn is_up(env: &impl Environment, work: &WorkId) -> bool {
    let live = env.live_containers(work);
    live.iter().any(|it| it.state == LiveState::Running)
}
