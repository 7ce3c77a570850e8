//! Processes on nodes with the facts about moving them, for previews of drains.

use std::collections::BTreeSet;

use hayward_rm_scheduler_api::AllocationState;
use hayward_vocabulary::{NodeName, WorkId};

use crate::command::ProcessOnNode;
use crate::model::AllocationRecord;
use crate::working_set::Ledger;

impl Ledger {
    pub(crate) fn processes_on(&self, nodes: &BTreeSet<NodeName>) -> Vec<ProcessOnNode> {
        let held = self.allocations.values();
        held.filter(|held| held.entry.holds() && nodes.contains(&held.entry.node))
            .map(|held| self.process_on_node(held))
            .collect()
    }

    fn process_on_node(&self, held: &AllocationRecord) -> ProcessOnNode {
        let entry = &held.entry;
        let demand = self.followed.demand().get(entry.work.as_str());
        ProcessOnNode {
            allocation: entry.id.clone(),
            work: entry.work.clone(),
            group: entry.work.whole(),
            kind: entry.kind,
            user: entry.user.clone(),
            node: entry.node.clone(),
            order: entry.order,
            leaving: entry.vacate.as_ref().map(|order| order.detail.clone()),
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
            .filter_map(|held| {
                let running_since = held.entry.running_since?;
                Some(running_since.ms_since(held.entry.granted_at))
            })
            .collect();
        let count = u64::try_from(known.len()).ok().filter(|count| *count > 0)?;
        Some(known.iter().sum::<u64>() / count)
    }
}
