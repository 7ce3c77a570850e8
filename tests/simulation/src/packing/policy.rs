//! Placement policies: those that packing papers compare, and the one of Hayward.
//!
//! Nodes are examined in the order of their ids. The best score wins, the first among equals. A
//! score depends only on the kind of pod and on the load of the node, so scores are cached.

use std::collections::BTreeMap;

use super::{
    fragmentation::Demand,
    gpu_node::{GpuNode, Pod, Shape, WHOLE_GPU_MILLI},
};
use crate::splitmix::SplitMix;

/// A version that no node has, so nothing is cached yet.
const NO_VERSION: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A random node with a GPU that fits.
    Random,
    FirstFit,
    /// The node with the least remaining CPU and GPU.
    BestFit,
    /// The node whose free space is least aligned with the pod.
    DotProduct,
    /// The node on which fragmentation grows least. This is the policy of Hayward.
    Gradient,
}

/// A possible placement: its score and its GPUs. A higher score is better.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ScoredPlacement {
    score: i64,
    gpus: Vec<usize>,
}

/// For one kind of pod: the version of each node, and the best placement on that version. The
/// placement is `None` if the pod does not fit.
type CachedPlacements = Vec<(u64, Option<ScoredPlacement>)>;

/// Chooses the node and the GPUs of each pod by a policy.
#[derive(Debug)]
pub struct Scorer {
    policy: Policy,
    demand: Demand,
    random: SplitMix,
    /// Changes of fragmentation within one step count as equal. Then the size and the order of
    /// nodes decide, so that pods fill the same nodes first and leave the others empty.
    score_step: u64,
    largest_cpu: u64,
    largest_gpus: u64,
    /// Version of each node. It grows with each change of the load.
    versions: Vec<u64>,
    /// Cached placements by kind of pod, which is its shape and its memory.
    cache_by_kind: BTreeMap<(Shape, u64), CachedPlacements>,
}

impl Scorer {
    pub fn new(policy: Policy, gpu_nodes: &[GpuNode], demand: Demand, seed: u64) -> Self {
        // One step is four hundredths of a GPU for each pod in the demand, in thousandths of a GPU.
        let score_step = 40 * demand.weight.max(1);
        Self {
            policy,
            random: SplitMix::new(seed),
            score_step,
            demand,
            largest_cpu: gpu_nodes
                .iter()
                .map(|gpu_node| gpu_node.cpu_milli)
                .max()
                .unwrap_or(1)
                .max(1),
            largest_gpus: gpu_nodes
                .iter()
                .map(|gpu_node| gpu_node.gpus.len() as u64)
                .max()
                .unwrap_or(1),
            versions: vec![0; gpu_nodes.len()],
            cache_by_kind: BTreeMap::new(),
        }
    }

    /// Returns the node and the GPUs for a pod, or `None` if it fits nowhere.
    pub fn choose(&mut self, gpu_nodes: &[GpuNode], pod: &Pod) -> Option<(usize, Vec<usize>)> {
        match self.policy {
            Policy::Random => self.choose_random(gpu_nodes, pod),
            Policy::FirstFit => {
                let node = gpu_nodes.iter().position(|gpu_node| gpu_node.fits(pod))?;
                Some((node, first_gpus(&gpu_nodes[node], &pod.shape)))
            }
            _ => self.choose_best(gpu_nodes, pod),
        }
    }

    fn choose_random(&mut self, gpu_nodes: &[GpuNode], pod: &Pod) -> Option<(usize, Vec<usize>)> {
        let candidates: Vec<usize> = (0..gpu_nodes.len())
            .filter(|node| gpu_nodes[*node].fits(pod))
            .collect();
        if candidates.is_empty() {
            return None;
        }
        let node = candidates[self.random.index_below(candidates.len())];
        let min_free = pod.shape.gpu_milli;
        let free = gpu_nodes[node]
            .gpus
            .iter()
            .enumerate()
            .filter(|(_, free)| **free >= min_free);
        let mut gpus: Vec<usize> = free.map(|(gpu, _)| gpu).collect();
        self.random.shuffle(&mut gpus);
        gpus.truncate(usize::try_from(pod.shape.gpu_count).unwrap_or(0));
        Some((node, gpus))
    }

    fn choose_best(&mut self, gpu_nodes: &[GpuNode], pod: &Pod) -> Option<(usize, Vec<usize>)> {
        let kind = (pod.shape, pod.memory_mib);
        let mut cached = self
            .cache_by_kind
            .remove(&kind)
            .unwrap_or_else(|| vec![(NO_VERSION, None); gpu_nodes.len()]);
        let mut best: Option<(i64, usize)> = None;
        for (node, (version, placement)) in cached.iter_mut().enumerate() {
            if *version != self.versions[node] {
                *version = self.versions[node];
                *placement = gpu_nodes[node]
                    .fits(pod)
                    .then(|| self.place_and_score(&gpu_nodes[node], pod));
            }
            if let Some(placement) = placement
                && best.is_none_or(|(score, _)| placement.score > score)
            {
                best = Some((placement.score, node));
            }
        }
        let chosen = best.and_then(|(_, node)| {
            let placement = cached[node].1.as_ref()?;
            Some((node, placement.gpus.clone()))
        });
        self.cache_by_kind.insert(kind, cached);
        chosen
    }

    /// Invalidates the cached placements of a node after its load changed.
    pub fn invalidate(&mut self, node: usize) {
        self.versions[node] += 1;
    }

    fn place_and_score(&self, gpu_node: &GpuNode, pod: &Pod) -> ScoredPlacement {
        let score = match self.policy {
            Policy::Gradient => return self.place_by_gradient(gpu_node, pod),
            Policy::BestFit => self.best_fit_score(gpu_node, pod),
            Policy::DotProduct => self.dot_product_score(gpu_node, &pod.shape),
            Policy::Random | Policy::FirstFit => 0,
        };
        ScoredPlacement {
            score,
            gpus: gpu_node.select_gpus(&pod.shape),
        }
    }

    fn place_by_gradient(&self, gpu_node: &GpuNode, pod: &Pod) -> ScoredPlacement {
        let before = self.demand.fragmentation(gpu_node);
        let options = if pod.shape.is_shared() {
            let candidates =
                (0..gpu_node.gpus.len()).filter(|gpu| gpu_node.gpus[*gpu] >= pod.shape.gpu_milli);
            candidates.map(|gpu| vec![gpu]).collect()
        } else {
            vec![gpu_node.select_gpus(&pod.shape)]
        };
        let scored = options.into_iter().map(|gpus| {
            let mut with_pod = gpu_node.clone();
            with_pod.allocate(pod, &gpus);
            let after = self.demand.fragmentation(&with_pod);
            // Euclidean division rounds down for negative values too.
            let steps =
                (i128::from(before) - i128::from(after)).div_euclid(i128::from(self.score_step));
            // Small nodes win among equals, because large nodes should stay free for pods that fit
            // nowhere else.
            let score = steps * (i128::from(self.largest_gpus) + 1) - gpu_node.gpus.len() as i128;
            let score = i64::try_from(score).expect("steps are few");
            ScoredPlacement { score, gpus }
        });
        // Among equal scores the first one wins.
        let best = scored.reduce(|best, next| if next.score > best.score { next } else { best });
        best.expect("a pod that fits has an option")
    }

    fn best_fit_score(&self, gpu_node: &GpuNode, pod: &Pod) -> i64 {
        let cpu = gpu_node.cpu_milli - pod.shape.cpu_milli;
        let gpu = gpu_node.free_gpu_milli() - pod.shape.gpu_total();
        score_from_halves(
            cpu,
            gpu,
            self.largest_cpu,
            self.largest_gpus * WHOLE_GPU_MILLI,
        )
    }

    fn dot_product_score(&self, gpu_node: &GpuNode, shape: &Shape) -> i64 {
        let (cpu, gpu) = (self.largest_cpu, self.largest_gpus * WHOLE_GPU_MILLI);
        let cpu_part = gpu_node.cpu_milli * shape.cpu_milli;
        let gpu_part = gpu_node.free_gpu_milli() * shape.gpu_total();
        score_from_halves(cpu_part, gpu_part, cpu * cpu, gpu * gpu)
    }
}

/// Returns 100 · (1 − ½·cpu/cpu_total − ½·gpu/gpu_total_milli), rounded down.
fn score_from_halves(cpu: u64, gpu: u64, cpu_total: u64, gpu_total_milli: u64) -> i64 {
    let (cpu_total, gpu_total_milli) = (i128::from(cpu_total), i128::from(gpu_total_milli));
    let denominator = 2 * cpu_total * gpu_total_milli;
    let numerator = i128::from(cpu) * gpu_total_milli + i128::from(gpu) * cpu_total;
    i64::try_from((100 * (denominator - numerator)).div_euclid(denominator)).unwrap_or(i64::MIN)
}

/// Returns the first GPUs that fit.
fn first_gpus(gpu_node: &GpuNode, shape: &Shape) -> Vec<usize> {
    let count = usize::try_from(shape.gpu_count).unwrap_or(0);
    let candidates = gpu_node
        .gpus
        .iter()
        .enumerate()
        .filter(|(_, free)| **free >= shape.gpu_milli.max(1));
    candidates.map(|(gpu, _)| gpu).take(count).collect()
}
