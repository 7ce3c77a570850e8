//! Figures of simulations on recorded traces stay within limits. The trace files are not part of
//! this repository. `HAYWARD_TRACES` names their folder. Otherwise an optimised build reads them
//! from `shared/traces` next to the repository. Without traces, these tests print a note and pass.

use std::path::PathBuf;

use hayward_simulation::{
    Case, Node, Workload,
    batch::{Discipline, simulate},
    gang::{self, Preemption},
    malleable::{self, Fluid, ProductionPlanner},
    measure::{Fairness, Summary},
    packing::{
        Demand, GpuNodes, Policy,
        defrag::{defragment, remove_random_pods},
        inflation::{arrivals, inflate, sorted_pods},
        planner_inflation::{Settings, inflate_with_planner},
    },
    published_figures::EASY_ON_KTH,
    trace::{InvalidLines, open, open_jobs, read_arrivals, read_nodes},
};

/// First seed of the published runs of the packing protocols.
const FIRST_SEED: u64 = 42;

/// For each list of pods: the allocated GPUs in millionths that a packing must reach in the mean.
/// The limits are slightly below the best published figures.
const MIN_ALLOCATED_GPU: [(&str, u64); 5] = [
    ("default", 953_000),
    ("cpu050", 949_100),
    ("gpushare40", 938_500),
    ("gpuspec10", 946_500),
    ("multigpu20", 953_500),
];

fn trace_folder(name: &str) -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let configured = std::env::var_os("HAYWARD_TRACES");
    // Without optimisation these tests take minutes, so they run only if the variable is set.
    let is_optimised = !cfg!(debug_assertions);
    let root = configured.map(PathBuf::from).or_else(|| {
        is_optimised
            .then(|| PathBuf::from(default))
            .filter(|it| it.is_dir())
    });
    if root.is_none() {
        eprintln!("skipped: there are no traces, or this build is slow");
    }
    root.map(|root| root.join(name))
}

fn load_trace(name: &str) -> Option<(Workload, Vec<Node>)> {
    let folder = trace_folder(name)?;
    let workload =
        open_jobs(&folder.join("jobs.csv.gz"), InvalidLines::Refuse).expect("a valid trace");
    let nodes = open(&folder.join("nodes.csv")).and_then(read_nodes);
    Some((workload, nodes.expect("valid nodes")))
}

fn simulate_batch(workload: &Workload, nodes: &[Node], discipline: Discipline) -> Summary {
    let case = Case::rigid(workload, nodes);
    simulate(&case, discipline, &Fairness::Users, &mut |_| {}).summary
}

fn assert_within_percent(actual: f64, published: f64, percent: f64) {
    let difference_percent = 100.0 * (actual - published).abs() / published;
    assert!(
        difference_percent <= percent,
        "{actual} is {difference_percent:.2} % off {published}"
    );
}

#[test]
fn easy_backfill_reproduces_the_published_figures_on_kth1996() {
    let Some((workload, nodes)) = load_trace("kth1996") else {
        return;
    };
    let summary = simulate_batch(&workload, &nodes, Discipline::Easy);
    let (published_flow_s, published_slowdown) = EASY_ON_KTH;
    assert_within_percent(summary.flow_s.mean, published_flow_s, 0.1);
    assert_within_percent(summary.bounded_slowdown.mean, published_slowdown, 1.0);
}

#[test]
fn the_cluster_of_gaia2014_is_divided_evenly() {
    let Some((workload, nodes)) = load_trace("gaia2014") else {
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
    let policy = ProductionPlanner::even(&case);
    let planner = ProductionPlanner::new(&case, &policy).expect("an even policy is valid");
    let mut planner = planner.with_current_entitlement();
    let even = malleable::simulate(&case, &mut planner, &Fairness::Users, &mut |_| {})
        .unwrap()
        .summary;
    assert!(even.deviation <= 0.001 && even.jain >= 0.995, "{even:?}");
    assert!(
        even.flow_s.mean <= 19_600.0 && even.waste_percent <= 0.1,
        "{even:?}"
    );
    let case = Case::rigid(&workload, &nodes);
    let gang = gang::simulate(
        &case,
        Preemption {
            checkpoint_s: Some(3600),
            protected_s: None,
        },
        &Fairness::Users,
        &mut |_| {},
    )
    .summary;
    assert!(gang.deviation <= 0.045, "{gang:?}");
}

fn load_openb(list: &str) -> Option<(GpuNodes, Workload)> {
    let folder = trace_folder("openb")?;
    let nodes = open(&folder.join("nodes.csv")).and_then(read_nodes);
    let gpu_nodes = GpuNodes::new(&nodes.expect("valid nodes")).expect("few models");
    let pods = open_jobs(
        &folder.join(format!("pods_{list}.csv.gz")),
        InvalidLines::Refuse,
    );
    Some((gpu_nodes, pods.expect("valid pods")))
}

/// Returns the allocated GPUs in millionths, one figure for each seed from [`FIRST_SEED`] up.
fn pack(list: &str, policy: Policy, seeds: u64) -> Option<Vec<u64>> {
    let (gpu_nodes, workload) = load_openb(list)?;
    let pods = sorted_pods(&workload, &gpu_nodes);
    let demand = Demand::from_pods(&pods);
    let allocated_gpu = |seed| {
        let arrival_order = arrivals(&pods, &gpu_nodes, seed);
        let mut gpu_nodes = gpu_nodes.clone();
        let (result, _) = inflate(&mut gpu_nodes, &arrival_order, &demand, policy, seed);
        result.gpu
    };
    Some(
        (FIRST_SEED..FIRST_SEED + seeds)
            .map(allocated_gpu)
            .collect(),
    )
}

#[test]
fn arrival_orders_equal_those_of_the_protocol() {
    let Some((gpu_nodes, workload)) = load_openb("default") else {
        return;
    };
    let file = trace_folder("openb")
        .expect("the folder exists")
        .join("arrivals_default.csv.gz");
    let orders = open(&file).and_then(read_arrivals).expect("valid arrivals");
    let pods = sorted_pods(&workload, &gpu_nodes);
    for (seed, order) in orders {
        let ids = arrivals(&pods, &gpu_nodes, seed)
            .into_iter()
            .map(|pod| pod.id);
        assert!(ids.eq(order), "seed {seed}");
    }
}

#[test]
fn first_fit_and_best_fit_give_exactly_the_recorded_figures() {
    let hundredths_of_percent = |millionths: Vec<u64>| -> Vec<u64> {
        millionths
            .into_iter()
            .map(|part| (part + 50) / 100)
            .collect()
    };
    let Some(first_fit) = pack("default", Policy::FirstFit, 10) else {
        return;
    };
    let recorded = [9442, 9438, 9440, 9470, 9446, 9439, 9432, 9444, 9471, 9458];
    assert_eq!(hundredths_of_percent(first_fit), recorded);
    let best_fit = pack("default", Policy::BestFit, 10).expect("the trace exists");
    let recorded = [9307, 9335, 9310, 9319, 9364, 9335, 9313, 9332, 9309, 9298];
    assert_eq!(hundredths_of_percent(best_fit), recorded);
}

#[test]
fn the_gradient_policy_packs_as_well_as_the_best_published_policy() {
    for (list, minimum) in MIN_ALLOCATED_GPU {
        let Some(gpu_by_seed) = pack(list, Policy::Gradient, 10) else {
            return;
        };
        let mean = gpu_by_seed.iter().sum::<u64>() / gpu_by_seed.len() as u64;
        assert!(mean >= minimum, "{list}: {mean}");
    }
}

#[test]
fn the_planner_packs_as_well_as_the_best_published_policy() {
    const SEEDS: u64 = 3;
    for (list, minimum) in MIN_ALLOCATED_GPU {
        let Some((gpu_nodes, workload)) = load_openb(list) else {
            return;
        };
        let pods = sorted_pods(&workload, &gpu_nodes);
        let allocated_gpu = |seed| {
            let arrival_order = arrivals(&pods, &gpu_nodes, seed);
            let mut gpu_nodes = gpu_nodes.clone();
            let (result, _) =
                inflate_with_planner(&mut gpu_nodes, &arrival_order, &Settings::default());
            result.gpu
        };
        let mean = (FIRST_SEED..FIRST_SEED + SEEDS)
            .map(allocated_gpu)
            .sum::<u64>()
            / SEEDS;
        assert!(mean >= minimum, "{list}: {mean}");
    }
}

#[test]
fn moving_five_percent_of_pods_frees_seventy_nodes() {
    let Some((gpu_nodes, workload)) = load_openb("default") else {
        return;
    };
    let pods = sorted_pods(&workload, &gpu_nodes);
    for seed in FIRST_SEED..FIRST_SEED + 3 {
        let mut full_gpu_nodes = gpu_nodes.clone();
        let arrival_order = arrivals(&pods, &gpu_nodes, seed);
        let (_, placed) = inflate(
            &mut full_gpu_nodes,
            &arrival_order,
            &Demand::from_pods(&pods),
            Policy::Gradient,
            seed,
        );
        let mut remaining = remove_random_pods(&mut full_gpu_nodes, placed, seed);
        let result = defragment(&mut full_gpu_nodes, &mut remaining, 5);
        assert!(
            result.whole_after >= result.whole_before + 70,
            "{seed}: {result:?}"
        );
    }
}
