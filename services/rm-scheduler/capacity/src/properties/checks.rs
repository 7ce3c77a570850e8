//! Checks of a plan that share no code with the planner.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{Plan, snapshot::queues::Queue};

use crate::fixture::{Fixture, POOL};

/// Checks the limits that `check` does not know: running applications and groups.
pub(super) fn limits_hold(seed: u64, fixture: &Fixture) {
    let mut apps: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    let mut groups: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let demand = &fixture.snapshot.demand;
    for held in fixture
        .snapshot
        .allocations
        .values()
        .filter(|held| !held.leaving)
    {
        let Some(demand) = demand.get(&held.work) else {
            continue;
        };
        let queued = demand.queued.as_ref().unwrap();
        let app = queued.application.as_deref().unwrap_or(held.work.as_str());
        let mine = (app, held.user.as_str());
        apps.entry(&held.class).or_default().insert(mine);
        let group = (held.class.as_str(), queued.groups[0].as_str());
        *groups.entry(group).or_default() += held.size.cpu_milli;
    }
    let root = &fixture.snapshot.queues[POOL].root;
    for (class, apps) in apps {
        let most = find(root, class).max_applications.unwrap_or(u64::MAX);
        assert!(
            apps.len() as u64 <= most,
            "seed {seed}: {apps:?} run in {class}"
        );
    }
    for ((class, group), used) in groups {
        let own = if group == "dev" { "dev" } else { "*" };
        let mut limits = find(root, class).limits.iter();
        let limit = limits.find(|limit| limit.groups.iter().any(|name| name == own));
        let most = limit.and_then(|limit| limit.max.get("vcore"));
        assert!(
            most.is_none_or(|most| used <= *most),
            "seed {seed}: {group} in {class}"
        );
    }
}

/// Checks that all parts of a gang start together. No part has processes while another lacks its
/// least number, unless that part lost them.
pub(super) fn gangs_are_whole(fixture: &Fixture, plan: &Plan) {
    let mut least: BTreeMap<(&str, &str), (u64, u64, u64)> = BTreeMap::new();
    for (work, demand) in &fixture.snapshot.demand {
        let queued = demand.queued.as_ref().unwrap();
        let Some(gang) = &queued.gang else { continue };
        let app = queued.application.as_deref().unwrap_or(work.as_str());
        let granted = plan
            .grants
            .iter()
            .filter(|grant| grant.work == *work)
            .count() as u64;
        let before = fixture.has(work.as_str()) as u64;
        let sums = least.entry((app, demand.user.as_str())).or_default();
        let wanted = gang.min.min(demand.max_processes);
        sums.0 += wanted.saturating_sub(before);
        sums.1 += wanted.saturating_sub(before + granted);
        sums.2 += granted;
    }
    for (lacked, lacks, granted) in least.values() {
        assert!(
            *lacks == 0 || lacks == lacked,
            "a gang was split: {lacked} {lacks} {granted}"
        );
    }
}

/// Checks that space is reserved for a whole gang or not at all, and on suitable nodes (I13).
pub(super) fn a_gang_is_reserved_whole(seed: u64, fixture: &Fixture, plan: &Plan) {
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
        let (its_app, its) = gang_of(work.as_str());
        let mine = its_app == app
            && demand.user == fixture.snapshot.demand[&reservation.work].user
            && its.as_ref().is_some_and(|its| its.name == gang);
        let has = reservation
            .nodes
            .values()
            .filter_map(|works| works.get(work));
        let reserved: u64 = has.sum();
        let granted = plan.grants.iter().filter(|grant| grant.work == *work);
        let going = plan.vacates.iter();
        let going = going.filter(|it| fixture.snapshot.allocations[&it.allocation].work == *work);
        let has = fixture.has(work.as_str()) - going.count() + granted.count();
        let least = its.map_or(0, |its| its.min.min(demand.max_processes));
        let lacks = least.saturating_sub(has as u64);
        assert_eq!(
            reserved,
            if mine { lacks } else { 0 },
            "seed {seed}: {work}"
        );
    }
    for (name, works) in &reservation.nodes {
        assert!(
            !carried.reservations.contains_key(name),
            "seed {seed}: {name}"
        );
        let node = &fixture.snapshot.nodes[name];
        let wants = works.iter().map(|(work, count)| {
            let size = &fixture.snapshot.demand[work].size;
            size.cpu_milli * count
        });
        let wants: u64 = wants.sum();
        assert!(
            node.takes_work && wants <= node.capacity.cpu_milli,
            "seed {seed}"
        );
    }
}

/// Verifies the rules of preemption independently of the planner.
pub(super) fn victims_are_lawful(seed: u64, fixture: &Fixture, plan: &Plan) {
    let snapshot = &fixture.snapshot;
    let mut left: BTreeMap<String, u64> = BTreeMap::new();
    for held in snapshot.allocations.values().filter(|held| !held.leaving) {
        *left.entry(held.class.clone()).or_default() += held.size.cpu_milli;
    }
    for grant in &plan.grants {
        *left.entry(grant.class.to_string()).or_default() += grant.size.cpu_milli;
    }
    let going: BTreeSet<_> = plan.vacates.iter().map(|it| &it.allocation).collect();
    for receipt in &plan.receipts {
        let held = &snapshot.allocations[&receipt.allocation];
        assert!(going.contains(&receipt.allocation), "a receipt for nothing");
        assert!(!held.leaving, "seed {seed}: taken twice");
        let (Some(work), victim) = (&receipt.beneficiary, &snapshot.demand[&held.work]) else {
            continue;
        };
        let asks = snapshot.demand[work].queued.as_ref().unwrap();
        let gives = victim.queued.as_ref().unwrap();
        assert!(asks.preempts || asks.required_node.is_some());
        if asks.required_node.is_some() {
            continue;
        }
        let to = plan.verdicts[work].class.as_deref().unwrap();
        assert!(held.class != to, "seed {seed}: taken from its own queue");
        assert!(gives.required_node.is_none());
        let queue = find(&snapshot.queues[POOL].root, &held.class);
        assert!(
            format!("{:?}", queue.preemption) != "Disabled",
            "seed {seed}: was spared"
        );
        let left = left.get_mut(&held.class).unwrap();
        *left -= held.size.cpu_milli;
        if let Some(guaranteed) = queue.guaranteed.get("vcore") {
            assert!(
                *left >= *guaranteed,
                "seed {seed}: pushed below its guarantee"
            );
        }
    }
}

pub(super) fn find<'a>(root: &'a Queue, path: &str) -> &'a Queue {
    let names = path.split('.').skip(1);
    names.fold(root, |queue, name| &queue.children[name])
}
