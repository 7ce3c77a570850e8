//! Placement actions and the publications that they depend on.

use std::collections::{BTreeMap, HashMap};

use hayward_container_manager_placement::{Placements, Rules};
use hayward_publication::Followed;
use hayward_rm_scheduler_api::{ClosedEntry, ProcessorEntry};
use hayward_vocabulary::invariant::Transit;
use hayward_vocabulary::{NodeName, Timestamp, WorkId};

use crate::model::{Deployment, StoredPlacements};

#[derive(Default, Clone)]
pub struct PlacementState {
    pub(crate) actions: Placements,
    pub(crate) processors: Followed<ProcessorEntry>,
    pub(crate) closed: Followed<ClosedEntry>,
    pub(crate) deployments: BTreeMap<String, Deployment>,
    /// Last host of each process of a service.
    pub(crate) last_hosts: HashMap<WorkId, NodeName>,
    /// Ids of published requests, by placement.
    pub(crate) published: BTreeMap<String, String>,
    pub(crate) allocations_synced: bool,
    /// Actions of the previous term were resumed.
    pub(crate) resumed: bool,
    pub(crate) swept_ms: Option<u64>,
}

impl PlacementState {
    pub fn loaded(loaded: StoredPlacements) -> Self {
        let actions = Placements::loaded(loaded.placements);
        let published = actions.open().filter_map(|it| {
            let request = it.request()?;
            Some((it.uuid.clone(), request.id))
        });
        Self {
            published: published.collect(),
            actions,
            deployments: loaded.deployments,
            last_hosts: loaded.last_hosts,
            ..Self::default()
        }
    }

    /// The state after a reload from the rows.
    #[cfg(test)]
    pub fn reloaded(&self) -> Self {
        Self::loaded(StoredPlacements {
            placements: self.actions.iter().cloned().collect(),
            deployments: self.deployments.clone(),
            last_hosts: self.last_hosts.clone(),
        })
    }

    /// Whether all followed publications were received in this term.
    pub(crate) fn is_synced(&self) -> bool {
        self.processors.heard() && self.closed.heard() && self.allocations_synced
    }

    pub fn allocations_synced(&mut self) {
        self.allocations_synced = true;
    }

    pub fn started_on(&mut self, work: &WorkId, node: &NodeName) {
        self.last_hosts.insert(work.clone(), node.clone());
    }

    /// Whether an active action has this open request.
    pub fn has_open_request(&self, request: &str) -> bool {
        self.actions.by_request(request).is_some()
    }

    /// Active actions, and how late each is (I24).
    pub fn overdue(&self, rules: &Rules, now: Timestamp) -> impl Iterator<Item = Transit<String>> {
        let overdue = self.actions.overdue(rules, now);
        overdue.map(|(placement, late_ms)| Transit {
            subject: placement.uuid.clone(),
            state: "is a placement in flight",
            late_ms,
            why: Some(placement.response_message.clone()),
        })
    }

    pub fn finished_count(&self) -> usize {
        self.actions.finished_count()
    }

    pub(crate) fn is_live(&self, deployment: &str) -> bool {
        let known = self.deployments.get(deployment);
        known.is_some_and(|it| it.ended_at.is_none())
    }
}
