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
use crate::resource_vec::{Vector, add, over, take, times};

/// Reserved quota. Each [`QueueState`](crate::tree::QueueState) and each gate contains the sum.
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
    /// True if victims leave for the gang. A reservation without victims yields to a guarantee.
    cleared: bool,
}

impl QuotaReservations {
    /// Returns one work item per application with reserved quota.
    fn items(&self) -> impl Iterator<Item = usize> + '_ {
        let gang = self.gang.iter().map(|gang| gang.item);
        gang.chain(self.single.keys().copied())
    }
}

impl RoundState<'_> {
    pub fn reserve_gang_quota(&mut self, item: usize, cleared: bool) {
        self.release_gang_quota();
        let vector = self.missing_resources(&self.lacking_gang_parts(item));
        self.add_reserved(item, &vector);
        self.quota_reservations.gang = Some(GangQuota {
            item,
            items: self.gang_parts(item).collect(),
            vector,
            cleared,
        });
    }

    pub fn release_gang_quota(&mut self) {
        if let Some(gang) = self.quota_reservations.gang.take() {
            self.take_reserved(gang.item, &gang.vector);
        }
    }

    /// Reserves quota for more processes of work outside gangs.
    pub fn reserve_quota(&mut self, item: usize, processes: u64) {
        let vector = times(self.vector(item), processes);
        self.add_reserved(item, &vector);
        *self.quota_reservations.single.entry(item).or_default() += processes;
    }

    /// Releases reserved quota of processes that have started or are no longer wanted.
    pub fn release_quota(&mut self, item: usize, processes: u64) {
        let Some(reserved) = self.quota_reservations.single.get_mut(&item) else {
            return;
        };
        let released = processes.min(*reserved);
        *reserved -= released;
        if *reserved == 0 {
            self.quota_reservations.single.remove(&item);
        }
        let vector = times(self.vector(item), released);
        self.take_reserved(item, &vector);
    }

    /// Processes outside gangs with reserved quota.
    pub(super) fn reserved_processes(&self, item: usize) -> u64 {
        self.quota_reservations
            .single
            .get(&item)
            .copied()
            .unwrap_or(0)
    }

    fn add_reserved(&mut self, item: usize, vector: &[u64]) {
        self.change_reserved(item, |reserved| add(reserved, vector));
    }

    fn take_reserved(&mut self, item: usize, vector: &[u64]) {
        self.change_reserved(item, |reserved| take(reserved, vector));
    }

    fn change_reserved(&mut self, item: usize, change: impl Fn(&mut Vector)) {
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

    /// Returns true for a member of a gang with victims. Preempting the member would waste them.
    pub fn is_of_a_cleared_gang(&self, item: usize) -> bool {
        let gang = self.quota_reservations.gang.as_ref();
        gang.is_some_and(|gang| gang.cleared && gang.items.contains(&item))
    }

    /// Returns the part of the reserved quota that belongs to this work item.
    fn own(&self, item: usize) -> Option<Cow<'_, Vector>> {
        let gang = self.quota_reservations.gang.as_ref();
        if let Some(gang) = gang.filter(|gang| gang.items.contains(&item)) {
            return Some(Cow::Borrowed(&gang.vector));
        }
        let reserved = self.reserved_processes(item);
        (reserved > 0).then(|| Cow::Owned(times(self.vector(item), reserved)))
    }

    /// Checks the limit on running applications of the queue and the user.
    pub fn may_run(&self, app: usize) -> Result<(), Why> {
        let app_no = app;
        let app = &self.apps[app];
        let Some(queue) = app.queue.as_ref().ok().filter(|_| !app.running) else {
            return Ok(());
        };
        let apps = self
            .quota_reservations
            .items()
            .map(|item| self.items[item].app);
        let starts = |it: &usize| *it != app_no && !self.apps[*it].running;
        let starting: BTreeSet<usize> = apps.filter(starts).collect();
        for at in self.tree.path(*queue) {
            let queue_state = &self.tree.entries[at];
            let below = |app: &&usize| {
                let queue = self.apps[**app].queue.as_ref();
                queue.is_ok_and(|queue| self.tree.is_below(*queue, at))
            };
            let reserved = starting.iter().filter(below).count() as u64;
            let used = queue_state.running + reserved;
            if let Some(quota) = reached_limit(queue_state.max_applications, used) {
                return Err(Why::TooManyRun {
                    queue: at,
                    owner: None,
                    quota,
                    reserved,
                });
            }
        }
        for at in &app.gates {
            let gate = &self.gates.gates[*at];
            let passes = |app: &&usize| self.apps[**app].gates.contains(at);
            let reserved = starting.iter().filter(passes).count() as u64;
            if let Some(quota) = reached_limit(gate.max_applications, gate.running + reserved) {
                return Err(Why::TooManyRun {
                    queue: gate.queue,
                    owner: Some(gate.owner.to_string()),
                    quota,
                    reserved,
                });
            }
        }
        Ok(())
    }

    /// Checks the quota of the queue and the user for one more process. Reserved quota of the item
    /// itself is available to it.
    pub fn may_hold(&self, item: usize) -> Result<(), Why> {
        let vector = self.vector(item);
        let reserved = self.reserved_processes(item);
        if reserved < self.items[item].missing() && reserved > 0 {
            return self.check_quota(item, vector, None);
        }
        self.may_hold_more(item, vector)
    }

    /// Checks the quota for more resources of this application, the user first.
    pub fn may_hold_more(&self, item: usize, vector: &[u64]) -> Result<(), Why> {
        let own = self.own(item);
        self.check_quota(item, vector, own.as_deref())
    }

    fn check_quota(&self, item: usize, vector: &[u64], own: Option<&Vector>) -> Result<(), Why> {
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

    /// Checks the quota after all vacated allocations have left. For users and groups, their usage
    /// still counts.
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
            if let Some(gang) = self.gang_without_victims()
                && self.apps[self.items[gang.item].app].gates.contains(at)
            {
                take(&mut used, &gang.vector);
            }
            over(&gate.max, &used, vector).is_none()
        })
    }

    /// Returns the quota of the queue that is reserved with victims.
    pub fn cleared_at(&self, queue: usize) -> Cow<'_, Vector> {
        let mut reserved = Cow::Borrowed(&self.tree.entries[queue].reserved);
        let gang = self.gang_without_victims().filter(|gang| {
            let own = self.queue_of(gang.item);
            own.is_some_and(|own| self.tree.is_below(own, queue))
        });
        if let Some(gang) = gang {
            take(reserved.to_mut(), &gang.vector);
        }
        reserved
    }

    fn gang_without_victims(&self) -> Option<&GangQuota> {
        self.quota_reservations
            .gang
            .as_ref()
            .filter(|gang| !gang.cleared)
    }
}

/// Returns the numbers of a reached limit on running applications, or `None` if one more may run.
fn reached_limit(limit: Option<u64>, used: u64) -> Option<QuotaNumbers> {
    let limit = limit.filter(|limit| used >= *limit)?;
    Some(QuotaNumbers {
        limit,
        used,
        needed: 1,
    })
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
