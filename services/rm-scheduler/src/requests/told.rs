//! What container-manager is told: which processes there should be, why what it asked for is not
//! granted yet, and which nodes take nothing new.

use std::collections::BTreeMap;

use hayward_blocklist_api::BlockKind;
use hayward_publication::Batch;
use hayward_rm_scheduler_api::{CLOSED, ClosedEntry, PROCESSORS, ProcessorEntry};
use hayward_vocabulary::{NodeName, Timestamp, WorkId};

use crate::ledger::Ledger;
use crate::store::Rows;

impl Ledger {
    /// Publishes which processes of services there should be.
    pub(crate) fn tell_processors(&mut self, batch: &mut Batch<Rows>) {
        if !self.demand.heard() {
            return;
        }
        self.places.waits_changed = false;
        let mut waits = self.waits_by_work();
        let mut told = BTreeMap::new();
        for (key, entry) in self.demand.iter() {
            if let Some(processor) = &entry.processor {
                let told_of = ProcessorEntry {
                    work: entry.work.clone(),
                    user: entry.user.clone(),
                    processor: processor.clone(),
                    machines: entry.machines.clone(),
                    waits: waits.remove(&entry.work).unwrap_or_default(),
                };
                told.insert(key.clone(), told_of);
            }
        }
        publish(PROCESSORS, &mut self.places.processors, told, batch);
    }

    /// Publishes why requests wait, where that is news.
    pub(crate) fn tell_waits(&mut self, batch: &mut Batch<Rows>) {
        if self.places.waits_changed {
            self.tell_processors(batch);
        }
    }

    fn waits_by_work(&self) -> BTreeMap<WorkId, BTreeMap<String, String>> {
        let mut waits: BTreeMap<WorkId, BTreeMap<String, String>> = BTreeMap::new();
        for (id, (_, why)) in &self.places.waits {
            if let Some(request) = self.requests.get(id.as_str()) {
                let of_work = waits.entry(request.work.clone()).or_default();
                of_work.insert(request.id.clone(), why.clone());
            }
        }
        waits
    }

    /// Publishes which nodes take nothing new, for everybody or for some.
    pub(crate) fn tell_closed(&mut self, now: Timestamp, batch: &mut Batch<Rows>) {
        let mut told = BTreeMap::new();
        let blocks = self.blocks.iter().map(|(_, item)| item);
        for item in blocks.filter(|it| it.kind == BlockKind::Node && !it.canary) {
            let Ok(node) = NodeName::new(&item.identifier) else {
                continue;
            };
            if !item.in_force(now) {
                continue;
            }
            let key = match &item.job {
                Some(work) => format!("{node}@{work}"),
                None => node.to_string(),
            };
            let entry = ClosedEntry {
                node,
                work: item.job.clone(),
                reason: format!("it is blocked: {}", item.cause),
            };
            told.insert(key, entry);
        }
        for node in &self.drained {
            told.entry(node.to_string()).or_insert_with(|| ClosedEntry {
                node: node.clone(),
                work: None,
                reason: "it is drained".to_owned(),
            });
        }
        publish(CLOSED, &mut self.places.closed, told, batch);
    }
}

/// Publishes what differs from what was said.
fn publish<T: serde::Serialize + PartialEq>(
    publication: &'static str,
    said: &mut BTreeMap<String, T>,
    told: BTreeMap<String, T>,
    batch: &mut Batch<Rows>,
) {
    for key in said.keys().filter(|key| !told.contains_key(*key)) {
        batch.withdraw(publication, "", key);
    }
    for (key, entry) in &told {
        if said.get(key) != Some(entry) {
            batch.publish(publication, "", key, entry);
        }
    }
    *said = told;
}
