//! Builds synthetic fleets, carries out plans on them, and changes their work.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::snapshot::{
    Allocation, Class, Demand, Growth, Node, Policy, Pool, Snapshot,
};
use hayward_rm_scheduler_domain::{Plan, SnapshotDelta};
use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};

pub const GIB: u64 = 1 << 30;
/// Number of users. It is prime, so that users and sizes of work do not correlate.
const USERS: u64 = 97;
/// Memory of the nodes in GiB, in turn.
const NODE_MEMORY_GIB: [u64; 4] = [64, 96, 128, 48];
/// One of this many nodes has GPUs, and one of this many pieces of work wants GPUs. Both are in a
/// node pool of their own.
const GPU_INTERVAL: u64 = 50;

fn parse_name<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("a name of letters and digits")
}

/// Builds a fleet of nodes of four sizes, with jobs of different classes, users and sizes.
pub fn build_fleet(nodes: u64, work_count: u64) -> Snapshot {
    let mut snapshot = Snapshot::empty();
    snapshot.tunables.initialization_cap = 0;
    for pool in ["default", "gpus"] {
        snapshot.pools.insert(pool.to_owned(), Pool::default());
    }
    let classes = [
        ("high", 200, "default"),
        ("normal", 100, "default"),
        ("low", 50, "default"),
        ("learning", 100, "gpus"),
    ];
    for (class, weight, pool) in classes {
        let entry = Class {
            policy: Policy::FairShare,
            priority: 10,
            weight,
            pool: pool.into(),
            default: false,
            users: BTreeSet::new(),
            position: 0,
            debug_class: None,
            growth: Growth::default(),
        };
        snapshot.classes.insert(class.to_owned(), entry);
    }
    for number in 0..nodes {
        let has_gpus = number % GPU_INTERVAL == 0;
        let node = Node {
            pool: if has_gpus { "gpus" } else { "default" }.into(),
            capacity: Size {
                cpu_milli: 64_000,
                gpu_milli: if has_gpus { 8_000 } else { 0 },
                ..Size::memory(NODE_MEMORY_GIB[usize::try_from(number % 4).unwrap_or(0)] * GIB)
            },
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: BTreeMap::new(),
        };
        let key: NodeName = parse_name(&format!("n{number:06}"));
        snapshot.nodes.insert(key, node);
    }
    for number in 0..work_count {
        add_work(&mut snapshot, number);
    }
    snapshot
}

/// Adds a job whose class, user and size follow from its number.
fn add_work(snapshot: &mut Snapshot, number: u64) -> WorkId {
    let pick = usize::try_from(number).unwrap_or(0);
    let wants_gpus = number % GPU_INTERVAL == 7;
    let (class, gpu_milli) = if wants_gpus {
        let variant = pick / 50 % 4;
        ("learning", [500, 1_000, 2_000, 1_000][variant])
    } else {
        (["high", "normal", "normal", "low"][pick % 4], 0)
    };
    let demand = Demand {
        kind: WorkKind::Job,
        user: parse_name::<UserName>(&format!("u{}", number % USERS)),
        class: Some(class.to_owned()),
        submitted_at: Timestamp::from_unix_ms(i64::try_from(number).unwrap_or(0)),
        size: Size {
            cpu_milli: 500,
            gpu_milli,
            ..Size::memory([1, 2, 4, 8, 3][pick % 5] * GIB)
        },
        max_processes: 1 + number % 4,
        remaining_tasks: 1_000,
        threads: 1,
        task_ms: Some(1_000),
        node_list: BTreeSet::new(),
        avoids: BTreeSet::new(),
        service: None,
        anti_affinity: None,
        managed: false,
        runnable: true,
        completing: false,
        keeps_what_it_holds: false,
        queued: None,
    };
    let id = parse_name::<WorkId>(&format!("job_{number:07}"));
    snapshot.demand.insert(id.clone(), demand);
    id
}

/// Carries out a plan and advances the clock by one second. Returns the delta.
pub fn apply_plan(snapshot: &mut Snapshot, plan: &Plan) -> SnapshotDelta {
    let mut delta = SnapshotDelta::default();
    for vacate in &plan.vacates {
        snapshot.allocations.remove(&vacate.allocation);
        delta.allocations.insert(vacate.allocation.clone(), None);
    }
    let first_number = snapshot.round * 10_000_000;
    for (number, grant) in (first_number..).zip(&plan.grants) {
        let allocation = Allocation {
            running: true,
            running_since: Some(snapshot.now),
            ..grant.to_allocation(snapshot.now)
        };
        let id: AllocationId = parse_name(&format!("alc_{number:012}"));
        delta
            .allocations
            .insert(id.clone(), Some(allocation.clone()));
        snapshot.allocations.insert(id, allocation);
    }
    snapshot.carried = plan.carried.clone();
    snapshot.round += 1;
    snapshot.now = snapshot.now.plus_ms(1_000);
    delta
}

/// Kind of change to a part of the work.
#[derive(Debug, Clone, Copy)]
pub enum ChangeKind {
    /// Work ends with its allocations, and the same number of new work is submitted.
    Replaced,
    Ended,
    /// New work is submitted, and none ends.
    Submitted,
    /// The number of remaining tasks falls.
    Progressed,
}

/// A change to a part of the work.
#[derive(Debug, Clone, Copy)]
pub struct WorkChanges {
    /// Name of the measurement.
    pub name: &'static str,
    pub kind: ChangeKind,
    /// One of this many pieces of work changes.
    pub interval: u64,
}

/// Changes a part of the work and returns the delta. The first changed work is at `offset`, so
/// another offset changes other work. New work is numbered from `next_number` on.
pub fn change_work(
    snapshot: &mut Snapshot,
    changes: WorkChanges,
    offset: u64,
    next_number: &mut u64,
) -> SnapshotDelta {
    let to_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let changed = snapshot
        .demand
        .keys()
        .skip(to_usize(offset))
        .step_by(to_usize(changes.interval));
    let changed: Vec<WorkId> = changed.cloned().collect();
    let mut delta = SnapshotDelta::default();
    if matches!(changes.kind, ChangeKind::Replaced | ChangeKind::Submitted) {
        for _ in &changed {
            let id = add_work(snapshot, *next_number);
            let demand = snapshot.demand.get(&id).cloned();
            delta.work.insert(id, demand);
            *next_number += 1;
        }
    }
    match changes.kind {
        ChangeKind::Submitted => return delta,
        ChangeKind::Progressed => {
            for work in &changed {
                let demand = snapshot
                    .demand
                    .get_mut(work)
                    .expect("the work was just listed");
                demand.remaining_tasks -= 1;
                delta.work.insert(work.clone(), Some(demand.clone()));
            }
        }
        ChangeKind::Ended | ChangeKind::Replaced => {
            for work in &changed {
                snapshot.demand.remove(work);
                delta.work.insert(work.clone(), None);
            }
            snapshot.allocations.retain(|id, allocation| {
                let stays = snapshot.demand.contains_key(&allocation.work);
                if !stays {
                    delta.allocations.insert(id.clone(), None);
                }
                stays
            });
        }
    }
    delta
}
