//! Checks of plans in the property tests. They share no code with the planner.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Plan,
    snapshot::queues::{Preemption, Queue},
};

use crate::fixture::{Fixture, POOL};

/// Checks the limits that `check` does not know: running applications and groups.
pub(super) fn check_limits(seed: u64, fixture: &Fixture) {
    let mut apps: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    let mut groups: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let demand = &fixture.snapshot.demand;
    for allocation in fixture
        .snapshot
        .allocations
        .values()
        .filter(|allocation| !allocation.leaving)
    {
        let Some(demand) = demand.get(&allocation.work) else {
            continue;
        };
        let queued = demand.queued.as_ref().unwrap();
        let app = queued
            .application
            .as_deref()
            .unwrap_or(allocation.work.as_str());
        let app_and_user = (app, allocation.user.as_str());
        apps.entry(&allocation.class)
            .or_default()
            .insert(app_and_user);
        let group = (allocation.class.as_str(), queued.groups[0].as_str());
        *groups.entry(group).or_default() += allocation.size.cpu_milli;
    }
    let root = &fixture.snapshot.queues[POOL].root;
    for (class, apps) in apps {
        let limit = find_queue(root, class).max_applications.unwrap_or(u64::MAX);
        assert!(
            apps.len() as u64 <= limit,
            "seed {seed}: {apps:?} run in {class}"
        );
    }
    for ((class, group), used) in groups {
        let limit_group = if group == "dev" { "dev" } else { "*" };
        let mut limits = find_queue(root, class).limits.iter();
        let limit = limits.find(|limit| limit.groups.iter().any(|name| name == limit_group));
        let limit = limit.and_then(|limit| limit.max.get("vcore"));
        assert!(
            limit.is_none_or(|limit| used <= *limit),
            "seed {seed}: {group} in {class}"
        );
    }
}

/// Checks that all parts of a gang start together. No part has processes while another lacks its
/// minimum number, unless that part lost them.
pub(super) fn check_gangs_start_whole(fixture: &Fixture, plan: &Plan) {
    // The key is the application and its user.
    let mut sums_by_gang: BTreeMap<(&str, &str), GangSums> = BTreeMap::new();
    for (work, demand) in &fixture.snapshot.demand {
        let queued = demand.queued.as_ref().unwrap();
        let Some(gang) = &queued.gang else { continue };
        let app = queued.application.as_deref().unwrap_or(work.as_str());
        let granted = plan
            .grants
            .iter()
            .filter(|grant| grant.work == *work)
            .count() as u64;
        let running = fixture.count_running(work.as_str()) as u64;
        let sums = sums_by_gang.entry((app, demand.user.as_str())).or_default();
        let wanted = gang.min.min(demand.max_processes);
        sums.lacking_before += wanted.saturating_sub(running);
        sums.lacking_after += wanted.saturating_sub(running + granted);
        sums.granted += granted;
    }
    for sums in sums_by_gang.values() {
        let is_split = sums.lacking_after > 0 && sums.lacking_after != sums.lacking_before;
        assert!(!is_split, "a gang was split: {sums:?}");
    }
}

/// Numbers of processes over all parts of a gang.
#[derive(Debug, Default)]
struct GangSums {
    /// Processes that the gang lacked before the plan.
    lacking_before: u64,
    /// Processes that the gang lacks after the plan.
    lacking_after: u64,
    /// Processes that the plan grants.
    granted: u64,
}

/// Checks that space is reserved for a whole gang or not at all, and on suitable nodes (I13).
pub(super) fn check_gang_reservation(seed: u64, fixture: &Fixture, plan: &Plan) {
    let carried = &plan.carried.queues[POOL];
    let Some(reservation) = &carried.gang else {
        return;
    };
    let lifetime = fixture.snapshot.queues[POOL].reservation_ms;
    let age = plan.at.ms_since(reservation.since);
    assert!(age < lifetime, "seed {seed}: space is reserved forever");
    let gang_of = |work: &str| {
        let queued = fixture.snapshot.demand[work].queued.as_ref().unwrap();
        let app = queued.application.clone();
        (app.unwrap_or_else(|| work.to_owned()), queued.gang.clone())
    };
    let (app, gang) = gang_of(reservation.work.as_str());
    let gang = gang.unwrap().name;
    for (work, demand) in &fixture.snapshot.demand {
        let (other_app, other_gang) = gang_of(work.as_str());
        let is_same_gang = other_app == app
            && demand.user == fixture.snapshot.demand[&reservation.work].user
            && other_gang
                .as_ref()
                .is_some_and(|other_gang| other_gang.name == gang);
        let reserved = reservation
            .nodes
            .values()
            .filter_map(|works| works.get(work));
        let reserved: u64 = reserved.sum();
        let granted = plan.grants.iter().filter(|grant| grant.work == *work);
        let vacated = plan.vacates.iter();
        let vacated =
            vacated.filter(|it| fixture.snapshot.allocations[&it.allocation].work == *work);
        let running = fixture.count_running(work.as_str()) - vacated.count() + granted.count();
        let min_processes =
            other_gang.map_or(0, |other_gang| other_gang.min.min(demand.max_processes));
        let missing = min_processes.saturating_sub(running as u64);
        assert_eq!(
            reserved,
            if is_same_gang { missing } else { 0 },
            "seed {seed}: {work}"
        );
    }
    for (name, works) in &reservation.nodes {
        assert!(
            !carried.reservations.contains_key(name),
            "seed {seed}: {name}"
        );
        let node = &fixture.snapshot.nodes[name];
        let reserved_vcores = works.iter().map(|(work, count)| {
            let size = &fixture.snapshot.demand[work].size;
            size.cpu_milli * count
        });
        let reserved_vcores: u64 = reserved_vcores.sum();
        assert!(
            node.takes_work && reserved_vcores <= node.capacity.cpu_milli,
            "seed {seed}"
        );
    }
}

/// Verifies the rules of preemption: each victim is vacated once, in another queue than its
/// beneficiary, and no queue falls below its guarantee of vcores.
pub(super) fn check_victims(seed: u64, fixture: &Fixture, plan: &Plan) {
    let snapshot = &fixture.snapshot;
    let mut remaining: BTreeMap<String, u64> = BTreeMap::new();
    for allocation in snapshot
        .allocations
        .values()
        .filter(|allocation| !allocation.leaving)
    {
        *remaining.entry(allocation.class.clone()).or_default() += allocation.size.cpu_milli;
    }
    for grant in &plan.grants {
        *remaining.entry(grant.class.to_string()).or_default() += grant.size.cpu_milli;
    }
    let vacated: BTreeSet<_> = plan.vacates.iter().map(|it| &it.allocation).collect();
    for receipt in &plan.receipts {
        let allocation = &snapshot.allocations[&receipt.allocation];
        assert!(
            vacated.contains(&receipt.allocation),
            "a receipt without a vacate"
        );
        assert!(!allocation.leaving, "seed {seed}: preempted twice");
        let (Some(work), victim) = (&receipt.beneficiary, &snapshot.demand[&allocation.work])
        else {
            continue;
        };
        let beneficiary = snapshot.demand[work].queued.as_ref().unwrap();
        let victim_queued = victim.queued.as_ref().unwrap();
        assert!(beneficiary.preempts || beneficiary.required_node.is_some());
        if beneficiary.required_node.is_some() {
            continue;
        }
        let beneficiary_queue = plan.verdicts[work].class.as_deref().unwrap();
        assert!(
            allocation.class != beneficiary_queue,
            "seed {seed}: the victim is in the queue of its beneficiary"
        );
        assert!(victim_queued.required_node.is_none());
        let queue = find_queue(&snapshot.queues[POOL].root, &allocation.class);
        assert!(
            queue.preemption != Preemption::Disabled,
            "seed {seed}: preemption is disabled in the queue"
        );
        let remaining = remaining.get_mut(&allocation.class).unwrap();
        *remaining -= allocation.size.cpu_milli;
        if let Some(guaranteed) = queue.guaranteed.get("vcore") {
            assert!(
                *remaining >= *guaranteed,
                "seed {seed}: pushed below its guarantee"
            );
        }
    }
}

/// Returns the queue with this full path.
pub(super) fn find_queue<'a>(root: &'a Queue, path: &str) -> &'a Queue {
    let names = path.split('.').skip(1);
    names.fold(root, |queue, name| &queue.children[name])
}
