//! Figures on recorded workloads. The trace files are not part of this repository: `HAYWARD_TRACES`
//! names their folder, or they are in `shared/traces` next to it. Without the files, and in
//! a build without optimisation, these tests print a note and pass.

use std::path::PathBuf;

use hayward_simulation::{
    Case, Node, Workload,
    batch::{Discipline, simulate},
    gang::{self, Preemption},
    malleable::{self, Fluid, Production},
    measure::{Fairness, Summary},
    packing::{
        Demand, Policy, Sites,
        defrag::{defragment, thin_out},
        inflation::{arrivals, inflate, pods},
        planned::{Settings, inflate_planned},
    },
    trace::{Bad, open, open_jobs, read_arrivals, read_nodes},
};

fn folder(name: &str) -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let named = std::env::var_os("HAYWARD_TRACES");
    // Without optimisation this takes minutes, so it runs only if the traces are named explicitly.
    let quick = !cfg!(debug_assertions);
    let root = named.map(PathBuf::from).or_else(|| {
        quick
            .then(|| PathBuf::from(default))
            .filter(|it| it.is_dir())
    });
    if root.is_none() {
        eprintln!("skipped: there are no traces, or this build is slow");
    }
    root.map(|root| root.join(name))
}

fn trace(name: &str) -> Option<(Workload, Vec<Node>)> {
    let folder = folder(name)?;
    let workload = open_jobs(&folder.join("jobs.csv.gz"), Bad::Refuse).expect("a whole trace");
    let nodes = open(&folder.join("nodes.csv")).and_then(read_nodes);
    Some((workload, nodes.expect("whole nodes")))
}

fn rigid(workload: &Workload, nodes: &[Node], discipline: Discipline) -> Summary {
    let case = Case::rigid(workload, nodes);
    simulate(&case, discipline, &Fairness::Users, &mut |_| {}).summary
}

fn near(found: f64, published: f64, percent: f64) {
    let off = 100.0 * (found - published).abs() / published;
    assert!(off <= percent, "{found} is {off:.2} % off {published}");
}

#[test]
fn easy_is_calibrated_on_kth1996() {
    let Some((workload, nodes)) = trace("kth1996") else {
        return;
    };
    let summary = rigid(&workload, &nodes, Discipline::Easy);
    near(summary.flow_s.mean, 15_696.8, 0.1);
    near(summary.bounded_slowdown.mean, 92.58, 1.0);
}

#[test]
fn gaia2014_is_shared_evenly() {
    let Some((workload, nodes)) = trace("gaia2014") else {
        return;
    };
    let case = Case::malleable(&workload, &nodes);
    let mut fluid = Fluid::new(Fairness::Users, 1);
    let fluid = malleable::simulate(&case, &mut fluid, &Fairness::Users, &mut |_| {})
        .unwrap()
        .summary;
    assert!(fluid.deviation <= 0.001 && fluid.jain >= 0.995, "{fluid:?}");
    assert!(
        fluid.flow_s.mean <= 19_600.0 && fluid.waste_percent <= 0.1,
        "{fluid:?}"
    );
    let policy = Production::even(&case);
    let planner = Production::new(&case, &policy).expect("an even policy is a good one");
    let mut planner = planner.by_current_entitlement();
    let even = malleable::simulate(&case, &mut planner, &Fairness::Users, &mut |_| {})
        .unwrap()
        .summary;
    assert!(even.deviation <= 0.001 && even.jain >= 0.995, "{even:?}");
    assert!(
        even.flow_s.mean <= 19_600.0 && even.waste_percent <= 0.1,
        "{even:?}"
    );
    let case = Case::rigid(&workload, &nodes);
    let gangs = gang::simulate(
        &case,
        Preemption {
            checkpoint_s: Some(3600),
            protected_s: None,
        },
        &Fairness::Users,
        &mut |_| {},
    )
    .summary;
    assert!(gangs.deviation <= 0.045, "{gangs:?}");
}

fn openb(list: &str) -> Option<(Sites, Workload)> {
    let folder = folder("openb")?;
    let nodes = open(&folder.join("nodes.csv")).and_then(read_nodes);
    let sites = Sites::new(&nodes.expect("whole nodes")).expect("few models");
    let pods = open_jobs(&folder.join(format!("pods_{list}.csv.gz")), Bad::Refuse);
    Some((sites, pods.expect("whole pods")))
}

/// Returns the allocated GPUs in millionths, one figure for each seed from 42 up.
fn packed(list: &str, policy: Policy, seeds: u64) -> Option<Vec<u64>> {
    let (sites, workload) = openb(list)?;
    let pods = pods(&workload, &sites);
    let demand = Demand::from_pods(&pods);
    let one = |seed| {
        let order = arrivals(&pods, &sites, seed);
        inflate(&mut sites.clone(), &order, &demand, policy, seed)
            .0
            .gpu
    };
    Some((42..42 + seeds).map(one).collect())
}

#[test]
fn arrivals_are_those_of_the_protocol() {
    let Some((sites, workload)) = openb("default") else {
        return;
    };
    let file = folder("openb")
        .expect("it was there")
        .join("arrivals_default.csv.gz");
    let orders = open(&file).and_then(read_arrivals).expect("whole arrivals");
    let pods = pods(&workload, &sites);
    for (seed, order) in orders {
        let ours = arrivals(&pods, &sites, seed).into_iter().map(|pod| pod.id);
        assert!(ours.eq(order), "seed {seed}");
    }
}

#[test]
fn first_fit_and_best_fit_give_exactly_the_recorded_figures() {
    let hundredths =
        |found: Vec<u64>| -> Vec<u64> { found.into_iter().map(|part| (part + 50) / 100).collect() };
    let Some(first) = packed("default", Policy::FirstFit, 10) else {
        return;
    };
    let written = [9442, 9438, 9440, 9470, 9446, 9439, 9432, 9444, 9471, 9458];
    assert_eq!(hundredths(first), written);
    let best = packed("default", Policy::BestFit, 10).expect("it was there");
    let written = [9307, 9335, 9310, 9319, 9364, 9335, 9313, 9332, 9309, 9298];
    assert_eq!(hundredths(best), written);
}

#[test]
fn our_policy_packs_as_well_as_the_best_published_one() {
    for (list, least) in [
        ("default", 953_000),
        ("cpu050", 949_100),
        ("gpushare40", 938_500),
        ("gpuspec10", 946_500),
        ("multigpu20", 953_500),
    ] {
        let Some(found) = packed(list, Policy::Gradient, 10) else {
            return;
        };
        let mean = found.iter().sum::<u64>() / found.len() as u64;
        assert!(mean >= least, "{list}: {mean}");
    }
}

#[test]
fn the_planner_packs_as_well_as_the_best_published_policy() {
    for (list, least) in [
        ("default", 953_000),
        ("cpu050", 949_100),
        ("gpushare40", 938_500),
        ("gpuspec10", 946_500),
        ("multigpu20", 953_500),
    ] {
        let Some((sites, workload)) = openb(list) else {
            return;
        };
        let pods = pods(&workload, &sites);
        let one = |seed| {
            let order = arrivals(&pods, &sites, seed);
            inflate_planned(&mut sites.clone(), &order, &Settings::default())
                .0
                .gpu
        };
        let mean = (42..45).map(one).sum::<u64>() / 3;
        assert!(mean >= least, "{list}: {mean}");
    }
}

#[test]
fn five_percent_of_moves_free_seventy_nodes() {
    let Some((sites, workload)) = openb("default") else {
        return;
    };
    let pods = pods(&workload, &sites);
    for seed in 42..45 {
        let mut full = sites.clone();
        let order = arrivals(&pods, &sites, seed);
        let (_, placed) = inflate(
            &mut full,
            &order,
            &Demand::from_pods(&pods),
            Policy::Gradient,
            seed,
        );
        let mut left = thin_out(&mut full, placed, seed);
        let result = defragment(&mut full, &mut left, 5);
        assert!(
            result.whole_after >= result.whole_before + 70,
            "{seed}: {result:?}"
        );
    }
}
