//! Publications for container-manager: `processors`, the wanted processes of services with their
//! waiting requests, and `closed`, the nodes that take no new work.

use std::collections::BTreeMap;

use hayward_blocklist_api::BlockKind;
use hayward_container_manager_api::ContainerState;
use hayward_node_status_api::Health;
use hayward_publication::Batch;
use hayward_rm_scheduler_api::{CLOSED, ClosedEntry, PROCESSORS, ProcessorEntry};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId};

use crate::store::Rows;
use crate::working_set::Ledger;

impl Ledger {
    /// Publishes the processes that services should have.
    pub(crate) fn publish_processors(&mut self, batch: &mut Batch<Rows>) {
        if !self.followed.demand().has_update() {
            return;
        }
        self.successor_requests.waits_changed = false;
        let mut waits = self.waits_by_work();
        let mut entries = BTreeMap::new();
        for (key, entry) in self.followed.demand().iter() {
            if let Some(processor) = &entry.processor {
                let entry = ProcessorEntry {
                    work: entry.work.clone(),
                    user: entry.user.clone(),
                    processor: processor.clone(),
                    machines: entry.machines.clone(),
                    waits: waits.remove(&entry.work).unwrap_or_default(),
                };
                entries.insert(key.clone(), entry);
            }
        }
        publish(
            PROCESSORS,
            &mut self.successor_requests.processors,
            entries,
            batch,
        );
    }

    /// Publishes why requests wait, if that changed.
    pub(crate) fn publish_waits(&mut self, batch: &mut Batch<Rows>) {
        if self.successor_requests.waits_changed {
            self.publish_processors(batch);
        }
    }

    /// Returns the text of each waiting request, by work and id of the request.
    fn waits_by_work(&self) -> BTreeMap<WorkId, BTreeMap<String, String>> {
        let mut waits: BTreeMap<WorkId, BTreeMap<String, String>> = BTreeMap::new();
        for (id, (_, why)) in &self.successor_requests.waits {
            if let Some(request) = self.followed.requests().get(id.as_str()) {
                let waits_of_work = waits.entry(request.work.clone()).or_default();
                waits_of_work.insert(request.id.clone(), why.clone());
            }
        }
        waits
    }

    /// Publishes the nodes that take no new work, or no new work of one job or service.
    pub(crate) fn publish_closed_nodes(&mut self, now: Timestamp, batch: &mut Batch<Rows>) {
        let mut entries = BTreeMap::new();
        let blocks = self.followed.blocks().iter().map(|(_, block)| block);
        for block in blocks.filter(|it| it.kind == BlockKind::Node && !it.canary) {
            let Ok(node) = NodeName::new(&block.identifier) else {
                continue;
            };
            if !block.is_in_force(now) {
                continue;
            }
            let key = match &block.job {
                Some(work) => format!("{node}@{work}"),
                None => node.to_string(),
            };
            let entry = ClosedEntry {
                node,
                work: block.job.clone(),
                reason: format!("it is blocked: {}", block.cause),
                lost: false,
            };
            entries.insert(key, entry);
        }
        for node in self.followed.drained_nodes() {
            entries
                .entry(node.to_string())
                .or_insert_with(|| ClosedEntry {
                    node: node.clone(),
                    work: None,
                    reason: "it is drained".to_owned(),
                    lost: false,
                });
        }
        let orphans = self.successor_requests.orphans.values();
        for node in orphans.filter(|node| self.is_lost(node)) {
            let entry = entries
                .entry(node.to_string())
                .or_insert_with(|| ClosedEntry {
                    node: node.clone(),
                    work: None,
                    reason: "it is lost".to_owned(),
                    lost: true,
                });
            entry.lost = true;
        }
        publish(CLOSED, &mut self.successor_requests.closed, entries, batch);
    }

    /// Returns true for a node that is lost or unknown.
    fn is_lost(&self, node: &NodeName) -> bool {
        let known = self.followed.nodes().get(node.as_str());
        known.is_none_or(|entry| entry.health == Health::Lost)
    }

    /// Records whether a container runs without an allocation. A node that answers ends such a
    /// container. A lost node cannot, so the node is published as closed and lost.
    pub(crate) fn update_orphan(&mut self, id: &AllocationId) {
        let container = self.followed.containers().get(id.as_str());
        let orphan = container
            .filter(|it| it.state != ContainerState::Ended && !self.allocations.contains(id));
        let before = self.successor_requests.orphans.len();
        match orphan {
            Some(container) => {
                self.successor_requests
                    .orphans
                    .insert(id.clone(), container.node.clone());
            }
            None => {
                self.successor_requests.orphans.remove(id);
            }
        }
        self.timing
            .request_round_if(before != self.successor_requests.orphans.len());
    }
}

/// Publishes the entries that differ from those published before.
fn publish<T: serde::Serialize + PartialEq>(
    publication: &'static str,
    published: &mut BTreeMap<String, T>,
    entries: BTreeMap<String, T>,
    batch: &mut Batch<Rows>,
) {
    for key in published.keys().filter(|key| !entries.contains_key(*key)) {
        batch.withdraw(publication, "", key);
    }
    for (key, entry) in &entries {
        if published.get(key) != Some(entry) {
            batch.publish(publication, "", key, entry);
        }
    }
    *published = entries;
}
