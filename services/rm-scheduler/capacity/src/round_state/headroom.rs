//! Headroom of queues, users and groups, and the quota reserved in it.
//!
//! Victims of work would leave in vain if other work used the quota meanwhile (I14). The needs of a
//! gang with reserved space, and of processes with victims, therefore count as used for all other
//! work.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use hayward_rm_scheduler_domain::plan::QuotaNumbers;

use super::{RoundState, WaitReason};
use crate::resource_vec::{Vector, add, first_exceeded, scale, subtract};

/// Reserved quota. Each [`QueueState`](crate::queue_tree::QueueState) and each
/// [`OwnerLimit`](crate::owner_limits::OwnerLimit) contains the sum.
#[derive(Default)]
pub(crate) struct QuotaReservations {
    gang: Option<GangQuota>,
    /// Processes with victims, by work item.
    processes: BTreeMap<usize, u64>,
}

struct GangQuota {
    /// One part of the gang.
    item: usize,
    /// All parts of the gang.
    items: Vec<usize>,
    /// Resources that the gang still needs.
    vector: Vector,
    /// True if victims leave for the gang. A reservation without victims yields to a guarantee.
    has_victims: bool,
}

impl QuotaReservations {
    /// Returns a work item of each application with reserved quota.
    fn items(&self) -> impl Iterator<Item = usize> + '_ {
        let gang = self.gang.iter().map(|gang| gang.item);
        gang.chain(self.processes.keys().copied())
    }
}

impl RoundState<'_> {
    pub fn reserve_gang_quota(&mut self, item: usize, has_victims: bool) {
        self.release_gang_quota();
        let vector = self.missing_resources(&self.lacking_gang_parts(item));
        self.add_reserved(item, &vector);
        self.quota_reservations.gang = Some(GangQuota {
            item,
            items: self.gang_parts(item).collect(),
            vector,
            has_victims,
        });
    }

    pub fn release_gang_quota(&mut self) {
        if let Some(gang) = self.quota_reservations.gang.take() {
            self.subtract_reserved(gang.item, &gang.vector);
        }
    }

    /// Reserves quota for more processes of work outside gangs.
    pub fn reserve_quota(&mut self, item: usize, processes: u64) {
        let vector = scale(self.vector(item), processes);
        self.add_reserved(item, &vector);
        *self.quota_reservations.processes.entry(item).or_default() += processes;
    }

    /// Releases reserved quota of processes that have started or are no longer wanted.
    pub fn release_quota(&mut self, item: usize, processes: u64) {
        let Some(reserved) = self.quota_reservations.processes.get_mut(&item) else {
            return;
        };
        let released = processes.min(*reserved);
        *reserved -= released;
        if *reserved == 0 {
            self.quota_reservations.processes.remove(&item);
        }
        let vector = scale(self.vector(item), released);
        self.subtract_reserved(item, &vector);
    }

    /// Returns the number of processes of this work outside gangs that have reserved quota.
    pub(super) fn reserved_processes(&self, item: usize) -> u64 {
        self.quota_reservations
            .processes
            .get(&item)
            .copied()
            .unwrap_or(0)
    }

    fn add_reserved(&mut self, item: usize, vector: &[u64]) {
        self.change_reserved(item, |reserved| add(reserved, vector));
    }

    fn subtract_reserved(&mut self, item: usize, vector: &[u64]) {
        self.change_reserved(item, |reserved| subtract(reserved, vector));
    }

    fn change_reserved(&mut self, item: usize, change: impl Fn(&mut Vector)) {
        let app = &self.apps[self.items[item].app];
        for owner_limit in &app.owner_limits {
            change(&mut self.owner_limits.entries[*owner_limit].reserved);
        }
        let mut current = app.queue.as_ref().ok().copied();
        while let Some(queue) = current {
            let queue_state = &mut self.tree.entries[queue];
            change(&mut queue_state.reserved);
            current = queue_state.parent;
        }
    }

    /// Returns true for a part of a gang with victims. If the part were preempted, those victims
    /// would leave in vain.
    pub fn is_in_gang_with_victims(&self, item: usize) -> bool {
        let gang = self.quota_reservations.gang.as_ref();
        gang.is_some_and(|gang| gang.has_victims && gang.items.contains(&item))
    }

    /// Returns the part of the reserved quota that belongs to this work item.
    fn own_reservation(&self, item: usize) -> Option<Cow<'_, Vector>> {
        let gang = self.quota_reservations.gang.as_ref();
        if let Some(gang) = gang.filter(|gang| gang.items.contains(&item)) {
            return Some(Cow::Borrowed(&gang.vector));
        }
        let reserved = self.reserved_processes(item);
        (reserved > 0).then(|| Cow::Owned(scale(self.vector(item), reserved)))
    }

    /// Checks the limit on running applications of the queue and the user.
    pub fn may_run(&self, app: usize) -> Result<(), WaitReason> {
        let app_index = app;
        let app = &self.apps[app];
        let Some(queue) = app.queue.as_ref().ok().filter(|_| !app.running) else {
            return Ok(());
        };
        let apps = self
            .quota_reservations
            .items()
            .map(|item| self.items[item].app);
        let is_starting = |it: &usize| *it != app_index && !self.apps[*it].running;
        let starting: BTreeSet<usize> = apps.filter(is_starting).collect();
        for ancestor in self.tree.path(*queue) {
            let queue_state = &self.tree.entries[ancestor];
            let is_below = |app: &&usize| {
                let queue = self.apps[**app].queue.as_ref();
                queue.is_ok_and(|queue| self.tree.is_below(*queue, ancestor))
            };
            let reserved = starting.iter().filter(is_below).count() as u64;
            let used = queue_state.running + reserved;
            if let Some(quota) = reached_limit(queue_state.max_applications, used) {
                return Err(WaitReason::ApplicationLimit {
                    queue: ancestor,
                    owner: None,
                    quota,
                    reserved,
                });
            }
        }
        for index in &app.owner_limits {
            let owner_limit = &self.owner_limits.entries[*index];
            let shares_limit = |app: &&usize| self.apps[**app].owner_limits.contains(index);
            let reserved = starting.iter().filter(shares_limit).count() as u64;
            if let Some(quota) =
                reached_limit(owner_limit.max_applications, owner_limit.running + reserved)
            {
                return Err(WaitReason::ApplicationLimit {
                    queue: owner_limit.queue,
                    owner: Some(owner_limit.owner.to_string()),
                    quota,
                    reserved,
                });
            }
        }
        Ok(())
    }

    /// Checks the quota of the queue and the user for one more process. Quota that is reserved for
    /// the item is available to the process, unless only some of the missing processes have it.
    pub fn may_hold(&self, item: usize) -> Result<(), WaitReason> {
        let vector = self.vector(item);
        let reserved = self.reserved_processes(item);
        if reserved < self.items[item].missing() && reserved > 0 {
            return self.check_quota(item, vector, None);
        }
        self.may_hold_more(item, vector)
    }

    /// Checks the quota of the user and of the queue for more resources of this application.
    pub fn may_hold_more(&self, item: usize, vector: &[u64]) -> Result<(), WaitReason> {
        let own_reservation = self.own_reservation(item);
        self.check_quota(item, vector, own_reservation.as_deref())
    }

    fn check_quota(
        &self,
        item: usize,
        vector: &[u64],
        own_reservation: Option<&Vector>,
    ) -> Result<(), WaitReason> {
        for owner_limit in &self.apps[self.items[item].app].owner_limits {
            let limit = &self.owner_limits.entries[*owner_limit];
            let reserved = without_own(&limit.reserved, own_reservation);
            let used = add_reserved_to(&limit.used, &reserved);
            if let Some(dim) = first_exceeded(&limit.max, &used, vector) {
                return Err(WaitReason::UserQuota {
                    owner_limit: *owner_limit,
                    dim,
                    quota: super::quota_numbers(&limit.max, &used, vector, dim),
                    reserved: reserved[dim],
                });
            }
        }
        let queue = self.queue_of(item).into_iter();
        for queue in queue.flat_map(|queue| self.tree.path(queue)) {
            let queue_state = &self.tree.entries[queue];
            let reserved = without_own(&queue_state.reserved, own_reservation);
            let used = add_reserved_to(&queue_state.used, &reserved);
            if let Some(dim) = first_exceeded(&queue_state.max, &used, vector) {
                return Err(WaitReason::QueueQuota {
                    queue,
                    dim,
                    quota: super::quota_numbers(&queue_state.max, &used, vector, dim),
                    reserved: reserved[dim],
                });
            }
        }
        Ok(())
    }

    /// Checks the quota after all vacated allocations have left. For limits of users and groups,
    /// the vacated allocations still count as used.
    pub fn may_hold_soon(&self, item: usize, vector: &[u64]) -> bool {
        let path = self.queue_of(item).into_iter();
        let mut path = path.flat_map(|queue| self.tree.path(queue));
        self.user_may_hold(item, vector)
            && path.all(|queue| {
                let queue_state = &self.tree.entries[queue];
                let mut used = queue_state.used.clone();
                subtract(&mut used, &queue_state.leaving);
                add(&mut used, &self.reserved_with_victims(queue));
                first_exceeded(&queue_state.max, &used, vector).is_none()
            })
    }

    /// Checks the quota of the user and the group, counting all quota reserved with victims.
    pub fn user_may_hold(&self, item: usize, vector: &[u64]) -> bool {
        let mut owner_limits = self.apps[self.items[item].app].owner_limits.iter();
        owner_limits.all(|index| {
            let owner_limit = &self.owner_limits.entries[*index];
            let mut used = owner_limit.used.clone();
            add(&mut used, &owner_limit.reserved);
            if let Some(gang) = self.gang_without_victims()
                && self.apps[self.items[gang.item].app]
                    .owner_limits
                    .contains(index)
            {
                subtract(&mut used, &gang.vector);
            }
            first_exceeded(&owner_limit.max, &used, vector).is_none()
        })
    }

    /// Returns the quota of the queue that is reserved with victims.
    pub fn reserved_with_victims(&self, queue: usize) -> Cow<'_, Vector> {
        let mut reserved = Cow::Borrowed(&self.tree.entries[queue].reserved);
        let gang = self.gang_without_victims().filter(|gang| {
            let gang_queue = self.queue_of(gang.item);
            gang_queue.is_some_and(|gang_queue| self.tree.is_below(gang_queue, queue))
        });
        if let Some(gang) = gang {
            subtract(reserved.to_mut(), &gang.vector);
        }
        reserved
    }

    fn gang_without_victims(&self) -> Option<&GangQuota> {
        self.quota_reservations
            .gang
            .as_ref()
            .filter(|gang| !gang.has_victims)
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

fn without_own<'b>(reserved: &'b Vector, own_reservation: Option<&Vector>) -> Cow<'b, Vector> {
    let mut reserved = Cow::Borrowed(reserved);
    if let Some(own_reservation) = own_reservation {
        subtract(reserved.to_mut(), own_reservation);
    }
    reserved
}

fn add_reserved_to<'b>(used: &'b Vector, reserved: &Vector) -> Cow<'b, Vector> {
    let mut used = Cow::Borrowed(used);
    if reserved.iter().any(|reserved| *reserved > 0) {
        add(used.to_mut(), reserved);
    }
    used
}
