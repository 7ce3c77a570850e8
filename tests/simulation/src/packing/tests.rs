//! Tests of the packing of pods onto nodes with GPUs.

use super::{
    defrag::{defragment, remove_random_pods},
    inflation::{InflationResult, PlacedPod, arrivals, inflate, sorted_pods},
    planner_inflation::{Settings, inflate_with_planner},
    *,
};
use crate::trace::{Job, Node, TaskRequest, Workload};

fn nodes() -> Vec<Node> {
    let node = |index: usize| Node {
        id: format!("{index:02}"),
        pool: String::new(),
        cpu_milli: 16_000,
        memory_mib: 1000,
        gpu_count: if index < 6 { 4 } else { 2 },
        gpu_model: if index.is_multiple_of(2) { "A" } else { "B" }.to_owned(),
    };
    (0..10).map(node).collect()
}

/// Returns a list of pods with a share of a GPU, one GPU, two GPUs, and none in turn.
fn pod_list() -> Workload {
    let mut workload = Workload::default();
    let kinds = [(1, 300), (1, 1000), (2, 1000), (0, 0), (1, 700)];
    for index in 0..30_usize {
        let (gpu_count, gpu_milli) = kinds[index % kinds.len()];
        let job = Job {
            id: format!("{index:03}"),
            user: workload.users.index("u"),
            class: workload.classes.index("c"),
            queue: None,
            submit_s: None,
            runtime_s: None,
            limit_s: None,
            tasks: 1,
            request: TaskRequest {
                cpu_milli: 1000,
                memory_mib: 10,
                gpu_count,
                gpu_milli,
                gpu_models: if index.is_multiple_of(7) {
                    vec!["A".to_owned()]
                } else {
                    Vec::new()
                },
                ..TaskRequest::default()
            },
        };
        workload.jobs.push(job);
    }
    workload
}

fn pack(policy: Policy, seed: u64) -> (GpuNodes, Vec<PlacedPod>, InflationResult) {
    let mut gpu_nodes = GpuNodes::new(&nodes()).unwrap();
    let list = sorted_pods(&pod_list(), &gpu_nodes);
    let arrival_order = arrivals(&list, &gpu_nodes, seed);
    let (result, placed) = inflate(
        &mut gpu_nodes,
        &arrival_order,
        &Demand::from_pods(&list),
        policy,
        seed,
    );
    (gpu_nodes, placed, result)
}

const POLICIES: [Policy; 5] = [
    Policy::Random,
    Policy::FirstFit,
    Policy::BestFit,
    Policy::DotProduct,
    Policy::Gradient,
];

/// Asserts that free and placed amounts add up on every GPU.
fn assert_amounts_add_up(gpu_nodes: &GpuNodes, placed: &[PlacedPod]) {
    let mut free = gpu_nodes.empty.clone();
    for it in placed {
        assert_ne!(
            gpu_nodes.empty[it.node].model & it.pod.shape.models,
            0,
            "an accepted model"
        );
        assert_eq!(it.gpus.len() as u64, it.pod.shape.gpu_count);
        free[it.node].allocate(&it.pod, &it.gpus);
    }
    assert_eq!(free, gpu_nodes.nodes);
}

#[test]
fn no_gpu_is_allocated_twice() {
    for policy in POLICIES {
        let (gpu_nodes, placed, result) = pack(policy, 7);
        assert_amounts_add_up(&gpu_nodes, &placed);
        assert!(result.gpu > 600_000, "{policy:?} {result:?}");
    }
}

#[test]
fn arrivals_request_a_third_more_than_the_capacity() {
    let gpu_nodes = GpuNodes::new(&nodes()).unwrap();
    let list = sorted_pods(&pod_list(), &gpu_nodes);
    let arrival_order = arrivals(&list, &gpu_nodes, 1);
    let requested: u64 = arrival_order.iter().map(|pod| pod.shape.gpu_total()).sum();
    let capacity = gpu_nodes.capacity().gpu_milli;
    assert!(
        requested * 10 > capacity * 12 && requested * 10 <= capacity * 13 + 20_000,
        "{requested}"
    );
    assert_ne!(arrival_order, arrivals(&list, &gpu_nodes, 2));
    assert_eq!(arrival_order, arrivals(&list, &gpu_nodes, 1));
}

#[test]
fn the_gradient_keeps_whole_gpus_for_pods_that_need_them() {
    let mut gpu_nodes = GpuNodes::new(&nodes()[..1]).unwrap();
    let list = sorted_pods(&pod_list(), &gpu_nodes);
    let demand = Demand::from_pods(&list);
    let mut scorer = Scorer::new(Policy::Gradient, &gpu_nodes.nodes, demand, 0);
    let fractional_pod = list.iter().find(|pod| pod.shape.gpu_milli == 300).unwrap();
    for _ in 0..3 {
        let (node, gpus) = scorer.choose(&gpu_nodes.nodes, fractional_pod).unwrap();
        gpu_nodes.nodes[node].allocate(fractional_pod, &gpus);
        scorer.invalidate(node);
    }
    assert_eq!(gpu_nodes.nodes[0].gpus, [100, 1000, 1000, 1000]);
}

#[test]
fn moved_pods_are_all_placed_and_nodes_become_free() {
    let (mut gpu_nodes, placed, _) = pack(Policy::Gradient, 3);
    let count = placed.len();
    let mut remaining = remove_random_pods(&mut gpu_nodes, placed, 5);
    assert!(remaining.len() < count);
    let pods_before: Vec<String> = remaining.iter().map(|it| it.pod.id.clone()).collect();
    let result = defragment(&mut gpu_nodes, &mut remaining, 100);
    assert_amounts_add_up(&gpu_nodes, &remaining);
    assert_eq!(
        pods_before,
        remaining
            .iter()
            .map(|it| it.pod.id.clone())
            .collect::<Vec<_>>()
    );
    assert!(result.whole_after > result.whole_before, "{result:?}");
    let without_moves = defragment(&mut gpu_nodes, &mut remaining, 0);
    assert_eq!(
        (without_moves.moved, without_moves.whole_after),
        (0, without_moves.whole_before)
    );
}

fn pack_with_planner(
    settings: &Settings,
    seed: u64,
) -> (GpuNodes, Vec<PlacedPod>, InflationResult) {
    let mut gpu_nodes = GpuNodes::new(&nodes()).unwrap();
    let list = sorted_pods(&pod_list(), &gpu_nodes);
    let arrival_order = arrivals(&list, &gpu_nodes, seed);
    let (result, placed) = inflate_with_planner(&mut gpu_nodes, &arrival_order, settings);
    (gpu_nodes, placed, result)
}

#[test]
fn the_planner_of_real_fleets_packs_at_most_one_percent_worse_than_the_gradient() {
    let (mut planner_gpu, mut gradient_gpu) = (0, 0);
    for seed in 0..12 {
        let (gpu_nodes, placed, result) = pack_with_planner(&Settings::default(), seed);
        assert_amounts_add_up(&gpu_nodes, &placed);
        planner_gpu += result.gpu;
        let (_, _, gradient_result) = pack(Policy::Gradient, seed);
        gradient_gpu += gradient_result.gpu;
    }
    assert!(
        planner_gpu * 100 >= gradient_gpu * 99,
        "{planner_gpu} {gradient_gpu}"
    );
}

#[test]
fn the_planner_packs_the_same_pods_the_same_way() {
    let run = || pack_with_planner(&Settings::default(), 9);
    let ((_, first_placed, first), (_, second_placed, second)) = (run(), run());
    assert_eq!(first, second);
    let placements = |placed: &[PlacedPod]| -> Vec<(usize, Vec<usize>)> {
        placed.iter().map(|it| (it.node, it.gpus.clone())).collect()
    };
    assert_eq!(placements(&first_placed), placements(&second_placed));
}
