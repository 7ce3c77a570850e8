//! Headroom of queues, users and groups, and the quota reserved in it.
//!
//! Free space on nodes is useless to work if its quota was used meanwhile, and its victims would
//! have left in vain (I14). The needs of a gang with reserved space, and of processes with victims,
//! therefore count as used for all other work.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use hayward_rm_scheduler_domain::plan::QuotaNumbers;

use super::{RoundState, Why};
use crate::{
    gang::{self, whole::lacks},
    resource_vec::{Vector, add, over, take, times},
};

/// Reserved quota. Each [`QueueState`](crate::tree::QueueState) and each gate holds the sum.
#[derive(Default)]
pub(crate) struct QuotaReservations {
    gang: Option<GangQuota>,
    /// Processes with victims, by work item.
    single: BTreeMap<usize, u64>,
}

struct GangQuota {
    /// Representative of the gang.
    item: usize,
    /// Parts of the gang.
    items: Vec<usize>,
    /// Resources that the gang still needs.
    vector: Vector,
    /// True when victims leave for the gang. A reservation without victims yields to a guarantee.
    cleared: bool,
}

impl QuotaReservations {
    /// One work item per application with reserved quota.
    fn items(&self) -> impl Iterator<Item = usize> + '_ {
        let gang = self.gang.iter().map(|gang| gang.item);
        gang.chain(self.single.keys().copied())
    }
}

impl RoundState<'_> {
    pub fn promise_to_gang(&mut self, item: usize, cleared: bool) {
        self.promise_to_no_gang();
        let vector = lacks(self, &gang::lacking(self, item));
        self.keep_quota(item, &vector);
        self.promises.gang = Some(GangQuota {
            item,
            items: gang::all(self, item).collect(),
            vector,
            cleared,
        });
    }

    pub fn promise_to_no_gang(&mut self) {
        if let Some(gang) = self.promises.gang.take() {
            self.return_quota(gang.item, &gang.vector);
        }
    }

    /// Reserves quota for more processes of work outside gangs.
    pub fn promise(&mut self, item: usize, processes: u64) {
        let vector = times(self.vector(item), processes);
        self.keep_quota(item, &vector);
        *self.promises.single.entry(item).or_default() += processes;
    }

    /// Releases reserved quota of processes that have started or are no longer wanted.
    pub fn redeem(&mut self, item: usize, processes: u64) {
        let Some(promised) = self.promises.single.get_mut(&item) else {
            return;
        };
        let redeemed = processes.min(*promised);
        *promised -= redeemed;
        if *promised == 0 {
            self.promises.single.remove(&item);
        }
        let vector = times(self.vector(item), redeemed);
        self.return_quota(item, &vector);
    }

    pub(super) fn promised(&self, item: usize) -> u64 {
        self.promises.single.get(&item).copied().unwrap_or(0)
    }

    fn keep_quota(&mut self, item: usize, vector: &[u64]) {
        self.each_quota(item, |reserved| add(reserved, vector));
    }

    fn return_quota(&mut self, item: usize, vector: &[u64]) {
        self.each_quota(item, |reserved| take(reserved, vector));
    }

    fn each_quota(&mut self, item: usize, change: impl Fn(&mut Vector)) {
        let app = &self.apps[self.items[item].app];
        for gate in &app.gates {
            change(&mut self.gates.gates[*gate].reserved);
        }
        let mut at = app.queue.as_ref().ok().copied();
        while let Some(queue) = at {
            let queue_state = &mut self.tree.entries[queue];
            change(&mut queue_state.reserved);
            at = queue_state.parent;
        }
    }

    /// True for a member of a gang with victims. Preempting the member would waste them.
    pub fn is_of_a_cleared_gang(&self, item: usize) -> bool {
        let gang = self.promises.gang.as_ref();
        gang.is_some_and(|gang| gang.cleared && gang.items.contains(&item))
    }

    /// Part of the reserved quota that belongs to this work item.
    fn own(&self, item: usize) -> Option<Cow<'_, Vector>> {
        let gang = self.promises.gang.as_ref();
        if let Some(gang) = gang.filter(|gang| gang.items.contains(&item)) {
            return Some(Cow::Borrowed(&gang.vector));
        }
        let promised = self.promised(item);
        (promised > 0).then(|| Cow::Owned(times(self.vector(item), promised)))
    }

    /// Checks the limit on running applications of the queue and the user.
    pub fn may_run(&self, app: usize) -> Result<(), Why> {
        let app_no = app;
        let app = &self.apps[app];
        let Some(queue) = app.queue.as_ref().ok().filter(|_| !app.running) else {
            return Ok(());
        };
        let promised = self.promises.items().map(|item| self.items[item].app);
        let starts = |it: &usize| *it != app_no && !self.apps[*it].running;
        let promised: BTreeSet<usize> = promised.filter(starts).collect();
        let judge = |(most, running, reserved): (Option<u64>, u64, u64), (queue, owner)| {
            let used = running + reserved;
            let limit = most.filter(|most| used >= *most);
            limit.map_or(Ok(()), |limit| {
                Err(Why::TooManyRun {
                    queue,
                    owner,
                    quota: QuotaNumbers {
                        limit,
                        used,
                        needed: 1,
                    },
                    reserved,
                })
            })
        };
        for at in self.tree.path(*queue) {
            let queue_state = &self.tree.entries[at];
            let below = |app: &&usize| {
                let queue = self.apps[**app].queue.as_ref();
                queue.is_ok_and(|queue| self.tree.is_below(*queue, at))
            };
            let reserved = promised.iter().filter(below).count() as u64;
            judge(
                (queue_state.max_applications, queue_state.running, reserved),
                (at, None),
            )?;
        }
        for at in &app.gates {
            let gate = &self.gates.gates[*at];
            let passes = |app: &&usize| self.apps[**app].gates.contains(at);
            let reserved = promised.iter().filter(passes).count() as u64;
            let owner = (gate.queue, Some(gate.owner.to_string()));
            judge((gate.max_applications, gate.running, reserved), owner)?;
        }
        Ok(())
    }

    /// Checks the quota of the queue and the user for one more process. Reserved quota of the item
    /// itself is available to it.
    pub fn may_hold(&self, item: usize) -> Result<(), Why> {
        let vector = self.vector(item);
        if self.promised(item) < self.items[item].missing() && self.promised(item) > 0 {
            return self.judge(item, vector, None);
        }
        self.may_hold_more(item, vector)
    }

    /// Checks the quota for more resources of this application, the user first.
    pub fn may_hold_more(&self, item: usize, vector: &[u64]) -> Result<(), Why> {
        let own = self.own(item);
        self.judge(item, vector, own.as_deref())
    }

    fn judge(&self, item: usize, vector: &[u64], own: Option<&Vector>) -> Result<(), Why> {
        for gate in &self.apps[self.items[item].app].gates {
            let it = &self.gates.gates[*gate];
            let reserved = others(&it.reserved, own);
            let used = with(&it.used, &reserved);
            if let Some(dim) = over(&it.max, &used, vector) {
                return Err(Why::UserQuota {
                    gate: *gate,
                    dim,
                    quota: super::numbers(&it.max, &used, vector, dim),
                    reserved: reserved[dim],
                });
            }
        }
        let queue = self.queue_of(item).into_iter();
        for queue in queue.flat_map(|at| self.tree.path(at)) {
            let queue_state = &self.tree.entries[queue];
            let reserved = others(&queue_state.reserved, own);
            let used = with(&queue_state.used, &reserved);
            if let Some(dim) = over(&queue_state.max, &used, vector) {
                return Err(Why::QueueQuota {
                    queue,
                    dim,
                    quota: super::numbers(&queue_state.max, &used, vector, dim),
                    reserved: reserved[dim],
                });
            }
        }
        Ok(())
    }

    /// Checks the quota after all vacated allocations have left; known per queue only.
    pub fn may_hold_soon(&self, item: usize, vector: &[u64]) -> bool {
        let path = self.queue_of(item).into_iter();
        let mut path = path.flat_map(|at| self.tree.path(at));
        self.user_may_hold(item, vector)
            && path.all(|at| {
                let queue_state = &self.tree.entries[at];
                let mut used = queue_state.used.clone();
                take(&mut used, &queue_state.going);
                add(&mut used, &self.cleared_at(at));
                over(&queue_state.max, &used, vector).is_none()
            })
    }

    /// Checks the quota of the user and the group, counting all quota reserved with victims.
    pub fn user_may_hold(&self, item: usize, vector: &[u64]) -> bool {
        let mut gates = self.apps[self.items[item].app].gates.iter();
        gates.all(|at| {
            let gate = &self.gates.gates[*at];
            let mut used = gate.used.clone();
            add(&mut used, &gate.reserved);
            if let Some(gang) = self.merely_kept()
                && self.apps[self.items[gang.item].app].gates.contains(at)
            {
                take(&mut used, &gang.vector);
            }
            over(&gate.max, &used, vector).is_none()
        })
    }

    /// Quota of the queue that is reserved with victims.
    pub fn cleared_at(&self, queue: usize) -> Cow<'_, Vector> {
        let mut reserved = Cow::Borrowed(&self.tree.entries[queue].reserved);
        let gang = self.merely_kept().filter(|gang| {
            let own = self.queue_of(gang.item);
            own.is_some_and(|own| self.tree.is_below(own, queue))
        });
        if let Some(gang) = gang {
            take(reserved.to_mut(), &gang.vector);
        }
        reserved
    }

    fn merely_kept(&self) -> Option<&GangQuota> {
        self.promises.gang.as_ref().filter(|gang| !gang.cleared)
    }
}

fn others<'b>(reserved: &'b Vector, own: Option<&Vector>) -> Cow<'b, Vector> {
    let mut reserved = Cow::Borrowed(reserved);
    if let Some(own) = own {
        take(reserved.to_mut(), own);
    }
    reserved
}

fn with<'b>(used: &'b Vector, reserved: &Vector) -> Cow<'b, Vector> {
    let mut used = Cow::Borrowed(used);
    if reserved.iter().any(|reserved| *reserved > 0) {
        add(used.to_mut(), reserved);
    }
    used
}
