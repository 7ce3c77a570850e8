//! A gang that is larger than its queue may ever be, or is in a queue for none, is told so at once
//! (application protocol, 5.2).
//! How large the cluster is now does not matter: nodes come and go.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{Reason, gangs::MOST_AT_ONCE, snapshot::queues::Sort};

use super::Books;
use crate::{amount::told, gang::whole::Whole, placement::Refusal};

impl Books<'_> {
    /// Applications that hold nothing yet; who has begun goes on.
    pub(super) fn refuse_too_large(&mut self, fresh: Vec<usize>) {
        for app in fresh {
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

    /// In a leaf by shares an application falls back as it gets room: half a gang would hold its
    /// part and wait behind others.
    fn by_shares(&self, app: usize, queue: usize) -> Option<Refusal> {
        let spot = &self.tree.spots[queue];
        let mut asks = self.apps[app].asks.iter();
        let has_gang = asks.any(|ask| self.asks[*ask].queued.gang.is_some());
        if spot.manner.sort != Sort::Fair || !has_gang {
            return None;
        }
        let detail = format!(
            "queue {} serves its applications by shares (fair), and a gang needs a queue that \
             serves them in order (fifo)",
            spot.path
        );
        let reason = Reason::PolicyMismatch;
        Some(Refusal { reason, detail })
    }

    /// All of a gang start in one commit.
    fn too_many(&self, app: usize) -> Option<Refusal> {
        let mut gangs: BTreeMap<&str, u64> = BTreeMap::new();
        for ask in &self.apps[app].asks {
            if let Some(gang) = &self.asks[*ask].queued.gang {
                let members = gangs.entry(&gang.name).or_default();
                *members = members.saturating_add(gang.min);
            }
        }
        let most = MOST_AT_ONCE as u64;
        let (name, members) = gangs.into_iter().find(|(_, members)| *members > most)?;
        let detail = format!(
            "{members} processes of its gang {name} would have to start at once, and {most} may: \
             {most} of them would fit"
        );
        let reason = Reason::GangIncomplete;
        Some(Refusal { reason, detail })
    }

    /// Each level below the root: its maximum against all that the gang asks for together.
    fn too_large(&self, app: usize, queue: usize) -> Option<Refusal> {
        let gang = Whole::of(self, self.apps[app].asks.iter().copied());
        let path = self.tree.path(queue).map(|at| &self.tree.spots[at]);
        let mut below = path.filter(|spot| spot.parent.is_some());
        below.find_map(|spot| {
            let over = gang.over(&spot.max)?;
            let what = self.dims.name(over.dim);
            let (all, most) = (told(what, over.needed), told(what, over.limit));
            let detail = format!(
                "its gang of {} needs {all} {what} together, and queue {} may have {most}: {} of \
                 them would fit",
                gang.members(),
                spot.path,
                over.feasible
            );
            let reason = Reason::QueueQuota;
            Some(Refusal { reason, detail })
        })
    }
}
