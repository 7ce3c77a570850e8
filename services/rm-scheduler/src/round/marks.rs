//! Marks of processes of jobs. A mark means no new work.
//!
//! Processes of jobs lease tasks by themselves, so the mark is published in their allocation. A
//! marked process gets no new task and ends after its last one. Its work is then granted a process
//! on another node.
//!
//! Drains and graceful evacuations mark no process. Their processes leave one after the other as
//! disruption limits allow. A marked process would run out of tasks and leave too early.

use std::collections::BTreeMap;

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind};
use hayward_publication::Batch;
use hayward_vocabulary::{AllocationId, WorkKind};

use super::before::place;
use crate::model::AllocationRecord;
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;

impl Ledger {
    /// Publishes which processes of jobs get no new tasks, where that changed.
    pub(crate) fn publish_marks(&mut self, batch: &mut Batch<Rows>) {
        let mut marks = self.marks();
        for id in &self.evacuations.marked {
            marks.entry(id.clone()).or_insert(None);
        }
        for (id, mark) in marks {
            let known = self.allocations.get(&id);
            if let Some(held) = known.filter(|held| held.entry.marked != mark) {
                let mut held = held.clone();
                held.entry.marked = mark;
                self.set_allocation(held, batch);
            }
        }
    }

    /// Returns the marked processes, with the reason of each mark.
    fn marks(&self) -> BTreeMap<AllocationId, Option<String>> {
        let now = self.snapshot.now;
        let items = self.followed.blocks().iter().map(|(_, item)| item);
        let items = items.filter(|item| is_mark(item) && translate::counts(item, now));
        let mut marks = BTreeMap::new();
        for item in items {
            let affected = self.allocations_at(&place(item)).into_iter();
            for held in affected.filter(|held| leases_tasks(held)) {
                let mark = marks.entry(held.entry.id.clone());
                mark.or_insert_with(|| Some(sentence(item)));
            }
        }
        marks
    }
}

fn is_mark(item: &BlockEntry) -> bool {
    item.action == BlockAction::Mark && !item.canary
}

/// Returns true for a process of a job without an order to leave.
fn leases_tasks(held: &AllocationRecord) -> bool {
    let entry = &held.entry;
    entry.kind == WorkKind::Job && entry.vacate.is_none() && entry.launch.is_some()
}

fn sentence(item: &BlockEntry) -> String {
    let (name, cause) = (&item.identifier, &item.cause);
    match (item.kind, &item.job) {
        (BlockKind::Worker, _) => format!("the worker is marked: {cause}"),
        (_, Some(job)) => format!("node {name} is marked for {job}: {cause}"),
        (_, None) => format!("node {name} is marked: {cause}"),
    }
}
