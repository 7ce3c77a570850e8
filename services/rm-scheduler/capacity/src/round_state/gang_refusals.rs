//! Refuses gangs that exceed the maximum of their queue, and gangs in a queue that allows none. The
//! current size of the cluster does not matter, because nodes come and go.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{Reason, gangs::MAX_GRANTS_PER_ROUND, snapshot::queues::Sort};

use super::{RoundState, gangs::GangNeeds};
use crate::{amount::amount_text, placement_rules::Refusal};

impl RoundState<'_> {
    /// Refuses new applications with a gang that their queue can never start. Running applications
    /// continue.
    pub(super) fn refuse_infeasible_applications(&mut self, new: Vec<usize>) {
        for app in new {
            let Ok(queue) = self.apps[app].queue else {
                continue;
            };
            let refusal = self
                .refuse_in_fair_queue(app, queue)
                .or_else(|| self.refuse_too_many_processes(app))
                .or_else(|| self.refuse_above_maximum(app, queue));
            if let Some(refusal) = refusal {
                self.apps[app].queue = Err(refusal);
            }
        }
    }

    /// Refuses a gang in a leaf whose applications are ordered by shares. There an application
    /// moves back as it grows, so half a gang would wait behind other applications.
    fn refuse_in_fair_queue(&self, app: usize, queue: usize) -> Option<Refusal> {
        let queue_state = &self.tree.entries[queue];
        let mut items = self.apps[app].items.iter();
        let has_gang = items.any(|item| self.items[*item].queued.gang.is_some());
        if queue_state.settings.sort != Sort::Fair || !has_gang {
            return None;
        }
        let detail = format!(
            "queue {} serves its applications by shares (fair), and a gang needs a queue that \
             serves them in order (fifo)",
            queue_state.path
        );
        let reason = Reason::PolicyMismatch;
        Some(Refusal { reason, detail })
    }

    /// Refuses an application with too many gang processes, because a gang must start in one
    /// commit.
    fn refuse_too_many_processes(&self, app: usize) -> Option<Refusal> {
        let mut gangs: BTreeMap<&str, u64> = BTreeMap::new();
        for item in &self.apps[app].items {
            if let Some(gang) = &self.items[*item].queued.gang {
                let processes = gangs.entry(&gang.name).or_default();
                *processes = processes.saturating_add(gang.min);
            }
        }
        let limit = MAX_GRANTS_PER_ROUND as u64;
        let (name, processes) = gangs
            .into_iter()
            .find(|(_, processes)| *processes > limit)?;
        let detail = format!(
            "{processes} processes of its gang {name} would have to start at once, and {limit} \
             may: {limit} of them would fit"
        );
        let reason = Reason::GangIncomplete;
        Some(Refusal { reason, detail })
    }

    /// Compares the maximum of each level below the root with the needs of the whole gang.
    fn refuse_above_maximum(&self, app: usize, queue: usize) -> Option<Refusal> {
        let gang = GangNeeds::new(self, self.apps[app].items.iter().copied());
        let path = self.tree.path(queue).map(|queue| &self.tree.entries[queue]);
        let mut queues = path.filter(|queue_state| queue_state.parent.is_some());
        queues.find_map(|queue_state| {
            let exceeded = gang.find_exceeded(&queue_state.max)?;
            let resource = self.dims.name(exceeded.dim);
            let (needed, limit) = (
                amount_text(resource, exceeded.needed),
                amount_text(resource, exceeded.limit),
            );
            let detail = format!(
                "its gang of {} needs {needed} {resource} together, and queue {} may have {limit}: \
                 {} of them would fit",
                gang.count_processes(),
                queue_state.path,
                exceeded.feasible
            );
            let reason = Reason::QueueQuota;
            Some(Refusal { reason, detail })
        })
    }
}
