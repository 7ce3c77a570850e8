//! Protocol A: pods come in random order until they ask for 130 % of the gpus; none ever leaves.
//! How much of the gpus was given out tells how well a policy packs.

use super::{
    fragmentation::Demand,
    policy::{Policy, Scorer},
    site::{Pod, Sites},
};
use crate::{splitmix::SplitMix, trace::Workload};

/// What all arrivals ask for, in percent of the gpus.
const ASKED: u64 = 130;
/// The second place at which figures are taken.
const EARLY: u64 = 95;

/// What came of one order of arrivals; parts are in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inflated {
    pub gpu: u64,
    /// When arrivals had asked for 95 %.
    pub gpu_early: u64,
    pub cpu: u64,
    pub memory: u64,
    pub rejected: u64,
}

/// A pod that found its place.
#[derive(Debug, Clone)]
pub struct Placed {
    pub pod: Pod,
    pub node: usize,
    pub gpus: Vec<usize>,
}

/// The pods of a list by id.
pub fn pods(workload: &Workload, sites: &Sites) -> Vec<Pod> {
    let mut pods: Vec<Pod> = workload.jobs.iter().map(|job| sites.pod(job)).collect();
    pods.sort_by(|a, b| a.id.cmp(&b.id));
    pods
}

/// The order of arrivals for a seed: a shuffle, then pods drawn or dropped until the whole asks for
/// 130 % of the gpus.
pub fn arrivals(sorted: &[Pod], sites: &Sites, seed: u64) -> Vec<Pod> {
    let mut random = SplitMix::new(seed);
    let mut order = sorted.to_vec();
    random.shuffle(&mut order);
    let target = sites.capacity().gpu_milli * ASKED / 100;
    let mut asked: u64 = order.iter().map(|pod| pod.shape.gpu_total()).sum();
    if asked <= target && !sorted.is_empty() && asked > 0 {
        loop {
            let pod = &sorted[random.below(sorted.len())];
            // By what the pod takes of each gpu, as the protocol says: the last pod may overshoot.
            if asked + pod.shape.gpu_milli > target {
                return order;
            }
            asked += pod.shape.gpu_total();
            order.push(pod.clone());
            if asked > target {
                return order;
            }
        }
    }
    while asked > target {
        let gone = order.remove(random.below(order.len()));
        asked -= gone.shape.gpu_total();
    }
    order
}

/// Offers the pods one by one.
pub fn inflate(
    sites: &mut Sites,
    order: &[Pod],
    demand: &Demand,
    (policy, seed): (Policy, u64),
) -> (Inflated, Vec<Placed>) {
    let mut scorer = Scorer::new(policy, &sites.list, demand.clone(), seed);
    let capacity = sites.capacity();
    let early = capacity.gpu_milli * EARLY / 100;
    let mut result = Inflated::default();
    let (mut asked, mut given) = (0, 0);
    let mut placed = Vec::new();
    for pod in order {
        asked += pod.shape.gpu_total();
        if let Some((node, gpus)) = scorer.choose(&sites.list, pod) {
            sites.list[node].take(pod, &gpus);
            scorer.changed(node);
            given += pod.shape.gpu_total();
            placed.push(Placed {
                pod: pod.clone(),
                node,
                gpus,
            });
        }
        if asked <= early {
            result.gpu_early = millionths(given, capacity.gpu_milli);
        }
    }
    let free = sites.free();
    result.gpu = millionths(given, capacity.gpu_milli);
    result.cpu = millionths(capacity.cpu_milli - free.cpu_milli, capacity.cpu_milli);
    result.memory = millionths(capacity.memory_mib - free.memory_mib, capacity.memory_mib);
    result.rejected = millionths((order.len() - placed.len()) as u64, order.len() as u64);
    (result, placed)
}

pub(crate) fn millionths(amount: u64, of: u64) -> u64 {
    let part = u128::from(amount) * 1_000_000 / u128::from(of.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
