//! A gang that is larger than its queue may ever be is told so at once (application protocol, 5.2).
//! How large the cluster is now does not matter: nodes come and go.

use hayward_rm_scheduler_domain::Reason;

use super::Books;
use crate::{amount::told, gang::whole::Whole, placement::Refusal};

impl Books<'_> {
    /// Applications that hold nothing yet; who has begun goes on.
    pub(super) fn refuse_too_large(&mut self, fresh: Vec<usize>) {
        for app in fresh {
            let Ok(queue) = self.apps[app].queue else {
                continue;
            };
            if let Some(refusal) = self.too_large(app, queue) {
                self.apps[app].queue = Err(refusal);
            }
        }
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
