//! What a round costs: `cargo run --release -p hayward-rm-scheduler-domain --example rounds`.
//!
//! Fleets of one shape and growing size, the round that fills them and the round after one in a
//! hundred pieces of work was replaced, both beside a naive best fit over the same requests in the
//! same run. Figures are printed, never judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hayward_rm_scheduler_domain::snapshot::{
    Allocation, Class, Demand, Growth, Node, Policy, Pool, Snapshot,
};
use hayward_rm_scheduler_domain::{FairShare, Plan, Planner, check};
use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};

const GIB: u64 = 1 << 30;
const USERS: u64 = 97;
const ROUNDS: usize = 3;

fn main() {
    println!(
        "{:>7} {:>8} | {:>10} {:>9} {:>10} | {:>10} {:>9} {:>7} | {:>10} {:>6}",
        "nodes",
        "requests",
        "first ms",
        "grants",
        "check ms",
        "news ms",
        "grants",
        "gone",
        "best fit",
        "ratio"
    );
    for (nodes, requests) in [(1_000, 10_000), (10_000, 100_000)] {
        measure(nodes, requests);
    }
}

fn measure(nodes: u64, requests: u64) {
    let empty = fleet(nodes, requests);
    let (first, plan) = best_of(&empty);
    let started = Instant::now();
    let checked = check(&empty, &plan);
    let check_time = started.elapsed();
    assert!(checked.is_ok(), "a plan the check refuses: {checked:?}");
    let started = Instant::now();
    let placed = naive_best_fit(&empty);
    let naive = started.elapsed();
    let mut full = empty;
    carry_out(&mut full, &plan);
    // Let the fleet come to rest before the news.
    for _ in 0..6 {
        let plan = FairShare.schedule(&full);
        carry_out(&mut full, &plan);
    }
    replace_one_in_a_hundred(&mut full, requests);
    let (news, after) = best_of(&full);
    println!(
        "{nodes:>7} {requests:>8} | {:>10.2} {:>9} {:>10.2} | {:>10.2} {:>9} {:>7} \
         | {:>10.2} {:>6.1}",
        ms(first),
        plan.grants.len(),
        ms(check_time),
        ms(news),
        after.grants.len(),
        after.vacates.len(),
        ms(naive),
        ms(first) / ms(naive),
    );
    assert!(placed > 0, "the yardstick placed nothing");
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn best_of(snapshot: &Snapshot) -> (Duration, Plan) {
    let mut best = Duration::MAX;
    let mut plan = Plan::default();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        plan = FairShare.schedule(snapshot);
        best = best.min(started.elapsed());
    }
    (best, plan)
}

fn name<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("a name of letters and digits")
}

fn fleet(nodes: u64, requests: u64) -> Snapshot {
    let mut snapshot = Snapshot::empty();
    snapshot.tunables.initialization_cap = 0;
    snapshot.pools = BTreeMap::from([("default".to_owned(), Pool::default())]);
    for (class, weight) in [("high", 200), ("normal", 100), ("low", 50)] {
        let entry = Class {
            policy: Policy::FairShare,
            priority: 10,
            weight,
            pool: "default".into(),
            default: false,
            users: BTreeSet::new(),
            place: 0,
            debug: None,
            growth: Growth::default(),
        };
        snapshot.classes.insert(class.to_owned(), entry);
    }
    for at in 0..nodes {
        let node = Node {
            pool: "default".into(),
            capacity: Size {
                cpu_milli: 64_000,
                ..Size::memory([64, 96, 128, 48][usize::try_from(at % 4).unwrap_or(0)] * GIB)
            },
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
        };
        let key: NodeName = name(&format!("n{at:06}"));
        snapshot.nodes.insert(key, node);
    }
    for at in 0..requests {
        add_request(&mut snapshot, at);
    }
    snapshot
}

fn add_request(snapshot: &mut Snapshot, at: u64) {
    let pick = usize::try_from(at).unwrap_or(0);
    let demand = Demand {
        kind: WorkKind::Job,
        user: name::<UserName>(&format!("u{}", at % USERS)),
        class: Some(["high", "normal", "normal", "low"][pick % 4].to_owned()),
        submitted_at: Timestamp::from_unix_ms(i64::try_from(at).unwrap_or(0)),
        size: Size {
            cpu_milli: 500,
            ..Size::memory([1, 2, 4, 8, 3][pick % 5] * GIB)
        },
        max_processes: 1 + at % 4,
        remaining_tasks: 1_000,
        threads: 1,
        task_ms: Some(1_000),
        machines: BTreeSet::new(),
        service: None,
        managed: false,
        runnable: true,
        completing: false,
        keeps_what_it_holds: false,
    };
    snapshot
        .demand
        .insert(name::<WorkId>(&format!("job_{at:07}")), demand);
}

fn carry_out(snapshot: &mut Snapshot, plan: &Plan) {
    for vacate in &plan.vacates {
        snapshot.allocations.remove(&vacate.allocation);
    }
    let born = snapshot.round * 10_000_000;
    for (at, grant) in (born..).zip(&plan.grants) {
        let allocation = Allocation {
            work: grant.work.clone(),
            kind: grant.kind,
            user: grant.user.clone(),
            class: grant.class.clone(),
            node: grant.node.clone(),
            order: grant.order,
            size: grant.size.clone(),
            fixed: grant.fixed,
            granted_at: snapshot.now,
            running: true,
            started_at: Some(snapshot.now),
            running_since: Some(snapshot.now),
            investment_ms: None,
            gpus: grant.gpus.clone(),
            leaving: false,
            purged: false,
        };
        let id: AllocationId = name(&format!("alc_{at:012}"));
        snapshot.allocations.insert(id, allocation);
    }
    snapshot.carried = plan.carried.clone();
    snapshot.round += 1;
    snapshot.now = snapshot.now.plus_ms(1_000);
}

fn replace_one_in_a_hundred(snapshot: &mut Snapshot, requests: u64) {
    let gone: Vec<WorkId> = snapshot.demand.keys().step_by(100).cloned().collect();
    for work in &gone {
        snapshot.demand.remove(work);
    }
    snapshot
        .allocations
        .retain(|_, it| snapshot.demand.contains_key(&it.work));
    for at in requests..requests + gone.len() as u64 {
        add_request(snapshot, at);
    }
}

/// Every request in order of age into the smallest hole that fits, memory alone, no shares.
fn naive_best_fit(snapshot: &Snapshot) -> u64 {
    let mut holes: BTreeSet<(u64, usize)> = snapshot
        .nodes
        .values()
        .enumerate()
        .map(|(at, node)| (node.capacity.memory_bytes / GIB, at))
        .collect();
    let mut requests: Vec<&Demand> = snapshot.demand.values().collect();
    requests.sort_by_key(|demand| demand.submitted_at);
    let mut placed = 0;
    for demand in requests {
        let order = demand.size.memory_bytes.div_ceil(GIB);
        for _ in 0..demand.max_processes {
            let Some(&(free, at)) = holes.range((order, 0)..).next() else {
                break;
            };
            holes.remove(&(free, at));
            holes.insert((free - order, at));
            placed += 1;
        }
    }
    placed
}
