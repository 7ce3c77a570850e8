//! What queues, users and groups may still have, beside what of it is kept for a gang.
//!
//! Room on nodes is of no use to a gang whose quota others take meanwhile: who left for it would
//! have left for nothing (I14). So what the gang lacks counts as used for everybody else.

use std::borrow::Cow;

use hayward_rm_scheduler_domain::plan::QuotaNumbers;

use super::{Books, Why};
use crate::{
    dims::{Vector, add, over, take},
    gang::{self, whole::lacks},
};

/// Of each quota on its path, what a gang still lacks.
pub(crate) struct Promise {
    app: usize,
    /// Its parts.
    asks: Vec<usize>,
    spots: Vec<usize>,
    gates: Vec<usize>,
    vector: Vector,
}

impl Promise {
    pub fn to(books: &Books, ask: usize) -> Self {
        let app = books.asks[ask].app;
        let queue = books.queue_of(ask).into_iter();
        Self {
            app,
            asks: gang::all(books, ask).collect(),
            spots: queue.flat_map(|queue| books.tree.path(queue)).collect(),
            gates: books.apps[app].gates.clone(),
            vector: lacks(books, &gang::lacking(books, ask)),
        }
    }

    /// So much of the quota of this queue.
    pub fn of_queue(&self, queue: usize) -> Option<&Vector> {
        self.spots.contains(&queue).then_some(&self.vector)
    }

    fn of_gate(&self, gate: usize) -> Option<&Vector> {
        self.gates.contains(&gate).then_some(&self.vector)
    }
}

impl Books<'_> {
    /// 7.2: may one more application run here, and for this user?
    pub fn may_run(&self, app: usize) -> Result<(), Why> {
        let app_no = app;
        let app = &self.apps[app];
        let Some(queue) = app.queue.as_ref().ok().filter(|_| !app.running) else {
            return Ok(());
        };
        let promise = self.promise.as_ref();
        let starts = |it: &&Promise| it.app != app_no && !self.apps[it.app].running;
        let promise = promise.filter(starts);
        let judge = |(most, running, kept): (Option<u64>, u64, bool), (queue, whose)| {
            let kept = u64::from(kept);
            let used = running + kept;
            let limit = most.filter(|most| used >= *most);
            limit.map_or(Ok(()), |limit| {
                Err(Why::TooManyRun {
                    queue,
                    whose,
                    quota: QuotaNumbers {
                        limit,
                        used,
                        needed: 1,
                    },
                    kept,
                })
            })
        };
        for at in self.tree.path(*queue) {
            let spot = &self.tree.spots[at];
            let kept = promise.is_some_and(|it| it.spots.contains(&at));
            judge((spot.max_applications, spot.running, kept), (at, None))?;
        }
        for at in &app.gates {
            let gate = &self.gates.gates[*at];
            let kept = promise.is_some_and(|it| it.gates.contains(at));
            let whose = (gate.queue, Some(gate.whose.to_string()));
            judge((gate.max_applications, gate.running, kept), whose)?;
        }
        Ok(())
    }

    /// May the queue and the user hold one more of this?
    pub fn may_hold(&self, ask: usize) -> Result<(), Why> {
        self.may_hold_more(ask, self.vector(ask))
    }

    /// May they hold so much more for the application of this ask? The user is asked first (7.4).
    pub fn may_hold_more(&self, ask: usize, vector: &[u64]) -> Result<(), Why> {
        let promise = self.promise.as_ref();
        let promise = promise.filter(|it| !it.asks.contains(&ask));
        for gate in &self.apps[self.asks[ask].app].gates {
            let it = &self.gates.gates[*gate];
            let kept = promise.and_then(|promise| promise.of_gate(*gate));
            let used = with(&it.used, kept);
            if let Some(dim) = over(&it.max, &used, vector) {
                return Err(Why::UserQuota {
                    gate: *gate,
                    dim,
                    quota: super::numbers(&it.max, &used, vector, dim),
                    kept: kept.map_or(0, |kept| kept[dim]),
                });
            }
        }
        let queue = self.queue_of(ask).into_iter();
        for queue in queue.flat_map(|at| self.tree.path(at)) {
            let spot = &self.tree.spots[queue];
            let kept = promise.and_then(|promise| promise.of_queue(queue));
            let used = with(&spot.used, kept);
            if let Some(dim) = over(&spot.max, &used, vector) {
                return Err(Why::QueueQuota {
                    queue,
                    dim,
                    quota: super::numbers(&spot.max, &used, vector, dim),
                    kept: kept.map_or(0, |kept| kept[dim]),
                });
            }
        }
        Ok(())
    }

    /// May they, once what leaves has left? What leaves is told by queue alone.
    pub fn may_hold_soon(&self, ask: usize, vector: &[u64]) -> bool {
        let app = &self.apps[self.asks[ask].app];
        let path = self.queue_of(ask).into_iter();
        let mut path = path.flat_map(|at| self.tree.path(at));
        self.gates.over(&app.gates, vector).is_none()
            && path.all(|at| {
                let spot = &self.tree.spots[at];
                let mut used = spot.used.clone();
                take(&mut used, &spot.going);
                over(&spot.max, &used, vector).is_none()
            })
    }
}

fn with<'b>(used: &'b Vector, kept: Option<&Vector>) -> Cow<'b, Vector> {
    let mut used = Cow::Borrowed(used);
    if let Some(kept) = kept {
        add(used.to_mut(), kept);
    }
    used
}
