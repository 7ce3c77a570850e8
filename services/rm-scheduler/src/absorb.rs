//! News came: what each followed publication means for the scheduler's own rows.
//!
//! Absorbing is idempotent and costs what changed. It never decides who gets what; that is the
//! round's.

use std::collections::BTreeSet;

use hayward_blocklist_api::BlockEntry;
use hayward_container_manager_api::{ContainerEntry, ContainerState};
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::NodeEntry;
use hayward_publication::{Batch, Change, Moment, Update};
use hayward_rm_scheduler_api::AllocationState;
use hayward_vocabulary::{AllocationId, NodeName, WorkId};

use crate::ledger::Ledger;
use crate::store::Rows;
use crate::translate;

impl Ledger {
    pub(crate) fn absorb_nodes(
        &mut self,
        update: Update<NodeEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.nodes.absorb(update, moment.monotonic_ms);
        batch.followed(hayward_node_status_api::NODES, self.nodes.cursor());
        self.news |= !changes.is_empty();
        for change in changes {
            match change {
                Change::Set { key, .. } => self.refresh_node(&key),
                Change::Removed { before, .. } => {
                    self.snapshot.remove_node(&before.node);
                }
            }
        }
    }

    /// Brings one node of the snapshot up to what is known of it and of its blocks.
    pub(crate) fn refresh_node(&mut self, name: &str) {
        if let Some(entry) = self.nodes.get(name) {
            let node = translate::node(entry, &self.blocks, self.snapshot.now, &self.rules);
            self.snapshot.set_node(entry.node.clone(), node);
        }
    }

    pub(crate) fn absorb_blocks(
        &mut self,
        update: Update<BlockEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.blocks.absorb(update, moment.monotonic_ms);
        batch.followed(hayward_blocklist_api::BLOCKS, self.blocks.cursor());
        self.news |= !changes.is_empty();
        self.snapshot.set_now(moment.now);
        for change in changes {
            let (key, before) = match change {
                Change::Set { key, before } => (key, before),
                Change::Removed { key, before } => (key, Some(before)),
            };
            if let Some(end) = before.and_then(|item| item.end) {
                self.block_ends.remove(&(end, key.clone()));
            }
            if let Some(end) = self.blocks.get(&key).and_then(|item| item.end) {
                self.block_ends.insert((end, key.clone()));
            }
            self.refresh_blocked(&key);
        }
    }

    /// An item changed or came to its end: the node it names is seen anew.
    pub(crate) fn refresh_blocked(&mut self, key: &str) {
        if let Some(node) = key.strip_prefix("node/")
            && NodeName::new(node).is_ok()
        {
            self.refresh_node(node);
        }
    }

    pub(crate) fn absorb_demand(
        &mut self,
        update: Update<DemandEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let first = !self.demand.heard();
        let changes = self.demand.absorb(update, moment.monotonic_ms);
        batch.followed(hayward_job_converter_api::DEMAND, self.demand.cursor());
        self.news |= !changes.is_empty();
        for change in changes {
            match change {
                Change::Set { key, .. } => {
                    let Some(entry) = self.demand.get(&key) else {
                        continue;
                    };
                    self.snapshot
                        .set_demand(entry.work.clone(), translate::demand(entry));
                    let settled: Vec<AllocationId> = entry.settled.iter().cloned().collect();
                    for id in settled {
                        self.bury_if_settled(&id, batch);
                    }
                }
                Change::Removed { before, .. } => self.work_withdrawn(&before.work, batch),
            }
        }
        if first {
            // Work withdrawn while nobody led, and ended allocations nobody asks about any more.
            let gone = |work: &&WorkId| {
                self.demand.get(work.as_str()).is_none() && !self.pools.wants(work)
            };
            let remembered = self.by_work.keys().chain(self.verdicts.keys());
            let remembered = remembered.chain(self.incarnations.keys());
            let works: BTreeSet<WorkId> = remembered.filter(gone).cloned().collect();
            for work in works {
                self.work_withdrawn(&work, batch);
            }
            self.news = true;
        }
    }

    pub(crate) fn work_withdrawn(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        self.snapshot.remove_demand(work);
        self.withdraw_verdict(work, batch);
        let ids = self.by_work.get(work).cloned().unwrap_or_default();
        for id in ids {
            self.bury_if_settled(&id, batch);
        }
        self.forget_work_if_over(work, batch);
    }

    pub(crate) fn absorb_containers(
        &mut self,
        update: Update<ContainerEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.containers.absorb(update, moment.monotonic_ms);
        batch.followed(
            hayward_container_manager_api::CONTAINERS,
            self.containers.cursor(),
        );
        for change in changes {
            // A container is buried only after its allocation, so a removal tells nothing new.
            let Change::Set { key, .. } = change else {
                continue;
            };
            if let Some(container) = self.containers.get(&key).cloned() {
                self.container_moved(&container, moment, batch);
            }
        }
    }

    fn container_moved(
        &mut self,
        container: &ContainerEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(held) = self.allocations.get(&container.id) else {
            return;
        };
        // Ended is terminal and absorbs (I6): late news of an earlier state changes nothing.
        let state = match container.state {
            _ if !held.entry.holds() => return,
            ContainerState::Ordered => AllocationState::Assigned,
            ContainerState::Launching => AllocationState::Launching,
            ContainerState::Running => AllocationState::Running,
            ContainerState::Stopping => AllocationState::Stopping,
            ContainerState::Ended => AllocationState::Ended,
            ContainerState::Unknown => {
                tracing::warn!(container = %container.id, "a container state of a later version");
                return;
            }
        };
        if held.entry.state == state {
            return;
        }
        let mut held = held.clone();
        held.entry.state = state;
        held.entry.exit.clone_from(&container.exit);
        let id = held.entry.id.clone();
        if state == AllocationState::Running {
            held.entry.running_since.get_or_insert(moment.now);
            self.answer_receipts(&held.entry, moment, batch);
        }
        self.put(held, batch);
        self.bury_if_settled(&id, batch);
    }
}
