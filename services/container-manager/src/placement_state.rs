//! Placement actions and the publications that they depend on.

use std::collections::{BTreeMap, HashMap};

use hayward_container_manager_placement::{Placements, TimeLimits};
use hayward_publication::Followed;
use hayward_rm_scheduler_api::{ClosedEntry, ProcessorEntry};
use hayward_vocabulary::invariant_finding::TimedState;
use hayward_vocabulary::{NodeName, Timestamp, WorkId};

use crate::model::{Deployment, StoredPlacements};

#[derive(Default, Clone)]
pub struct PlacementState {
    pub(crate) actions: Placements,
    pub(crate) processors: Followed<ProcessorEntry>,
    pub(crate) closed_nodes: Followed<ClosedEntry>,
    /// Deployments by id.
    pub(crate) deployments: BTreeMap<String, Deployment>,
    /// Last host of each process of a service.
    pub(crate) last_hosts: HashMap<WorkId, NodeName>,
    /// Ids of published requests, by uuid of the placement.
    pub(crate) published_requests: BTreeMap<String, String>,
    /// True once `allocations` was received in this term.
    pub(crate) allocations_synced: bool,
    /// True once the actions of the previous term were resumed.
    pub(crate) resumed: bool,
    /// Monotonic time of the last deletion of expired placements.
    pub(crate) last_sweep_ms: Option<u64>,
}

impl PlacementState {
    pub fn from_rows(rows: StoredPlacements) -> Self {
        let actions = Placements::from_rows(rows.placements);
        let published_requests = actions.open().filter_map(|it| {
            let request = it.request()?;
            Some((it.uuid.clone(), request.id))
        });
        Self {
            published_requests: published_requests.collect(),
            actions,
            deployments: rows.deployments,
            last_hosts: rows.last_hosts,
            ..Self::default()
        }
    }

    /// Returns the state after a reload from the rows.
    #[cfg(test)]
    pub fn reload(&self) -> Self {
        Self::from_rows(StoredPlacements {
            placements: self.actions.iter().cloned().collect(),
            deployments: self.deployments.clone(),
            last_hosts: self.last_hosts.clone(),
        })
    }

    /// Returns whether all followed publications were received in this term.
    pub(crate) fn is_synced(&self) -> bool {
        self.processors.has_update() && self.closed_nodes.has_update() && self.allocations_synced
    }

    pub fn set_allocations_synced(&mut self) {
        self.allocations_synced = true;
    }

    pub fn record_last_host(&mut self, work: &WorkId, node: &NodeName) {
        self.last_hosts.insert(work.clone(), node.clone());
    }

    /// Returns whether an active action has this open request.
    pub fn has_open_request(&self, request: &str) -> bool {
        self.actions.find_by_request(request).is_some()
    }

    /// Returns the active actions and how late each is (I24).
    pub fn active_with_lateness(
        &self,
        limits: &TimeLimits,
        now: Timestamp,
    ) -> impl Iterator<Item = TimedState<String>> {
        let actions = self.actions.active_with_lateness(limits, now);
        actions.map(|(placement, late_ms)| TimedState {
            subject: placement.uuid.clone(),
            state: "is a placement in flight",
            late_ms,
            cause: Some(placement.response_message.clone()),
        })
    }

    pub fn finished_count(&self) -> usize {
        self.actions.finished_count()
    }

    pub(crate) fn is_live(&self, deployment: &str) -> bool {
        let deployment = self.deployments.get(deployment);
        deployment.is_some_and(|it| it.ended_at.is_none())
    }
}
