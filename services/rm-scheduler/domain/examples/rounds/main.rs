//! Measures the time of scheduling rounds on synthetic fleets:
//! `cargo run --profile dist -p hayward-rm-scheduler-domain --example rounds`
//!
//! Arguments of the form `NODESxWORK` choose the sizes of fleets (`10000x100000`).
//!
//! The measured fleets have one shape and growing size. Each fleet runs:
//! - the first round, which fills the fleet. "limited" is the same round without growth into free
//!   space, which grants fewer processes,
//! - rounds after a change of work, each followed by a round without changes,
//! - rounds after a change of one node: it takes no work, takes work, is gone, is back,
//! - rounds without changes after the fleet has settled,
//! - rounds in which one percent of the work only continues, arrives or ends.
//!
//! In "1% changed", one percent of the work changes: half of it ended, and half is new. In
//! "replaced", one percent ended and the same number is new. Each plan is checked as in the service
//! ("checked").
//!
//! The baseline is a naive best fit over the same work in the same run. Times are CPU times of all
//! threads. Elapsed time follows in parentheses, with minimum and maximum. The printed round is the
//! one with the median elapsed time. Sentences of verdicts are built outside rounds and timed
//! separately. Memory is touched before the first round, because the first touch costs time.
//! Decisions are compared with those of a new planner.

mod best_fit;
mod cost;
mod fleet;
mod memory;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::snapshot::{Node, Snapshot};
use hayward_rm_scheduler_domain::{FairShare, Plan, Planner, SnapshotDelta};
use hayward_vocabulary::NodeName;

use best_fit::place_by_best_fit;
use cost::{Cost, RoundSamples, ServiceState, measure_cost, ms};
use fleet::{ChangeKind, WorkChanges, apply_plan, build_fleet, change_work};
use memory::{peak_bytes, touch_memory_if_requested, touch_memory_in_child};

/// The allocator of the services.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Maximum number of rounds in which a fleet may settle before it is measured.
const MAX_SETTLE_ROUNDS: usize = 40;
/// Number of measured first rounds. The largest fleet is planned only once, because of its memory.
const FIRST_ROUNDS: usize = 3;
/// Number of measured rounds with changed work, unless the variable `CHANGE_ROUNDS` is set.
const CHANGE_ROUNDS: u64 = 9;
/// Number of measured rounds without changes after the fleet has settled.
const UNCHANGED_ROUNDS: usize = 5;

fn main() {
    if touch_memory_if_requested() {
        return;
    }
    let requested: Vec<(u64, u64)> = std::env::args()
        .skip(1)
        .filter_map(|text| parse_fleet_size(&text))
        .collect();
    let sizes = if requested.is_empty() {
        vec![(1_000, 10_000), (10_000, 100_000), (100_000, 1_000_000)]
    } else {
        requested
    };
    for (nodes, work_count) in sizes {
        measure_fleet(nodes, work_count);
    }
}

fn parse_fleet_size(text: &str) -> Option<(u64, u64)> {
    let (nodes, work_count) = text.split_once('x')?;
    Some((nodes.parse().ok()?, work_count.parse().ok()?))
}

fn measure_fleet(nodes: u64, work_count: u64) {
    println!("\n{nodes} nodes, {work_count} requests");
    let mut snapshot = build_fleet(nodes, work_count);
    touch_memory_in_child(work_count);
    let (limited, _) = measure_first_rounds(&limit_growth(&snapshot));
    let (first, plan) = measure_first_rounds(&snapshot);
    let peak = peak_bytes() >> 20;
    let (placed, baseline) = measure_cost(|| place_by_best_fit(&snapshot));
    assert!(placed > 0, "the baseline placed nothing");
    limited.print("limited", &baseline);
    first.print("first", &baseline);
    println!(
        "  best fit {:>9.2} ms for {placed}, peak {peak} MiB",
        ms(baseline.cpu_time)
    );
    let mut service = ServiceState::default();
    service.run_round(&snapshot, &SnapshotDelta::everything());
    let rounds = &service.rounds;
    let ((verdicts, shares), reporting) = measure_cost(|| (rounds.verdicts(), rounds.shares()));
    println!(
        "  in words {:>9.2} ms, peak {} MiB",
        ms(reporting.cpu_time),
        peak_bytes() >> 20
    );
    assert_eq!(
        verdicts.len(),
        snapshot.demand.len(),
        "work without a verdict"
    );
    drop((verdicts, shares));
    settle(&mut service, &mut snapshot, plan);
    measure_later_rounds(&mut service, &mut snapshot, work_count, &baseline);
    println!("  peak {} MiB", peak_bytes() >> 20);
}

/// Measures rounds after changes, and rounds without changes, in a settled fleet.
fn measure_later_rounds(
    service: &mut ServiceState,
    snapshot: &mut Snapshot,
    work_count: u64,
    baseline: &Cost,
) {
    let mut next_number = work_count;
    // Name of the measurement, and interval. One of so many pieces of work is replaced.
    let replaced = [
        ("1% changed", 200),
        ("replaced", 100),
        ("a 1,000", work_count / 1_000),
    ];
    // With 100,000 pieces of work, the last case equals "replaced". Only larger fleets run it.
    for (name, interval) in replaced
        .into_iter()
        .take(if work_count > 100_000 { 3 } else { 2 })
    {
        let kind = ChangeKind::Replaced;
        let changes = WorkChanges {
            name,
            kind,
            interval,
        };
        measure_changed_work(service, snapshot, changes, &mut next_number, baseline);
    }
    measure_changed_nodes(service, snapshot, baseline);
    let mut unchanged = RoundSamples::default();
    for _ in 0..UNCHANGED_ROUNDS {
        let (decided, cost) = service.run_round(snapshot, &SnapshotDelta::default());
        unchanged.add(&decided.plan, cost);
    }
    unchanged.print("at rest", baseline);
    // More work arrives than ends, so from here on some work always waits.
    for (name, kind) in [
        ("progressed", ChangeKind::Progressed),
        ("submitted", ChangeKind::Submitted),
        ("ended", ChangeKind::Ended),
    ] {
        let interval = 100;
        let changes = WorkChanges {
            name,
            kind,
            interval,
        };
        measure_changed_work(service, snapshot, changes, &mut next_number, baseline);
    }
}

/// Carries out a plan and the plans of the following rounds. Stops at an empty plan, or after
/// [`MAX_SETTLE_ROUNDS`] rounds.
fn settle(service: &mut ServiceState, snapshot: &mut Snapshot, mut plan: Plan) {
    for _ in 0..MAX_SETTLE_ROUNDS {
        let delta = apply_plan(snapshot, &plan);
        let (decided, _) = service.run_round(snapshot, &delta);
        plan = decided.plan;
        if plan.is_empty() {
            break;
        }
    }
}

/// Measures rounds with changed work in a settled fleet, and after each a round without changes.
fn measure_changed_work(
    service: &mut ServiceState,
    snapshot: &mut Snapshot,
    changes: WorkChanges,
    next_number: &mut u64,
    baseline: &Cost,
) {
    let (mut changed_rounds, mut unchanged_rounds) =
        (RoundSamples::default(), RoundSamples::default());
    let repetitions = std::env::var("CHANGE_ROUNDS").ok();
    let repetitions = repetitions
        .and_then(|text| text.parse().ok())
        .unwrap_or(CHANGE_ROUNDS);
    for number in 0..repetitions {
        let delta = change_work(snapshot, changes, number, next_number);
        let (decided, cost) = service.run_round(snapshot, &delta);
        if snapshot.demand.len() <= 100_000 && number == 0 {
            let matches_new_planner =
                service.rounds.full_plan(decided.clone()) == FairShare.schedule(snapshot);
            assert!(matches_new_planner, "a new planner decides differently");
        }
        changed_rounds.add(&decided.plan, cost);
        drop(decided);
        let (unchanged, cost) = service.run_round(snapshot, &SnapshotDelta::default());
        unchanged_rounds.add(&unchanged.plan, cost);
        settle(service, snapshot, unchanged.plan);
    }
    changed_rounds.print(changes.name, baseline);
    unchanged_rounds.print("again", baseline);
}

/// Measures rounds with one changed node in a settled fleet. The node stops and resumes taking
/// work, then leaves and comes back.
fn measure_changed_nodes(service: &mut ServiceState, snapshot: &mut Snapshot, baseline: &Cost) {
    let mut costs: BTreeMap<&str, RoundSamples> = BTreeMap::new();
    // Three nodes from different parts of the fleet.
    let names: Vec<NodeName> = snapshot
        .nodes
        .keys()
        .skip(11)
        .step_by(97)
        .take(3)
        .cloned()
        .collect();
    for name in names {
        let node = snapshot.nodes[&name].clone();
        let changes = [
            (
                "no work",
                Some(Node {
                    takes_work: false,
                    ..node.clone()
                }),
            ),
            ("work", Some(node.clone())),
            ("gone", None),
            ("back", Some(node)),
        ];
        for (label, node) in changes {
            match node {
                Some(node) => drop(snapshot.nodes.insert(name.clone(), node)),
                None => drop(snapshot.nodes.remove(&name)),
            }
            let delta = SnapshotDelta {
                nodes: BTreeSet::from([name.clone()]),
                ..SnapshotDelta::default()
            };
            let (decided, cost) = service.run_round(snapshot, &delta);
            costs.entry(label).or_default().add(&decided.plan, cost);
            settle(service, snapshot, decided.plan);
        }
    }
    for (label, rounds) in costs {
        rounds.print(label, baseline);
    }
}

/// Returns the fleet with a policy in which work does not grow into free space beyond its limits.
fn limit_growth(snapshot: &Snapshot) -> Snapshot {
    let mut limited = snapshot.clone();
    limited.tunables.settings.grow_into_free_space = false;
    limited
}

/// Measures first rounds. Returns them with their plan, which is the same each time.
fn measure_first_rounds(snapshot: &Snapshot) -> (RoundSamples, Plan) {
    let (mut rounds, mut plan) = (RoundSamples::default(), Plan::default());
    let repeats = if snapshot.demand.len() < 1_000_000 {
        FIRST_ROUNDS
    } else {
        1
    };
    for _ in 0..repeats {
        let (decided, cost) =
            ServiceState::default().run_round(snapshot, &SnapshotDelta::everything());
        rounds.add(&decided.plan, cost);
        plan = decided.plan;
    }
    (rounds, plan)
}
