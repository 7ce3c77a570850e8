//! What the machine sees, and what it may do.

use hayward_vocabulary::{AllocationId, NodeName, Processor, Role, Timestamp, UserName, WorkId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandState {
    /// Reserved: no node has been told of it.
    Held,
    /// Told to start.
    Pending,
    Running,
    Stopping,
}

/// A container that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stand {
    pub allocation: AllocationId,
    pub host: NodeName,
    pub state: StandState,
    /// Why it is as it is, where its node says.
    pub reason: Option<String>,
}

pub trait World {
    fn now(&self) -> Timestamp;
    /// Term of the manager.
    fn epoch(&self) -> u64;
    fn is_live(&self, deployment: &str) -> bool;
    fn processor(&self, work: &WorkId) -> Option<(Processor, UserName)>;
    /// All processors of the same deployment.
    fn processors(&self, deployment: &str) -> Vec<(WorkId, Role)>;
    /// A worker of a pool, which only the owner of the pool may move.
    fn is_pool_worker(&self, work: &WorkId) -> bool;
    fn stands(&self, work: &WorkId) -> Vec<Stand>;
    /// What was granted for a request, while it has not ended.
    fn granted(&self, work: &WorkId, request: &str) -> Option<Stand>;
    /// Why a request is not granted, as far as the scheduler says.
    fn waits(&self, request: &str) -> Option<String>;
    /// It has come to run, whatever has become of it.
    fn has_run(&self, allocation: &AllocationId) -> bool;
    fn last_host(&self, work: &WorkId) -> Option<NodeName>;
    /// The machines its owner has listed; empty means any.
    fn machines(&self, work: &WorkId) -> Vec<NodeName>;
    /// Why a host takes nothing new of this work.
    fn closed(&self, host: &NodeName, work: &WorkId) -> Option<String>;

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
pub fn is_unlisted(world: &impl World, work: &WorkId, host: &NodeName) -> bool {
    let machines = world.machines(work);
    !machines.is_empty() && !machines.contains(host)
}

/// All others that must not share a host with it (11.1).
pub fn partners(world: &impl World, work: &WorkId) -> Vec<(WorkId, Role)> {
    let Some((processor, _)) = world.processor(work) else {
        return Vec::new();
    };
    let active = active_of(work, &processor.role);
    let mut all = world.processors(&processor.deployment);
    all.retain(|(other, role)| other != work && active_of(other, role) == active);
    all
}

/// A partner that stands on the host.
pub fn conflict(world: &impl World, work: &WorkId, host: &NodeName) -> Option<WorkId> {
    let on_host = |(other, _): &(WorkId, Role)| {
        let stands = world.stands(other);
        stands.iter().any(|stand| stand.host == *host)
    };
    let found = partners(world, work).into_iter().find(on_host);
    found.map(|(other, _)| other)
}

/// What stands of the processor and is not held in reserve.
pub fn standing(work: &WorkId, world: &impl World) -> Option<Stand> {
    let mut stands = world.stands(work);
    stands.retain(|it| it.state != StandState::Held);
    // The one that stays, where another one is on its way out.
    stands.sort_by_key(|it| it.state == StandState::Stopping);
    stands.into_iter().next()
}

/// Where it runs, or ran last.
pub fn source(work: &WorkId, world: &impl World) -> Option<NodeName> {
    let stand = standing(work, world).map(|it| it.host);
    stand.or_else(|| world.last_host(work))
}

/// Not running, or only on its way there.
pub(crate) fn is_up(world: &impl World, work: &WorkId) -> bool {
    let stands = world.stands(work);
    stands.iter().any(|it| it.state == StandState::Running)
}
