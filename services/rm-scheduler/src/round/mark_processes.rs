//! Marks processes of jobs on nodes with a block of action `mark`. A marked process gets no new
//! task.
//!
//! Processes of jobs lease tasks from job-converter, so the mark is published in their allocation.
//! A marked process ends after its last task. The job is then granted a process on another node.
//!
//! Drains and graceful evacuations mark no process. Their processes leave one after the other, as
//! the disruption limits allow. A mark would let a process run out of tasks and leave too early.

use std::collections::BTreeMap;

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind};
use hayward_publication::Batch;
use hayward_vocabulary::{AllocationId, WorkKind};

use super::departures::affected_by;
use crate::model::AllocationRecord;
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;

impl Ledger {
    /// Publishes the marks that were set, changed or ended.
    pub(crate) fn publish_marks(&mut self, batch: &mut Batch<Rows>) {
        let mut marks = self.marks();
        for id in &self.evacuations.marked {
            // `None` ends the mark of a process that is no longer affected.
            marks.entry(id.clone()).or_insert(None);
        }
        for (id, mark) in marks {
            let known = self.allocations.get(&id);
            if let Some(record) = known.filter(|record| record.entry.marked != mark) {
                let mut record = record.clone();
                record.entry.marked = mark;
                self.set_allocation(record, batch);
            }
        }
    }

    /// Returns the processes that are to be marked, with the reason of each mark.
    fn marks(&self) -> BTreeMap<AllocationId, Option<String>> {
        let now = self.snapshot.now;
        let blocks = self.followed.blocks().iter().map(|(_, block)| block);
        let blocks = blocks.filter(|block| is_mark(block) && translate::is_effective(block, now));
        let mut marks = BTreeMap::new();
        for block in blocks {
            let affected = self.allocations_at(&affected_by(block)).into_iter();
            for record in affected.filter(|record| leases_tasks(record)) {
                let mark = marks.entry(record.entry.id.clone());
                mark.or_insert_with(|| Some(mark_text(block)));
            }
        }
        marks
    }
}

fn is_mark(block: &BlockEntry) -> bool {
    block.action == BlockAction::Mark && !block.canary
}

/// Returns true for a process that takes tasks of a job and has no order to leave.
fn leases_tasks(record: &AllocationRecord) -> bool {
    let entry = &record.entry;
    entry.kind == WorkKind::Job && entry.vacate.is_none() && entry.launch.is_some()
}

fn mark_text(block: &BlockEntry) -> String {
    let (name, cause) = (&block.identifier, &block.cause);
    match (block.kind, &block.job) {
        (BlockKind::Worker, _) => format!("the worker is marked: {cause}"),
        (_, Some(job)) => format!("node {name} is marked for {job}: {cause}"),
        (_, None) => format!("node {name} is marked: {cause}"),
    }
}
