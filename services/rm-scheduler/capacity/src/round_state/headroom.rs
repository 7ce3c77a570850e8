//! What queues, users and groups may still have, beside what of it is kept.
//!
//! Room on nodes is of no use to work whose quota others take meanwhile: what left for it would
//! have left for nothing (I14). So what a gang lacks for which room is kept, and the processes for
//! which others leave, count as used for everybody else.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use hayward_rm_scheduler_domain::plan::QuotaNumbers;

use super::{Books, Why};
use crate::{
    gang::{self, whole::lacks},
    resource_vec::{Vector, add, over, take, times},
};

/// What is kept of quotas. Each [`Spot`](crate::tree::Spot) and each gate has the sum of it.
#[derive(Default)]
pub(crate) struct Promises {
    gang: Option<ToGang>,
    /// By ask: processes for which others leave.
    single: BTreeMap<usize, u64>,
}

struct ToGang {
    /// Stands for all of them.
    ask: usize,
    /// Its parts.
    asks: Vec<usize>,
    /// All that it still lacks.
    vector: Vector,
    /// Others leave for it; otherwise it is merely kept, and gives way to a guarantee.
    cleared: bool,
}

impl Promises {
    /// An ask of each application that something is kept for.
    fn asks(&self) -> impl Iterator<Item = usize> + '_ {
        let gang = self.gang.iter().map(|gang| gang.ask);
        gang.chain(self.single.keys().copied())
    }
}

impl Books<'_> {
    pub fn promise_to_gang(&mut self, ask: usize, cleared: bool) {
        self.promise_to_no_gang();
        let vector = lacks(self, &gang::lacking(self, ask));
        self.keep_quota(ask, &vector);
        self.promises.gang = Some(ToGang {
            ask,
            asks: gang::all(self, ask).collect(),
            vector,
            cleared,
        });
    }

    pub fn promise_to_no_gang(&mut self) {
        if let Some(gang) = self.promises.gang.take() {
            self.return_quota(gang.ask, &gang.vector);
        }
    }

    /// To work that is in no gang, so many processes more.
    pub fn promise(&mut self, ask: usize, processes: u64) {
        let vector = times(self.vector(ask), processes);
        self.keep_quota(ask, &vector);
        *self.promises.single.entry(ask).or_default() += processes;
    }

    /// So many of them have started, or are not asked for any more.
    pub fn redeem(&mut self, ask: usize, processes: u64) {
        let Some(promised) = self.promises.single.get_mut(&ask) else {
            return;
        };
        let redeemed = processes.min(*promised);
        *promised -= redeemed;
        if *promised == 0 {
            self.promises.single.remove(&ask);
        }
        let vector = times(self.vector(ask), redeemed);
        self.return_quota(ask, &vector);
    }

    pub(super) fn promised(&self, ask: usize) -> u64 {
        self.promises.single.get(&ask).copied().unwrap_or(0)
    }

    fn keep_quota(&mut self, ask: usize, vector: &[u64]) {
        self.each_quota(ask, |kept| add(kept, vector));
    }

    fn return_quota(&mut self, ask: usize, vector: &[u64]) {
        self.each_quota(ask, |kept| take(kept, vector));
    }

    fn each_quota(&mut self, ask: usize, change: impl Fn(&mut Vector)) {
        let app = &self.apps[self.asks[ask].app];
        for gate in &app.gates {
            change(&mut self.gates.gates[*gate].kept);
        }
        let mut at = app.queue.as_ref().ok().copied();
        while let Some(queue) = at {
            let spot = &mut self.tree.spots[queue];
            change(&mut spot.kept);
            at = spot.parent;
        }
    }

    /// It is of a gang that others leave for: if a member were taken, the gang would lack more than
    /// what they leave, and they would have left in vain (10.3).
    pub fn is_of_a_cleared_gang(&self, ask: usize) -> bool {
        let gang = self.promises.gang.as_ref();
        gang.is_some_and(|gang| gang.cleared && gang.asks.contains(&ask))
    }

    /// What of the kept is its own.
    fn own(&self, ask: usize) -> Option<Cow<'_, Vector>> {
        let gang = self.promises.gang.as_ref();
        if let Some(gang) = gang.filter(|gang| gang.asks.contains(&ask)) {
            return Some(Cow::Borrowed(&gang.vector));
        }
        let promised = self.promised(ask);
        (promised > 0).then(|| Cow::Owned(times(self.vector(ask), promised)))
    }

    /// 7.2: may one more application run here, and for this user?
    pub fn may_run(&self, app: usize) -> Result<(), Why> {
        let app_no = app;
        let app = &self.apps[app];
        let Some(queue) = app.queue.as_ref().ok().filter(|_| !app.running) else {
            return Ok(());
        };
        let promised = self.promises.asks().map(|ask| self.asks[ask].app);
        let starts = |it: &usize| *it != app_no && !self.apps[*it].running;
        let promised: BTreeSet<usize> = promised.filter(starts).collect();
        let judge = |(most, running, kept): (Option<u64>, u64, u64), (queue, whose)| {
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
            let below = |app: &&usize| {
                let queue = self.apps[**app].queue.as_ref();
                queue.is_ok_and(|queue| self.tree.is_below(*queue, at))
            };
            let kept = promised.iter().filter(below).count() as u64;
            judge((spot.max_applications, spot.running, kept), (at, None))?;
        }
        for at in &app.gates {
            let gate = &self.gates.gates[*at];
            let passes = |app: &&usize| self.apps[**app].gates.contains(at);
            let kept = promised.iter().filter(passes).count() as u64;
            let whose = (gate.queue, Some(gate.whose.to_string()));
            judge((gate.max_applications, gate.running, kept), whose)?;
        }
        Ok(())
    }

    /// May the queue and the user hold one more of this? What others leave for is its own as long
    /// as it lacks no more than that.
    pub fn may_hold(&self, ask: usize) -> Result<(), Why> {
        let vector = self.vector(ask);
        if self.promised(ask) < self.asks[ask].missing() && self.promised(ask) > 0 {
            return self.judge(ask, vector, None);
        }
        self.may_hold_more(ask, vector)
    }

    /// May they hold so much more for the application of this ask? The user is asked first (7.4).
    pub fn may_hold_more(&self, ask: usize, vector: &[u64]) -> Result<(), Why> {
        let own = self.own(ask);
        self.judge(ask, vector, own.as_deref())
    }

    fn judge(&self, ask: usize, vector: &[u64], own: Option<&Vector>) -> Result<(), Why> {
        for gate in &self.apps[self.asks[ask].app].gates {
            let it = &self.gates.gates[*gate];
            let kept = others(&it.kept, own);
            let used = with(&it.used, &kept);
            if let Some(dim) = over(&it.max, &used, vector) {
                return Err(Why::UserQuota {
                    gate: *gate,
                    dim,
                    quota: super::numbers(&it.max, &used, vector, dim),
                    kept: kept[dim],
                });
            }
        }
        let queue = self.queue_of(ask).into_iter();
        for queue in queue.flat_map(|at| self.tree.path(at)) {
            let spot = &self.tree.spots[queue];
            let kept = others(&spot.kept, own);
            let used = with(&spot.used, &kept);
            if let Some(dim) = over(&spot.max, &used, vector) {
                return Err(Why::QueueQuota {
                    queue,
                    dim,
                    quota: super::numbers(&spot.max, &used, vector, dim),
                    kept: kept[dim],
                });
            }
        }
        Ok(())
    }

    /// May they, once what leaves has left? What leaves is told by queue alone.
    pub fn may_hold_soon(&self, ask: usize, vector: &[u64]) -> bool {
        let path = self.queue_of(ask).into_iter();
        let mut path = path.flat_map(|at| self.tree.path(at));
        self.user_may_hold(ask, vector)
            && path.all(|at| {
                let spot = &self.tree.spots[at];
                let mut used = spot.used.clone();
                take(&mut used, &spot.going);
                add(&mut used, &self.cleared_at(at));
                over(&spot.max, &used, vector).is_none()
            })
    }

    /// May the user and the group, beside all that others leave for?
    pub fn user_may_hold(&self, ask: usize, vector: &[u64]) -> bool {
        let mut gates = self.apps[self.asks[ask].app].gates.iter();
        gates.all(|at| {
            let gate = &self.gates.gates[*at];
            let mut used = gate.used.clone();
            add(&mut used, &gate.kept);
            if let Some(gang) = self.merely_kept()
                && self.apps[self.asks[gang.ask].app].gates.contains(at)
            {
                take(&mut used, &gang.vector);
            }
            over(&gate.max, &used, vector).is_none()
        })
    }

    /// Of the quota of this queue, what others leave for.
    pub fn cleared_at(&self, queue: usize) -> Cow<'_, Vector> {
        let mut kept = Cow::Borrowed(&self.tree.spots[queue].kept);
        let gang = self.merely_kept().filter(|gang| {
            let own = self.queue_of(gang.ask);
            own.is_some_and(|own| self.tree.is_below(own, queue))
        });
        if let Some(gang) = gang {
            take(kept.to_mut(), &gang.vector);
        }
        kept
    }

    fn merely_kept(&self) -> Option<&ToGang> {
        self.promises.gang.as_ref().filter(|gang| !gang.cleared)
    }
}

fn others<'b>(kept: &'b Vector, own: Option<&Vector>) -> Cow<'b, Vector> {
    let mut kept = Cow::Borrowed(kept);
    if let Some(own) = own {
        take(kept.to_mut(), own);
    }
    kept
}

fn with<'b>(used: &'b Vector, kept: &Vector) -> Cow<'b, Vector> {
    let mut used = Cow::Borrowed(used);
    if kept.iter().any(|kept| *kept > 0) {
        add(used.to_mut(), kept);
    }
    used
}
