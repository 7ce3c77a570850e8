//! Placement actions in the working set, and what they depend on.

use std::collections::{BTreeMap, HashMap};

use hayward_container_manager_placement::{Placements, Rules};
use hayward_publication::Followed;
use hayward_rm_scheduler_api::{ClosedEntry, ProcessorEntry};
use hayward_vocabulary::invariant::Transit;
use hayward_vocabulary::{NodeName, Timestamp, WorkId};

use crate::model::{Deployment, StoredPlacements};

#[derive(Default, Clone)]
pub struct PlacementState {
    pub(super) actions: Placements,
    pub(super) processors: Followed<ProcessorEntry>,
    pub(super) closed: Followed<ClosedEntry>,
    pub(super) deployments: BTreeMap<String, Deployment>,
    /// Where processes of services were last started.
    pub(super) last_hosts: HashMap<WorkId, NodeName>,
    /// Ids of requests as published, by placement.
    pub(super) published: BTreeMap<String, String>,
    pub(super) allocations_synced: bool,
    /// What a former term had begun has been looked at.
    pub(super) resumed: bool,
    pub(super) swept_ms: Option<u64>,
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

    /// As a new term reads it back from the rows.
    #[cfg(test)]
    pub fn reloaded(&self) -> Self {
        Self::loaded(StoredPlacements {
            placements: self.actions.iter().cloned().collect(),
            deployments: self.deployments.clone(),
            last_hosts: self.last_hosts.clone(),
        })
    }

    /// Everybody this depends on has been heard once in this term.
    pub(super) fn is_synced(&self) -> bool {
        self.processors.heard() && self.closed.heard() && self.allocations_synced
    }

    pub fn allocations_synced(&mut self) {
        self.allocations_synced = true;
    }

    pub fn started_on(&mut self, work: &WorkId, node: &NodeName) {
        self.last_hosts.insert(work.clone(), node.clone());
    }

    /// An open action has asked for this.
    pub fn has_open_request(&self, request: &str) -> bool {
        self.actions.by_request(request).is_some()
    }

    /// Open actions, with how late each is (I24).
    pub fn overdue(&self, rules: &Rules, now: Timestamp) -> impl Iterator<Item = Transit<String>> {
        let overdue = self.actions.overdue(rules, now);
        overdue.map(|(placement, late_ms)| Transit {
            subject: placement.uuid.clone(),
            state: "is a placement in flight",
            late_ms,
            why: Some(placement.response_message.clone()),
        })
    }

    /// How many are over.
    pub fn over(&self) -> usize {
        self.actions.finished_count()
    }

    pub(super) fn is_live(&self, deployment: &str) -> bool {
        let known = self.deployments.get(deployment);
        known.is_some_and(|it| it.ended_at.is_none())
    }
}
