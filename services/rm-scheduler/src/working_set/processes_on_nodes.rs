//! Processes on nodes with the facts about moving them, for previews of drains.

use std::collections::BTreeSet;

use hayward_rm_scheduler_api::AllocationState;
use hayward_vocabulary::{NodeName, WorkId};

use crate::command::ProcessOnNode;
use crate::model::AllocationRecord;
use crate::working_set::Ledger;

impl Ledger {
    /// Returns the processes on these nodes that have not ended.
    pub(crate) fn processes_on(&self, nodes: &BTreeSet<NodeName>) -> Vec<ProcessOnNode> {
        let records = self.allocations.values();
        records
            .filter(|record| record.entry.holds() && nodes.contains(&record.entry.node))
            .map(|record| self.process_on_node(record))
            .collect()
    }

    fn process_on_node(&self, record: &AllocationRecord) -> ProcessOnNode {
        let entry = &record.entry;
        let demand = self.followed.demand().get(entry.work.as_str());
        ProcessOnNode {
            allocation: entry.id.clone(),
            work: entry.work.clone(),
            group: entry.work.parent(),
            kind: entry.kind,
            user: entry.user.clone(),
            node: entry.node.clone(),
            quanta: entry.order,
            leave_reason: entry.vacate.as_ref().map(|order| order.detail.clone()),
            unreachable: entry.state == AllocationState::Unreachable,
            disruption_limit: demand.and_then(|demand| demand.disruption_limit),
            stop_grace_ms: entry
                .launch
                .as_ref()
                .map_or(0, |launch| launch.stop_grace_ms),
            start_ms: self.start_ms(&entry.work),
        }
    }

    /// Returns the mean milliseconds from grant to start over the known processes of the work.
    fn start_ms(&self, work: &WorkId) -> Option<u64> {
        let of_work = self.allocations.of_work(work);
        let known: Vec<u64> = of_work
            .filter_map(|record| {
                let running_since = record.entry.running_since?;
                Some(running_since.ms_since(record.entry.granted_at))
            })
            .collect();
        let count = u64::try_from(known.len()).ok().filter(|count| *count > 0)?;
        Some(known.iter().sum::<u64>() / count)
    }
}
