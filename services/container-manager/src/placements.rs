//! Runs placement actions, which move and restart processes of services, in the working set.
//! Actions read and change containers through [`ledger_environment::LedgerEnvironment`].
//!
//! [`Ledger::advance_placements`] runs after each batch of changes and at each deadline. Changed
//! rows, requests and containers go into the same batch.

pub mod commands;
mod ledger_environment;
mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hayward_container_manager_api::{REQUESTS, RequestEntry};
use hayward_container_manager_domain::Fact;
use hayward_container_manager_placement::Placement;
use hayward_publication::{Batch, Change, Moment, Update, Wake};
use hayward_rm_scheduler_api::{AllocationEntry, CLOSED, ClosedEntry, PROCESSORS, ProcessorEntry};
use hayward_vocabulary::{AllocationId, WorkId, WorkKind};

use crate::ledger::Ledger;
use crate::model::{Deployment, Rows};
use ledger_environment::LedgerEnvironment;

/// Prefix of the ids of worker pools and their workers.
const WORKER_POOL_PREFIX: &str = "wp_";
/// Interval between two deletions of expired placements.
const SWEEP_INTERVAL_MS: u64 = 60_000;

impl Ledger {
    /// Applies an update of the processors. A deployment without processors has ended.
    pub(crate) fn apply_processor_update(
        &mut self,
        update: Update<ProcessorEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let state = &mut self.placements;
        let changes = state.processors.absorb(update, moment.monotonic_ms);
        batch.record_position(PROCESSORS, state.processors.cursor());
        for change in changes {
            if let Change::Removed { before, .. } = change {
                state.last_hosts.remove(&before.work);
            }
        }
        let mut live: BTreeMap<String, Deployment> = BTreeMap::new();
        for (_, entry) in state.processors.iter() {
            let id = entry.processor.deployment.clone();
            live.entry(id).or_insert_with(|| Deployment {
                service: entry.work.parent(),
                user: entry.user.clone(),
                ended_at: None,
            });
        }
        for (id, deployment) in &mut state.deployments {
            if deployment.ended_at.is_none() && !live.contains_key(id) {
                deployment.ended_at = Some(moment.now);
                let row = deployment.clone();
                batch.rows.deployments.insert(id.clone(), row);
            }
        }
        for (id, deployment) in live {
            if state.deployments.get(&id) != Some(&deployment) {
                batch
                    .rows
                    .deployments
                    .insert(id.clone(), deployment.clone());
                state.deployments.insert(id, deployment);
            }
        }
    }

    /// Applies an update of the nodes that accept no new work. Lost nodes are among them.
    pub(crate) fn apply_closed_node_update(
        &mut self,
        update: Update<ClosedEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let closed = &mut self.placements.closed_nodes;
        let changes = closed.absorb(update, moment.monotonic_ms);
        batch.record_position(CLOSED, closed.cursor());
        for change in changes {
            if let Change::Set { key, .. } = change
                && let Some(entry) = self.placements.closed_nodes.get(&key)
                && entry.lost
            {
                let on_node = self.by_node.get(&entry.node).into_iter().flatten();
                for id in on_node.cloned().collect::<Vec<_>>() {
                    self.apply_fact(id.as_str(), Fact::NodeLost, moment, batch);
                }
            }
        }
    }

    /// Returns whether rm-scheduler declared the node of the container lost.
    pub(crate) fn is_on_lost_node(&self, id: &str) -> bool {
        let container = self.containers.get(id);
        container.is_some_and(|container| {
            let closed = self.placements.closed_nodes.get(container.node.as_str());
            closed.is_some_and(|entry| entry.lost)
        })
    }

    /// Returns whether the container of a new allocation must be held. It is held until its
    /// predecessor has ended, and until the action that requested it launches it. An exclusive
    /// container is also held while its work has another container (I4).
    pub(crate) fn must_be_held(&self, entry: &AllocationEntry) -> bool {
        let is_live = |id: &AllocationId| self.is_live_container(id);
        let request = entry.request.as_deref();
        let must_be_alone = entry.exclusive || entry.predecessor.is_some() || request.is_some();
        entry.predecessor.as_ref().is_some_and(is_live)
            || request.is_some_and(|request| self.placements.has_open_request(request))
            || (must_be_alone && self.has_other_container(&entry.work, &entry.id))
    }

    fn is_live_container(&self, id: &AllocationId) -> bool {
        let container = self.containers.get(id);
        container.is_some_and(|container| !container.lifecycle.has_ended())
    }

    /// Takes all placement steps that are possible now.
    pub(crate) fn advance_placements(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        if !self.placements.is_synced() {
            return Wake::OnCommand;
        }
        let limits = self.limits.placement;
        // Successors without an action are launched first, so that actions see them as started.
        self.launch_successors(moment, batch);
        let mut actions = std::mem::take(&mut self.placements.actions);
        let was_resumed = std::mem::replace(&mut self.placements.resumed, true);
        let mut environment = LedgerEnvironment {
            ledger: self,
            moment,
            batch,
        };
        if !was_resumed {
            actions.resume(&mut environment);
        }
        actions.advance(&limits, &mut environment);
        let changed = actions.take_changed();
        let events = actions.take_events();
        let deadline = actions.next_deadline(&limits);
        self.placements.actions = actions;
        for placement in changed {
            self.write_placement(placement, batch);
        }
        if !events.is_empty() {
            batch.once_committed(move |_| events.iter().for_each(metrics::count_event));
        }
        self.launch_successors(moment, batch);
        self.remove_expired(moment, batch);
        deadline.map_or(Wake::OnCommand, |deadline| {
            Wake::After(Duration::from_millis(deadline.ms_since(moment.now)))
        })
    }

    /// Writes the row of a placement, and publishes or withdraws its request.
    fn write_placement(&mut self, placement: Placement, batch: &mut Batch<Rows>) {
        let published_requests = &mut self.placements.published_requests;
        let request = placement.request();
        let id = request.as_ref().map(|it| it.id.clone());
        if let Some(published_id) = published_requests.get(&placement.uuid)
            && id.as_ref() != Some(published_id)
        {
            batch.withdraw(REQUESTS, "", published_id);
            published_requests.remove(&placement.uuid);
        }
        if let Some(request) = request {
            published_requests.insert(placement.uuid.clone(), request.id.clone());
            let entry = RequestEntry {
                id: request.id.clone(),
                work: request.work,
                predecessor: request.predecessor,
                host: request.host,
                exclude: request.exclude,
                force: request.force,
            };
            batch.publish(REQUESTS, "", &request.id, &entry);
        }
        let uuid = placement.uuid.clone();
        batch.rows.placements.insert(uuid, placement);
    }

    /// Launches held containers without an active action once their predecessor has ended. This
    /// includes containers that were granted after their request was withdrawn.
    fn launch_successors(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let ready: Vec<(AllocationId, WorkId)> = self
            .held_containers
            .iter()
            .filter_map(|id| self.containers.get(id))
            .filter(|container| {
                let request = container.request.as_deref();
                let has_action =
                    request.is_some_and(|request| self.placements.has_open_request(request));
                let predecessor = container.predecessor.as_ref();
                !has_action && !predecessor.is_some_and(|id| self.is_live_container(id))
            })
            .map(|container| (container.id.clone(), container.work.clone()))
            .collect();
        for (id, work) in ready {
            if !self.has_other_container(&work, &id) {
                self.apply_fact(id.as_str(), Fact::Launch, moment, batch);
            }
        }
    }

    /// Returns whether the process has another container that was launched and has not ended. A
    /// second container is then held until rm-scheduler withdraws its grant.
    fn has_other_container(&self, work: &WorkId, id: &AllocationId) -> bool {
        let ids = self.by_work.get(work).into_iter().flatten();
        let other_ids = ids.filter(|other| *other != id);
        let mut others = other_ids.filter_map(|other| self.containers.get(other));
        others.any(|it| {
            it.kind == WorkKind::Service && !it.lifecycle.held && !it.lifecycle.has_ended()
        })
    }

    /// Deletes final placements that are too old, that are more than the maximum number, or whose
    /// deployment ended long ago. Also deletes such deployments (I25).
    fn remove_expired(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let state = &mut self.placements;
        let now = moment.monotonic_ms;
        if state
            .last_sweep_ms
            .is_some_and(|last_sweep_ms| now - last_sweep_ms < SWEEP_INTERVAL_MS)
        {
            return;
        }
        state.last_sweep_ms = Some(now);
        let cutoff = moment.now.minus_ms(self.limits.retention_ms);
        let is_expired = |it: &Deployment| it.ended_at.is_some_and(|ended_at| ended_at < cutoff);
        let expired_deployments = state.deployments.iter().filter(|(_, it)| is_expired(it));
        let expired_deployments: BTreeSet<String> =
            expired_deployments.map(|(id, _)| id.clone()).collect();
        let placements = state.actions.iter();
        let mut newest_first: Vec<&Placement> =
            placements.filter(|it| it.status_code.is_final()).collect();
        newest_first.sort_by_key(|it| (std::cmp::Reverse(it.updated_at), it.seq));
        let max_placements = self.limits.max_final_placements;
        let expired = newest_first.iter().enumerate().filter(|(index, it)| {
            *index >= max_placements
                || it.updated_at < cutoff
                || expired_deployments.contains(&it.deployment_id)
        });
        let expired: Vec<String> = expired.map(|(_, it)| it.uuid.clone()).collect();
        for uuid in expired {
            state.actions.remove(&uuid);
            batch.rows.placements.remove(&uuid);
            batch.rows.deleted_placements.insert(uuid);
        }
        for id in expired_deployments {
            state.deployments.remove(&id);
            batch.rows.deployments.remove(&id);
            batch.rows.deleted_deployments.insert(id);
        }
    }
}
