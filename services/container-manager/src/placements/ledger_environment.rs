//! Lets placement actions read containers of the ledger, and applies their orders within one batch.

use hayward_container_manager_domain::{Fact, State};
use hayward_container_manager_placement::{Environment, LiveContainer, LiveState};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::{AllocationId, NodeName, Processor, Role, Timestamp, UserName, WorkId};

use super::WORKER_POOL_PREFIX;
use crate::ledger::Ledger;
use crate::model::{Container, Rows};

/// Implementation of [`Environment`] on the ledger and the current batch.
pub struct LedgerEnvironment<'a> {
    pub ledger: &'a mut Ledger,
    pub moment: &'a Moment,
    pub batch: &'a mut Batch<Rows>,
}

impl LedgerEnvironment<'_> {
    fn iter_live(&self, work: &WorkId) -> impl Iterator<Item = &Container> {
        let ids = self.ledger.by_work.get(work).into_iter().flatten();
        let containers = ids.filter_map(|id| self.ledger.containers.get(id));
        containers.filter(|container| !container.lifecycle.has_ended())
    }

    fn apply_fact(&mut self, id: &AllocationId, fact: Fact<'_>) {
        self.ledger
            .apply_fact(id.as_str(), fact, self.moment, self.batch);
    }
}

fn to_live_container(container: &Container) -> LiveContainer {
    let lifecycle = &container.lifecycle;
    LiveContainer {
        allocation: container.id.clone(),
        host: container.node.clone(),
        state: match lifecycle.state {
            _ if lifecycle.held => LiveState::Held,
            State::Ordered | State::Launching => LiveState::Pending,
            State::Running => LiveState::Running,
            State::Stopping | State::Ended => LiveState::Stopping,
        },
        reason: lifecycle.reason.clone(),
    }
}

impl Environment for LedgerEnvironment<'_> {
    fn now(&self) -> Timestamp {
        self.moment.now
    }

    fn epoch(&self) -> u64 {
        self.moment.epoch
    }

    fn is_live(&self, deployment: &str) -> bool {
        self.ledger.placements.is_live(deployment)
    }

    fn processor(&self, work: &WorkId) -> Option<(Processor, UserName)> {
        let entry = self.ledger.placements.processors.get(work.as_str())?;
        Some((entry.processor.clone(), entry.user.clone()))
    }

    fn processors(&self, deployment: &str) -> Vec<(WorkId, Role)> {
        let processors = self.ledger.placements.processors.iter();
        let in_deployment =
            processors.filter(|(_, entry)| entry.processor.deployment == deployment);
        in_deployment
            .map(|(_, entry)| (entry.work.clone(), entry.processor.role.clone()))
            .collect()
    }

    fn is_pool_worker(&self, work: &WorkId) -> bool {
        work.as_str().starts_with(WORKER_POOL_PREFIX)
    }

    fn live_containers(&self, work: &WorkId) -> Vec<LiveContainer> {
        self.iter_live(work).map(to_live_container).collect()
    }

    fn find_granted(&self, work: &WorkId, request: &str) -> Option<LiveContainer> {
        let mut live = self.iter_live(work);
        let granted = live.find(|container| container.request.as_deref() == Some(request));
        granted.map(to_live_container)
    }

    fn wait_reason(&self, request: &str) -> Option<String> {
        let mut processors = self.ledger.placements.processors.iter();
        processors.find_map(|(_, entry)| entry.waits.get(request).cloned())
    }

    fn has_run(&self, allocation: &AllocationId) -> bool {
        let lifecycle = self
            .ledger
            .containers
            .get(allocation)
            .map(|it| &it.lifecycle);
        lifecycle.is_some_and(|it| it.state == State::Running || it.started_at.is_some())
    }

    fn last_host(&self, work: &WorkId) -> Option<NodeName> {
        self.ledger.placements.last_hosts.get(work).cloned()
    }

    fn listed_hosts(&self, work: &WorkId) -> Vec<NodeName> {
        let entry = self.ledger.placements.processors.get(work.as_str());
        entry.map_or_else(Vec::new, |entry| entry.machines.clone())
    }

    fn closed_reason(&self, host: &NodeName, work: &WorkId) -> Option<String> {
        let closed = &self.ledger.placements.closed_nodes;
        // A node may be closed for all work, for one service, or for one process.
        let parent_work = work.parent();
        let keys = [
            host.to_string(),
            format!("{host}@{parent_work}"),
            format!("{host}@{work}"),
        ];
        let entry = keys.iter().find_map(|key| closed.get(key));
        entry.map(|entry| entry.reason.clone())
    }

    fn stop(&mut self, allocation: &AllocationId) {
        self.apply_fact(allocation, Fact::Stop);
    }

    fn launch(&mut self, allocation: &AllocationId) {
        self.apply_fact(allocation, Fact::Launch);
    }

    fn release(&mut self, allocation: &AllocationId) {
        // No node has the order of a held container, so the stop ends it at once.
        self.apply_fact(allocation, Fact::Stop);
    }
}
