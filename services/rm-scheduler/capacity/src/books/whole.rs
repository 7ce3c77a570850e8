//! A gang that is larger than its queue may ever be is told so at once (application protocol, 5.2).
//! How large the cluster is now does not matter: nodes come and go.

use hayward_rm_scheduler_domain::Reason;

use super::Books;
use crate::{amount::told, placement::Refusal};

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
        let parts: Vec<(u64, &[u64])> = self.apps[app]
            .asks
            .iter()
            .filter_map(|ask| {
                let it = &self.asks[*ask];
                let gang = it.queued.gang.as_ref()?;
                let least = gang.min.min(Self::wanted(it.demand, 0));
                Some((least, &self.shapes[it.shape].vector[..]))
            })
            .collect();
        let members: u64 = parts.iter().map(|(count, _)| count).sum();
        for spot in self.tree.path(queue).map(|at| &self.tree.spots[at]) {
            for (dim, most) in spot.max.iter().enumerate() {
                let Some(most) = most.filter(|_| spot.parent.is_some()) else {
                    continue;
                };
                let asked = parts
                    .iter()
                    .map(|(count, vector)| vector[dim].saturating_mul(*count));
                let asked = asked.fold(0, u64::saturating_add);
                if asked > most {
                    let fit = fit(&parts, dim, most);
                    let what = self.dims.name(dim);
                    let (all, most) = (told(what, asked), told(what, most));
                    let detail = format!(
                        "its gang of {members} needs {all} {what} together, and queue {} may \
                         have {most}: {fit} of them would fit",
                        spot.path
                    );
                    let reason = Reason::QueueQuota;
                    return Some(Refusal { reason, detail });
                }
            }
        }
        None
    }
}

/// Members that fit into so much, taken in order.
fn fit(parts: &[(u64, &[u64])], dim: usize, most: u64) -> u64 {
    let mut left = most;
    let mut fit = 0;
    for (count, vector) in parts {
        let each = vector[dim].max(1);
        let here = (*count).min(left / each);
        left = left.saturating_sub(here.saturating_mul(vector[dim]));
        fit += here;
    }
    fit
}
