//! Protocol A: pods arrive in random order until they have requested 130 % of the GPUs, and none
//! leaves. The allocated part of the GPUs measures how well a policy packs.

use super::{
    fragmentation::Demand,
    policy::{Policy, Scorer},
    site::{Amounts, Pod, Sites},
};
use crate::{splitmix::SplitMix, trace::Workload};

/// Requests of all arrivals, in percent of the GPUs.
const REQUESTED: u64 = 130;
/// Requests at which the early figure is taken, in percent of the GPUs.
const EARLY: u64 = 95;

/// The result of one order of arrivals, in millionths of the GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inflated {
    pub gpu: u64,
    /// GPUs that were allocated when arrivals had requested 95 %.
    pub gpu_early: u64,
    pub cpu: u64,
    pub memory: u64,
    pub rejected: u64,
}

/// A pod with the node and the GPUs that it was placed on.
#[derive(Debug, Clone)]
pub struct Placed {
    pub pod: Pod,
    pub node: usize,
    pub gpus: Vec<usize>,
}

/// Returns the pods of a list, ordered by id.
pub fn pods(workload: &Workload, sites: &Sites) -> Vec<Pod> {
    let mut pods: Vec<Pod> = workload.jobs.iter().map(|job| sites.pod(job)).collect();
    pods.sort_by(|a, b| a.id.cmp(&b.id));
    pods
}

/// Returns the order of arrivals for a seed. The pods are shuffled, then drawn or dropped until
/// they request 130 % of the GPUs.
pub fn arrivals(sorted: &[Pod], sites: &Sites, seed: u64) -> Vec<Pod> {
    let mut random = SplitMix::new(seed);
    let mut order = sorted.to_vec();
    random.shuffle(&mut order);
    let target = sites.capacity().gpu_milli * REQUESTED / 100;
    let mut requested: u64 = order.iter().map(|pod| pod.shape.gpu_total()).sum();
    if requested <= target && !sorted.is_empty() && requested > 0 {
        loop {
            let pod = &sorted[random.below(sorted.len())];
            // The protocol counts the request per GPU, so the last pod may overshoot.
            if requested + pod.shape.gpu_milli > target {
                return order;
            }
            requested += pod.shape.gpu_total();
            order.push(pod.clone());
            if requested > target {
                return order;
            }
        }
    }
    while requested > target {
        let gone = order.remove(random.below(order.len()));
        requested -= gone.shape.gpu_total();
    }
    order
}

/// Places the pods one by one.
pub fn inflate(
    sites: &mut Sites,
    order: &[Pod],
    demand: &Demand,
    policy: Policy,
    seed: u64,
) -> (Inflated, Vec<Placed>) {
    let mut scorer = Scorer::new(policy, &sites.list, demand.clone(), seed);
    let mut tally = Tally::new(sites);
    let mut placed = Vec::new();
    for pod in order {
        let place = scorer.choose(&sites.list, pod);
        tally.offered(pod, place.is_some());
        if let Some((node, gpus)) = place {
            sites.list[node].take(pod, &gpus);
            scorer.changed(node);
            placed.push(Placed {
                pod: pod.clone(),
                node,
                gpus,
            });
        }
    }
    (tally.close(sites), placed)
}

/// Requested and allocated GPUs so far.
pub(super) struct Tally {
    capacity: Amounts,
    result: Inflated,
    requested: u64,
    given: u64,
    offered: u64,
    rejected: u64,
}

impl Tally {
    pub fn new(sites: &Sites) -> Self {
        Self {
            capacity: sites.capacity(),
            result: Inflated::default(),
            requested: 0,
            given: 0,
            offered: 0,
            rejected: 0,
        }
    }

    pub fn offered(&mut self, pod: &Pod, placed: bool) {
        let gpus = pod.shape.gpu_total();
        self.offered += 1;
        self.requested += gpus;
        if placed {
            self.given += gpus;
        } else {
            self.rejected += 1;
        }
        if self.requested <= self.capacity.gpu_milli * EARLY / 100 {
            self.result.gpu_early = millionths(self.given, self.capacity.gpu_milli);
        }
    }

    pub fn close(self, sites: &Sites) -> Inflated {
        let (free, capacity) = (sites.free(), self.capacity);
        Inflated {
            gpu: millionths(self.given, capacity.gpu_milli),
            cpu: millionths(capacity.cpu_milli - free.cpu_milli, capacity.cpu_milli),
            memory: millionths(capacity.memory_mib - free.memory_mib, capacity.memory_mib),
            rejected: millionths(self.rejected, self.offered),
            ..self.result
        }
    }
}

pub(crate) fn millionths(amount: u64, total: u64) -> u64 {
    let part = u128::from(amount) * 1_000_000 / u128::from(total.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
