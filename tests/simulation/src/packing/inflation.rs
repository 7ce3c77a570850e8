//! Inflation (protocol A): pods arrive in random order until they have requested 130 % of the GPUs,
//! and none leaves. The allocated part of the GPUs measures how well a policy packs.

use super::{
    fragmentation::Demand,
    gpu_node::{GpuNodes, Pod, ResourceTotals},
    policy::{Policy, Scorer},
};
use crate::{splitmix::SplitMix, trace::Workload};

/// Requests of all arrivals, in percent of the GPUs.
const REQUESTED_PERCENT: u64 = 130;
/// Requests at which the early figure is taken, in percent of the GPUs.
const EARLY_PERCENT: u64 = 95;

/// The result of one order of arrivals. All figures are in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InflationResult {
    /// Allocated part of the GPUs after all arrivals.
    pub gpu: u64,
    /// Allocated part of the GPUs when the arrivals had requested 95 % of them.
    pub gpu_early: u64,
    /// Allocated part of the CPU.
    pub cpu: u64,
    /// Allocated part of the memory.
    pub memory: u64,
    /// Part of the pods that found no node.
    pub rejected: u64,
}

/// A pod with the node and the GPUs that it was placed on.
#[derive(Debug, Clone)]
pub struct PlacedPod {
    pub pod: Pod,
    pub node: usize,
    pub gpus: Vec<usize>,
}

/// Returns the pods of a list, ordered by id.
pub fn sorted_pods(workload: &Workload, gpu_nodes: &GpuNodes) -> Vec<Pod> {
    let mut pods: Vec<Pod> = workload
        .jobs
        .iter()
        .map(|job| gpu_nodes.to_pod(job))
        .collect();
    pods.sort_by(|first, second| first.id.cmp(&second.id));
    pods
}

/// Returns the order of arrivals for a seed. The pods are shuffled. Then random pods are added or
/// removed until all pods together request 130 % of the GPUs.
pub fn arrivals(sorted: &[Pod], gpu_nodes: &GpuNodes, seed: u64) -> Vec<Pod> {
    let mut random = SplitMix::new(seed);
    let mut arrival_order = sorted.to_vec();
    random.shuffle(&mut arrival_order);
    let target = gpu_nodes.capacity().gpu_milli * REQUESTED_PERCENT / 100;
    let mut requested: u64 = arrival_order.iter().map(|pod| pod.shape.gpu_total()).sum();
    if requested <= target && !sorted.is_empty() && requested > 0 {
        loop {
            let pod = &sorted[random.index_below(sorted.len())];
            // The protocol counts the request per GPU, so the last pod may overshoot.
            if requested + pod.shape.gpu_milli > target {
                return arrival_order;
            }
            requested += pod.shape.gpu_total();
            arrival_order.push(pod.clone());
            if requested > target {
                return arrival_order;
            }
        }
    }
    while requested > target {
        let removed = arrival_order.remove(random.index_below(arrival_order.len()));
        requested -= removed.shape.gpu_total();
    }
    arrival_order
}

/// Places the pods one by one in the order of arrival.
pub fn inflate(
    gpu_nodes: &mut GpuNodes,
    arrival_order: &[Pod],
    demand: &Demand,
    policy: Policy,
    seed: u64,
) -> (InflationResult, Vec<PlacedPod>) {
    let mut scorer = Scorer::new(policy, &gpu_nodes.nodes, demand.clone(), seed);
    let mut tally = Tally::new(gpu_nodes);
    let mut placed = Vec::new();
    for pod in arrival_order {
        let placement = scorer.choose(&gpu_nodes.nodes, pod);
        tally.record_arrival(pod, placement.is_some());
        if let Some((node, gpus)) = placement {
            gpu_nodes.nodes[node].allocate(pod, &gpus);
            scorer.invalidate(node);
            placed.push(PlacedPod {
                pod: pod.clone(),
                node,
                gpus,
            });
        }
    }
    (tally.close(gpu_nodes), placed)
}

/// Requested and allocated GPUs so far, in thousandths of a GPU.
pub(super) struct Tally {
    capacity: ResourceTotals,
    result: InflationResult,
    requested: u64,
    allocated: u64,
    arrived: u64,
    rejected: u64,
}

impl Tally {
    pub fn new(gpu_nodes: &GpuNodes) -> Self {
        Self {
            capacity: gpu_nodes.capacity(),
            result: InflationResult::default(),
            requested: 0,
            allocated: 0,
            arrived: 0,
            rejected: 0,
        }
    }

    pub fn record_arrival(&mut self, pod: &Pod, placed: bool) {
        let gpus = pod.shape.gpu_total();
        self.arrived += 1;
        self.requested += gpus;
        if placed {
            self.allocated += gpus;
        } else {
            self.rejected += 1;
        }
        if self.requested <= self.capacity.gpu_milli * EARLY_PERCENT / 100 {
            self.result.gpu_early = millionths(self.allocated, self.capacity.gpu_milli);
        }
    }

    pub fn close(self, gpu_nodes: &GpuNodes) -> InflationResult {
        let (free, capacity) = (gpu_nodes.free(), self.capacity);
        InflationResult {
            gpu: millionths(self.allocated, capacity.gpu_milli),
            cpu: millionths(capacity.cpu_milli - free.cpu_milli, capacity.cpu_milli),
            memory: millionths(capacity.memory_mib - free.memory_mib, capacity.memory_mib),
            rejected: millionths(self.rejected, self.arrived),
            ..self.result
        }
    }
}

pub(crate) fn millionths(amount: u64, total: u64) -> u64 {
    let millionths = u128::from(amount) * 1_000_000 / u128::from(total.max(1));
    u64::try_from(millionths).unwrap_or(u64::MAX)
}
