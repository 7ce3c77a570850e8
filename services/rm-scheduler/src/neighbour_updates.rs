//! Absorbs updates of the publications of neighbours: applies their changes to the snapshot and to
//! the scheduler's own rows.
//!
//! An update that is absorbed twice has no further effect. The cost grows only with the number of
//! changes. Absorbing an update decides nothing about space; only rounds do.

use std::collections::BTreeSet;

use hayward_blocklist_api::{BlockEntry, BlockKind};
use hayward_container_manager_api::ContainerEntry;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::NodeEntry;
use hayward_publication::{Batch, Change, Moment, Update};
use hayward_rm_scheduler_api::AllocationState;
use hayward_rm_scheduler_domain::{Snapshot, snapshot};
use hayward_rm_scheduler_policy::Rules;
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId};

use crate::metrics;
use crate::model::AllocationRecord;
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;
use crate::working_set::orchestrator_allocations;
use crate::working_set::worker_pools::is_pool_work;

impl Ledger {
    /// Applies changes of `nodes`, the publication of node-status.
    pub(crate) fn absorb_nodes(
        &mut self,
        update: Update<NodeEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let is_first_update = !self.followed.nodes().has_update();
        let changes = self.followed.absorb_nodes(update, moment.monotonic_ms);
        batch.record_position(
            hayward_node_status_api::NODES,
            self.followed.nodes().cursor(),
        );
        self.timing.request_round_if(!changes.is_empty());
        let mut users_changed = false;
        for change in changes {
            match change {
                Change::Set { key, before } => {
                    users_changed |= self.followed.update_only_users(&key);
                    self.apply_node_change(&key, before.as_ref(), moment, batch);
                }
                Change::Removed { key, before } => {
                    self.snapshot.remove_node(&before.node);
                    self.unreachable.forget(&before.node);
                    self.followed.set_drained(&before.node, false);
                    users_changed |= self.followed.set_only_users(&before.node, None);
                    self.nodes_on_trial.set(&before.node, None);
                    self.publish_machine(&key, batch);
                }
            }
        }
        if users_changed {
            self.refresh_all_demand();
        }
        if is_first_update {
            self.publish_machines(batch);
        }
    }

    fn apply_node_change(
        &mut self,
        key: &str,
        before: Option<&NodeEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(entry) = self.followed.nodes().get(key).cloned() else {
            return;
        };
        self.unreachable.observe(&entry, moment);
        self.followed
            .set_drained(&entry.node, entry.drain.is_some());
        self.refresh_node(key);
        if let Some(before) = before {
            self.record_silence(before, &entry, moment, batch);
        }
        self.publish_machine(key, batch);
    }

    /// Updates all work in the snapshot, because nodes are for other users than before.
    fn refresh_all_demand(&mut self) {
        let works: Vec<WorkId> = self.snapshot.demand.keys().cloned().collect();
        for work in works {
            if is_pool_work(&work) {
                self.refresh_worker(&work);
            } else {
                self.refresh_demand(work.as_str());
            }
        }
        self.timing.request_round();
    }

    /// Updates a node of the snapshot from its entry and its blocks.
    pub(crate) fn refresh_node(&mut self, name: &str) {
        let Some(entry) = self.followed.nodes().get(name) else {
            return;
        };
        let block = self
            .followed
            .blocks()
            .get(&BlockKind::Node.key(entry.node.as_str()));
        let trial = block.and_then(|block| translate::trial_number(block, self.snapshot.now));
        self.nodes_on_trial.set(&entry.node, trial);
        let node = self.planner_node(entry, &self.snapshot, self.policy.rules());
        if self.snapshot.nodes.get(&entry.node) != Some(&node) {
            self.snapshot.set_node(entry.node.clone(), node);
            self.timing.request_round();
        }
    }

    /// Returns the block in force that covers all work on a node.
    fn block_on_node(&self, node: &NodeName, now: Timestamp) -> Option<&BlockEntry> {
        let block = self
            .followed
            .blocks()
            .get(&BlockKind::Node.key(node.as_str()));
        block.filter(|block| translate::is_effective(block, now))
    }

    /// Converts a node to the input of the planner.
    pub(crate) fn planner_node(
        &self,
        entry: &NodeEntry,
        snapshot: &Snapshot,
        rules: &Rules,
    ) -> snapshot::Node {
        let block = self.block_on_node(&entry.node, snapshot.now);
        let mut node = translate::node(entry, block, rules);
        if self.unreachable.is_awaited(&entry.node) {
            node = translate::close_awaited_node(node);
        }
        if self.nodes_on_trial.trial_of(&entry.node).is_some() {
            node.capacity = self.offered_capacity(&entry.node, &node, snapshot);
        }
        node
    }

    /// Applies changes of `blocks`, the publication of blocklist.
    pub(crate) fn absorb_blocks(
        &mut self,
        update: Update<BlockEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.followed.absorb_blocks(update, moment.monotonic_ms);
        batch.record_position(
            hayward_blocklist_api::BLOCKS,
            self.followed.blocks().cursor(),
        );
        self.snapshot.set_now(moment.now);
        for change in changes {
            let (key, before) = match change {
                Change::Set { key, before } => (key, before),
                Change::Removed { key, before } => (key, Some(before)),
            };
            let block = self.followed.blocks().get(&key);
            let is_effective = |block: &BlockEntry| translate::is_effective(block, moment.now);
            // The end of a block was already absorbed when the block ended.
            let was_in_force = before.as_ref().is_some_and(is_effective);
            self.timing
                .request_round_if(block.is_some() || was_in_force);
            let end = block.and_then(|block| block.end);
            let end_before = before.as_ref().and_then(|block| block.end);
            self.followed.set_block_end(&key, end_before, end);
            self.refresh_blocked(&key);
        }
    }

    /// Updates the node or the work that a changed or ended block names.
    pub(crate) fn refresh_blocked(&mut self, key: &str) {
        // Keys are `node/NODE`, `node/NODE@JOB` and `worker/ALLOCATION`. A block of a worker
        // changes nothing in the snapshot.
        let Some(node) = key.strip_prefix("node/") else {
            return;
        };
        match node.split_once('@') {
            None => self.refresh_node(node),
            Some((node, job)) => {
                if let (Ok(node), Ok(job)) = (NodeName::new(node), WorkId::new(job)) {
                    self.refresh_avoided(key, node, &job);
                }
            }
        }
    }

    /// Updates whether one job or service must avoid a node.
    fn refresh_avoided(&mut self, key: &str, node: NodeName, job: &WorkId) {
        let now = self.snapshot.now;
        let block = self.followed.blocks().get(key);
        let avoids = block.is_some_and(|block| block.is_in_force(now) && !block.canary);
        let changed = self.followed.set_avoided(job, node, avoids);
        if changed {
            let works = self.snapshot.demand.keys();
            let belongs_to_job = |work: &&WorkId| *work == job || work.parent() == *job;
            for work in works.filter(belongs_to_job).cloned().collect::<Vec<_>>() {
                self.refresh_demand(work.as_str());
            }
            self.timing.request_round();
        }
    }

    /// Updates a piece of work in the snapshot from its entry.
    pub(crate) fn refresh_demand(&mut self, work: &str) {
        if let Some(entry) = self.followed.demand().get(work) {
            let mut demand =
                translate::demand(entry, self.followed.avoided_nodes(&entry.work, &entry.user));
            demand.max_processes = self.part_limit(entry);
            // The work gets no process while job-converter decides about the next attempt, or while
            // a request replaces the ended process.
            if self.awaits_follow_up(entry)
                || self.successor_requests.suspends_demand_of(&entry.work)
            {
                demand.max_processes = 0;
            } else if self.successor_requests.is_revived(&entry.work) {
                demand.max_processes = demand.max_processes.max(1);
            }
            if entry.part.as_ref().is_some_and(|it| it.replaces.is_some()) {
                self.successor_requests
                    .replacement_tasks
                    .insert(entry.work.clone());
            } else {
                self.successor_requests
                    .replacement_tasks
                    .remove(&entry.work);
            }
            if self.snapshot.demand.get(&entry.work) != Some(&demand) {
                self.snapshot.set_demand(entry.work.clone(), demand);
            }
        }
    }

    /// Returns true while a process of a service has ended and job-converter has not yet decided
    /// whether and where another process follows.
    fn awaits_follow_up(&self, entry: &DemandEntry) -> bool {
        let mut records = self.allocations.of_work(&entry.work);
        let is_staying =
            |record: &AllocationRecord| record.entry.holds() && record.entry.vacate.is_none();
        let is_unsettled = |record: &AllocationRecord| {
            !record.entry.holds() && !entry.settled.contains(&record.entry.id)
        };
        let awaits = match entry.processor {
            Some(_) => records.clone().any(is_unsettled),
            None => {
                orchestrator_allocations::runs_once(entry)
                    && records.clone().any(|record| {
                        is_unsettled(record) && orchestrator_allocations::ended_itself(record)
                    })
            }
        };
        awaits && !records.any(is_staying)
    }

    /// Applies changes of `demand`, the publication of job-converter.
    pub(crate) fn absorb_demand(
        &mut self,
        update: Update<DemandEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let is_first_update = !self.followed.demand().has_update();
        let changes = self.followed.absorb_demand(update, moment.monotonic_ms);
        batch.record_position(
            hayward_job_converter_api::DEMAND,
            self.followed.demand().cursor(),
        );
        self.timing.request_round_if(!changes.is_empty());
        for change in changes {
            match change {
                Change::Set { key, .. } => {
                    let Some(entry) = self.followed.demand().get(&key) else {
                        continue;
                    };
                    let settled: Vec<AllocationId> = entry.settled.iter().cloned().collect();
                    let entry_of_orchestrator = entry.orchestrated.is_some().then(|| entry.clone());
                    self.refresh_demand(&key);
                    if let Some(entry) = entry_of_orchestrator {
                        self.apply_orchestrator_map(&entry, moment, batch);
                    }
                    for id in settled {
                        self.remove_if_settled(&id, batch);
                    }
                }
                Change::Removed { before, .. } => {
                    self.end_leaving_allocations(&before.work, moment, batch);
                    self.withdraw_work(&before.work, batch);
                }
            }
        }
        self.publish_processors(batch);
        if is_first_update {
            // Drops work that was withdrawn while no rm-scheduler was leader, and ended allocations
            // that nothing refers to.
            let is_withdrawn = |work: &&WorkId| {
                self.followed.demand().get(work.as_str()).is_none()
                    && !self.worker_pools.wants(work)
            };
            let known_works = self.allocations.works().chain(self.verdicts.works());
            let works: BTreeSet<WorkId> = known_works.filter(is_withdrawn).cloned().collect();
            for work in works {
                self.end_leaving_allocations(&work, moment, batch);
                self.withdraw_work(&work, batch);
            }
            self.timing.request_round();
        }
    }

    /// Removes withdrawn work from the snapshot, with its verdict and its ended allocations.
    pub(crate) fn withdraw_work(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        self.snapshot.remove_demand(work);
        self.successor_requests.replacement_tasks.remove(work);
        self.withdraw_verdict(work, batch);
        let ids = self.allocations.ids_of_work(work);
        for id in ids {
            self.remove_if_settled(&id, batch);
        }
        self.forget_work_if_gone(work, batch);
    }

    /// Applies changes of `containers`, a publication of container-manager.
    pub(crate) fn absorb_containers(
        &mut self,
        update: Update<ContainerEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.followed.absorb_containers(update, moment.monotonic_ms);
        batch.record_position(
            hayward_container_manager_api::CONTAINERS,
            self.followed.containers().cursor(),
        );
        for change in changes {
            match change {
                Change::Set { key, .. } => {
                    if let Some(container) = self.followed.containers().get(&key).cloned() {
                        self.apply_container_change(&container, moment, batch);
                        self.update_orphan(&container.id);
                    }
                }
                // A container is removed after its allocation, so the allocation is not affected.
                Change::Removed { before, .. } => self.update_orphan(&before.id),
            }
        }
    }

    fn apply_container_change(
        &mut self,
        container: &ContainerEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(record) = self.allocations.get(&container.id) else {
            return;
        };
        // The end is final: a late report of an earlier state changes nothing (I6).
        let Some(reported) = translate::state(container.state) else {
            tracing::warn!(container = %container.id, "a container state of a later version");
            return;
        };
        if !record.entry.holds() {
            return;
        }
        // While the node is lost and awaited, only the end of the process counts.
        let node = &record.entry.node;
        let awaited = self.unreachable.is_waiting(node, &container.id);
        let state = match reported {
            AllocationState::Ended => reported,
            _ if awaited => AllocationState::Unreachable,
            _ => reported,
        };
        if record.entry.state == state {
            return;
        }
        let mut record = record.clone();
        if state == AllocationState::Ended {
            self.record_end(&record, container.exit.as_ref(), moment, batch);
            metrics::count_end(&self.snapshot, &record, container.exit.as_ref(), batch);
            self.mark_moved(&mut record, moment);
        }
        record.entry.state = state;
        record.entry.exit.clone_from(&container.exit);
        let id = record.entry.id.clone();
        if state == AllocationState::Running {
            record.entry.running_since.get_or_insert(moment.now);
            let demand = self.followed.demand().get(record.entry.work.as_str());
            metrics::count_start(&self.snapshot, demand, &record, moment);
            self.fulfil_receipts(&record.entry, moment, batch);
            self.start_success_timer(&record, moment.monotonic_ms);
            // This may be the successor that an evacuation waits for.
            self.timing
                .request_round_if(self.evacuations.may_have_successor(&record.entry.work));
        }
        let work = record.entry.work.clone();
        self.set_allocation(record, batch);
        let demand = self.followed.demand().get(work.as_str());
        let depends_on_end = |demand: &DemandEntry| {
            demand.processor.is_some()
                || demand.part.is_some()
                || orchestrator_allocations::runs_once(demand)
        };
        if state == AllocationState::Ended && demand.is_some_and(depends_on_end) {
            self.refresh_demand(work.as_str());
        }
        self.remove_if_settled(&id, batch);
    }
}
