//! Refuses gangs that exceed the maximum of their queue, or that are in a queue without gangs. The
//! current size of the cluster does not matter, because nodes come and go.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{Reason, gangs::MAX_CONCURRENT, snapshot::queues::Sort};

use super::{RoundState, gangs::GangNeeds};
use crate::{amount::amount_text, placement::Refusal};

impl RoundState<'_> {
    /// Refuses new applications that are too large. Running ones continue.
    pub(super) fn refuse_too_large(&mut self, new: Vec<usize>) {
        for app in new {
            let Ok(queue) = self.apps[app].queue else {
                continue;
            };
            let refusal = self
                .by_shares(app, queue)
                .or_else(|| self.too_many(app))
                .or_else(|| self.too_large(app, queue));
            if let Some(refusal) = refusal {
                self.apps[app].queue = Err(refusal);
            }
        }
    }

    /// Refuses a gang in a leaf ordered by shares. An application there loses rank as it grows, so
    /// half a gang would wait behind others.
    fn by_shares(&self, app: usize, queue: usize) -> Option<Refusal> {
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
    fn too_many(&self, app: usize) -> Option<Refusal> {
        let mut gangs: BTreeMap<&str, u64> = BTreeMap::new();
        for item in &self.apps[app].items {
            if let Some(gang) = &self.items[*item].queued.gang {
                let members = gangs.entry(&gang.name).or_default();
                *members = members.saturating_add(gang.min);
            }
        }
        let most = MAX_CONCURRENT as u64;
        let (name, members) = gangs.into_iter().find(|(_, members)| *members > most)?;
        let detail = format!(
            "{members} processes of its gang {name} would have to start at once, and {most} may: \
             {most} of them would fit"
        );
        let reason = Reason::GangIncomplete;
        Some(Refusal { reason, detail })
    }

    /// Compares the maximum of each level below the root with the needs of the whole gang.
    fn too_large(&self, app: usize, queue: usize) -> Option<Refusal> {
        let gang = GangNeeds::new(self, self.apps[app].items.iter().copied());
        let path = self.tree.path(queue).map(|at| &self.tree.entries[at]);
        let mut below = path.filter(|queue_state| queue_state.parent.is_some());
        below.find_map(|queue_state| {
            let over = gang.exceeded(&queue_state.max)?;
            let what = self.dims.name(over.dim);
            let (all, most) = (
                amount_text(what, over.needed),
                amount_text(what, over.limit),
            );
            let detail = format!(
                "its gang of {} needs {all} {what} together, and queue {} may have {most}: {} of \
                 them would fit",
                gang.members(),
                queue_state.path,
                over.feasible
            );
            let reason = Reason::QueueQuota;
            Some(Refusal { reason, detail })
        })
    }
}
