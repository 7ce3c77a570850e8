//! Measures rounds: `cargo run --profile dist -p hayward-rm-scheduler-domain --example rounds`. The
//! argument `NODESxREQUESTS` chooses a size (`10000x100000`).
//!
//! The measured fleets have one shape and growing size. Each fleet runs:
//! - the first round, which fills the fleet,
//! - rounds after a change of work, each followed by a round without changes,
//! - rounds after a change of one node,
//! - rounds without changes after the fleet has settled,
//! - rounds in which one percent of the work only continues, arrives or ends.
//!
//! In "1% changed", one percent of the work changes: half of it ended, and half is new. In "replaced",
//! one percent ended and the same number is new. Each plan is checked as in the service
//! ("checked").
//!
//! The baseline is a naive best fit over the same requests in the same run. Times are CPU times of
//! all threads. Elapsed time follows in parentheses, with minimum and maximum. The printed round is
//! the one with the median elapsed time. Sentences of verdicts are made by readers and timed
//! separately. Memory is touched before the first round, because the first touch costs time.
//! Figures are printed and fail no test. Decisions are compared with those of a new planner.

mod cost;
mod fleet;
mod memory;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::snapshot::{Node, Snapshot};
use hayward_rm_scheduler_domain::{FairShare, Plan, Planner, SnapshotDelta};
use hayward_vocabulary::NodeName;

use cost::{Cost, ServiceState, Several, ms, timed};
use fleet::{WorkChange, WorkChanges, carry_out, change_some, fleet, naive_best_fit};
use memory::{make_ready, peak_bytes, touched};

/// The allocator of the services.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Most rounds that a fleet gets to settle before it is measured.
const UNTIL_REST: usize = 40;
/// Number of measured first rounds. The largest fleet is planned only once, because of its memory.
const REPEATS: usize = 3;
/// Number of measured rounds with changed work, unless the variable `CHANGE_ROUNDS` is set.
const CHANGE_ROUNDS: u64 = 9;
/// Number of measured rounds without changes after the fleet has settled.
const RESTS: usize = 5;

fn main() {
    if touched() {
        return;
    }
    let requested: Vec<(u64, u64)> = std::env::args()
        .skip(1)
        .filter_map(|it| size(&it))
        .collect();
    let sizes = if requested.is_empty() {
        vec![(1_000, 10_000), (10_000, 100_000), (100_000, 1_000_000)]
    } else {
        requested
    };
    for (nodes, requests) in sizes {
        measure(nodes, requests);
    }
}

fn size(text: &str) -> Option<(u64, u64)> {
    let (nodes, requests) = text.split_once('x')?;
    Some((nodes.parse().ok()?, requests.parse().ok()?))
}

fn measure(nodes: u64, requests: u64) {
    println!("\n{nodes} nodes, {requests} requests");
    let mut full = fleet(nodes, requests);
    make_ready(requests);
    let (first, plan) = first_rounds(&full);
    let peak = peak_bytes() >> 20;
    let (placed, naive) = timed(|| naive_best_fit(&full));
    assert!(placed > 0, "the baseline placed nothing");
    first.show("first", &naive);
    println!(
        "  best fit {:>9.2} ms for {placed}, peak {peak} MiB",
        ms(naive.spent)
    );
    let mut service = ServiceState::default();
    service.round(&full, &SnapshotDelta::everything());
    let rounds = &service.rounds;
    let ((verdicts, shares), words) = timed(|| (rounds.verdicts(), rounds.shares()));
    println!(
        "  in words {:>9.2} ms, peak {} MiB",
        ms(words.spent),
        peak_bytes() >> 20
    );
    assert_eq!(verdicts.len(), full.demand.len(), "work without a verdict");
    drop((verdicts, shares));
    come_to_rest(&mut service, &mut full, plan);
    later_rounds(&mut service, &mut full, requests, &naive);
    println!("  peak {} MiB", peak_bytes() >> 20);
}

/// Measures rounds after changes, and rounds without changes, in a settled fleet.
fn later_rounds(service: &mut ServiceState, full: &mut Snapshot, requests: u64, naive: &Cost) {
    let mut next_number = requests;
    let replaced = [
        ("1% changed", 200),
        ("replaced", 100),
        ("a 1,000", requests / 1_000),
    ];
    // One percent of 100,000 is already a thousand, so smaller fleets skip the last case.
    for (name, every) in replaced
        .into_iter()
        .take(if requests > 100_000 { 3 } else { 2 })
    {
        let change = WorkChange::Replaced;
        let changes = WorkChanges {
            name,
            change,
            every,
        };
        changed_work_rounds(service, full, changes, &mut next_number, naive);
    }
    node_rounds(service, full, naive);
    let mut rest = Several::default();
    for _ in 0..RESTS {
        let (after, cost) = service.round(full, &SnapshotDelta::default());
        rest.note(&after.plan, cost);
    }
    rest.show("at rest", naive);
    // More work arrives than ends, so from here on some work always waits.
    for (name, change) in [
        ("progressed", WorkChange::Progressed),
        ("submitted", WorkChange::Submitted),
        ("ended", WorkChange::Ended),
    ] {
        let every = 100;
        let changes = WorkChanges {
            name,
            change,
            every,
        };
        changed_work_rounds(service, full, changes, &mut next_number, naive);
    }
}

/// Carries out a plan and those of the following rounds. Stops at an empty plan, or after
/// [`UNTIL_REST`] rounds.
fn come_to_rest(service: &mut ServiceState, full: &mut Snapshot, mut plan: Plan) {
    for _ in 0..UNTIL_REST {
        let news = carry_out(full, &plan);
        plan = service.round(full, &news).0.plan;
        if plan.is_empty() {
            break;
        }
    }
}

/// Measures rounds with changed work in a settled fleet. Measures a round without changes after
/// each.
fn changed_work_rounds(
    service: &mut ServiceState,
    full: &mut Snapshot,
    changes: WorkChanges,
    next_number: &mut u64,
    naive: &Cost,
) {
    let (mut fresh, mut again) = (Several::default(), Several::default());
    let repetitions = std::env::var("CHANGE_ROUNDS").ok();
    let repetitions = repetitions
        .and_then(|repetitions| repetitions.parse().ok())
        .unwrap_or(CHANGE_ROUNDS);
    for number in 0..repetitions {
        let news = change_some(full, changes, number, next_number);
        let (after, cost) = service.round(full, &news);
        if full.demand.len() <= 100_000 && number == 0 {
            let same = service.rounds.full_plan(after.clone()) == FairShare.schedule(full);
            assert!(same, "memory changed a decision");
        }
        fresh.note(&after.plan, cost);
        drop(after);
        let (same, cost) = service.round(full, &SnapshotDelta::default());
        again.note(&same.plan, cost);
        come_to_rest(service, full, same.plan);
    }
    fresh.show(changes.name, naive);
    again.show("again", naive);
}

/// Measures rounds with one changed node in a settled fleet. The node stops and resumes taking
/// work, then leaves and comes back.
fn node_rounds(service: &mut ServiceState, full: &mut Snapshot, naive: &Cost) {
    let mut costs: BTreeMap<&str, Several> = BTreeMap::new();
    let names: Vec<NodeName> = full
        .nodes
        .keys()
        .skip(11)
        .step_by(97)
        .take(3)
        .cloned()
        .collect();
    for name in names {
        let node = full.nodes[&name].clone();
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
        for (what, node) in changes {
            match node {
                Some(node) => drop(full.nodes.insert(name.clone(), node)),
                None => drop(full.nodes.remove(&name)),
            }
            let news = SnapshotDelta {
                nodes: BTreeSet::from([name.clone()]),
                ..SnapshotDelta::default()
            };
            let (after, cost) = service.round(full, &news);
            costs.entry(what).or_default().note(&after.plan, cost);
            come_to_rest(service, full, after.plan);
        }
    }
    for (what, cost) in costs {
        cost.show(what, naive);
    }
}

/// Measures first rounds. Returns them with their plan, which is the same each time.
fn first_rounds(snapshot: &Snapshot) -> (Several, Plan) {
    let (mut rounds, mut plan) = (Several::default(), Plan::default());
    let repeats = if snapshot.demand.len() < 1_000_000 {
        REPEATS
    } else {
        1
    };
    for _ in 0..repeats {
        let (after, cost) = ServiceState::default().round(snapshot, &SnapshotDelta::everything());
        rounds.note(&after.plan, cost);
        plan = after.plan;
    }
    (rounds, plan)
}
