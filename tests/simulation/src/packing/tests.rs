use super::{
    defrag::{defragment, thin_out},
    inflation::{Inflated, Placed, arrivals, inflate, pods},
    planned::{Settings, inflate_planned},
    *,
};
use crate::trace::{Job, Need, Node, Workload};

fn nodes() -> Vec<Node> {
    let node = |at: usize| Node {
        id: format!("{at:02}"),
        pool: String::new(),
        cpu_milli: 16_000,
        memory_mib: 1000,
        gpu_count: if at < 6 { 4 } else { 2 },
        gpu_model: if at.is_multiple_of(2) { "A" } else { "B" }.to_owned(),
    };
    (0..10).map(node).collect()
}

/// Returns a list with shares, single GPUs and pairs in rotation.
fn list() -> Workload {
    let mut workload = Workload::default();
    let kinds = [(1, 300), (1, 1000), (2, 1000), (0, 0), (1, 700)];
    for at in 0..30_usize {
        let (gpu_count, gpu_milli) = kinds[at % kinds.len()];
        let job = Job {
            id: format!("{at:03}"),
            user: workload.users.index("u"),
            class: workload.classes.index("c"),
            queue: None,
            submit_s: None,
            runtime_s: None,
            limit_s: None,
            tasks: 1,
            need: Need {
                cpu_milli: 1000,
                memory_mib: 10,
                gpu_count,
                gpu_milli,
                gpu_models: if at.is_multiple_of(7) {
                    vec!["A".to_owned()]
                } else {
                    Vec::new()
                },
                ..Need::default()
            },
        };
        workload.jobs.push(job);
    }
    workload
}

fn packed(policy: Policy, seed: u64) -> (Sites, Vec<Placed>, Inflated) {
    let mut sites = Sites::new(&nodes()).unwrap();
    let list = pods(&list(), &sites);
    let order = arrivals(&list, &sites, seed);
    let (result, placed) = inflate(&mut sites, &order, &Demand::from_pods(&list), policy, seed);
    (sites, placed, result)
}

const ALL: [Policy; 5] = [
    Policy::Random,
    Policy::FirstFit,
    Policy::BestFit,
    Policy::DotProduct,
    Policy::Gradient,
];

/// Checks that free and placed amounts add up on every GPU.
fn adds_up(sites: &Sites, placed: &[Placed]) {
    let mut free = sites.empty.clone();
    for it in placed {
        assert_ne!(
            sites.empty[it.node].model & it.pod.shape.models,
            0,
            "an accepted model"
        );
        assert_eq!(it.gpus.len() as u64, it.pod.shape.gpu_count);
        free[it.node].take(&it.pod, &it.gpus);
    }
    assert_eq!(free, sites.list);
}

#[test]
fn no_gpu_is_allocated_twice() {
    for policy in ALL {
        let (sites, placed, result) = packed(policy, 7);
        adds_up(&sites, &placed);
        assert!(result.gpu > 600_000, "{policy:?} {result:?}");
    }
}

#[test]
fn arrivals_request_a_third_more_than_the_capacity() {
    let sites = Sites::new(&nodes()).unwrap();
    let list = pods(&list(), &sites);
    let order = arrivals(&list, &sites, 1);
    let requested: u64 = order.iter().map(|pod| pod.shape.gpu_total()).sum();
    let capacity = sites.capacity().gpu_milli;
    assert!(
        requested * 10 > capacity * 12 && requested * 10 <= capacity * 13 + 20_000,
        "{requested}"
    );
    assert_ne!(order, arrivals(&list, &sites, 2));
    assert_eq!(order, arrivals(&list, &sites, 1));
}

#[test]
fn the_gradient_keeps_whole_gpus_for_pods_that_need_them() {
    let mut sites = Sites::new(&nodes()[..1]).unwrap();
    let list = pods(&list(), &sites);
    let demand = Demand::from_pods(&list);
    let mut scorer = Scorer::new(Policy::Gradient, &sites.list, demand, 0);
    let share = list.iter().find(|pod| pod.shape.gpu_milli == 300).unwrap();
    for _ in 0..3 {
        let (node, gpus) = scorer.choose(&sites.list, share).unwrap();
        sites.list[node].take(share, &gpus);
        scorer.changed(node);
    }
    assert_eq!(sites.list[0].gpus, [100, 1000, 1000, 1000]);
}

#[test]
fn moved_pods_are_all_placed_and_nodes_become_free() {
    let (mut sites, placed, _) = packed(Policy::Gradient, 3);
    let count = placed.len();
    let mut left = thin_out(&mut sites, placed, 5);
    assert!(left.len() < count);
    let pods_before: Vec<String> = left.iter().map(|it| it.pod.id.clone()).collect();
    let result = defragment(&mut sites, &mut left, 100);
    adds_up(&sites, &left);
    assert_eq!(
        pods_before,
        left.iter().map(|it| it.pod.id.clone()).collect::<Vec<_>>()
    );
    assert!(result.whole_after > result.whole_before, "{result:?}");
    let nothing = defragment(&mut sites, &mut left, 0);
    assert_eq!(
        (nothing.moved, nothing.whole_after),
        (0, nothing.whole_before)
    );
}

fn planned(settings: &Settings, seed: u64) -> (Sites, Vec<Placed>, Inflated) {
    let mut sites = Sites::new(&nodes()).unwrap();
    let list = pods(&list(), &sites);
    let order = arrivals(&list, &sites, seed);
    let (result, placed) = inflate_planned(&mut sites, &order, settings);
    (sites, placed, result)
}

#[test]
fn the_planner_of_real_fleets_packs_gpus_as_well() {
    let (mut ours, mut model) = (0, 0);
    for seed in 0..12 {
        let (sites, placed, result) = planned(&Settings::default(), seed);
        adds_up(&sites, &placed);
        ours += result.gpu;
        model += packed(Policy::Gradient, seed).2.gpu;
    }
    assert!(ours * 100 >= model * 99, "{ours} {model}");
}

#[test]
fn the_planner_packs_the_same_pods_the_same_way() {
    let run = || planned(&Settings::default(), 9);
    let ((_, one, first), (_, two, second)) = (run(), run());
    assert_eq!(first, second);
    let places = |placed: &[Placed]| -> Vec<(usize, Vec<usize>)> {
        placed.iter().map(|it| (it.node, it.gpus.clone())).collect()
    };
    assert_eq!(places(&one), places(&two));
}
