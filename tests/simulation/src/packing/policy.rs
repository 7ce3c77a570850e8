//! Placement policies: those that packing papers compare, and ours.
//!
//! Nodes are examined in the order of their ids. The best score wins, the first among equals. The
//! score depends only on the node, so it is cached for each kind of pod.

use std::collections::BTreeMap;

use super::{
    fragmentation::Demand,
    site::{Pod, Shape, Site, WHOLE},
};
use crate::splitmix::SplitMix;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A random node with a GPU that fits.
    Random,
    FirstFit,
    /// The node with the least remaining CPU and GPU.
    BestFit,
    /// The node whose free space is least aligned with the pod.
    DotProduct,
    /// The node on which fragmentation grows least. This is our policy.
    Gradient,
}

/// A possible placement: its score and its GPUs. A higher score is better.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offer {
    score: i64,
    gpus: Vec<usize>,
}

/// Offers of all nodes for one kind of pod, each with the version of its node.
type Offers = Vec<(u64, Option<Offer>)>;

#[derive(Debug)]
pub struct Scorer {
    policy: Policy,
    demand: Demand,
    random: SplitMix,
    /// Changes of fragmentation within one step count as equal. Then the size and the order of
    /// nodes decide, so that pods fill the fleet from one side.
    step: u64,
    largest_cpu: u64,
    largest_gpus: u64,
    versions: Vec<u64>,
    /// Cached offers by kind of pod, which is its shape and its memory.
    kept: BTreeMap<(Shape, u64), Offers>,
}

impl Scorer {
    pub fn new(policy: Policy, sites: &[Site], demand: Demand, seed: u64) -> Self {
        // One step is four hundredths of a GPU for each pod in the demand.
        let step = 40 * demand.weight.max(1);
        Self {
            policy,
            random: SplitMix::new(seed),
            step,
            demand,
            largest_cpu: sites
                .iter()
                .map(|site| site.cpu_milli)
                .max()
                .unwrap_or(1)
                .max(1),
            largest_gpus: sites
                .iter()
                .map(|site| site.gpus.len() as u64)
                .max()
                .unwrap_or(1),
            versions: vec![0; sites.len()],
            kept: BTreeMap::new(),
        }
    }

    /// Returns the node and the GPUs for a pod, or `None` if it fits nowhere.
    pub fn choose(&mut self, sites: &[Site], pod: &Pod) -> Option<(usize, Vec<usize>)> {
        match self.policy {
            Policy::Random => self.choose_any(sites, pod),
            Policy::FirstFit => {
                let node = sites.iter().position(|site| site.fits(pod))?;
                Some((node, first_gpus(&sites[node], &pod.shape)))
            }
            _ => self.choose_best(sites, pod),
        }
    }

    fn choose_any(&mut self, sites: &[Site], pod: &Pod) -> Option<(usize, Vec<usize>)> {
        let able: Vec<usize> = (0..sites.len())
            .filter(|node| sites[*node].fits(pod))
            .collect();
        if able.is_empty() {
            return None;
        }
        let node = able[self.random.below(able.len())];
        let least = pod.shape.gpu_milli;
        let free = sites[node]
            .gpus
            .iter()
            .enumerate()
            .filter(|(_, free)| **free >= least);
        let mut gpus: Vec<usize> = free.map(|(at, _)| at).collect();
        self.random.shuffle(&mut gpus);
        gpus.truncate(usize::try_from(pod.shape.gpu_count).unwrap_or(0));
        Some((node, gpus))
    }

    fn choose_best(&mut self, sites: &[Site], pod: &Pod) -> Option<(usize, Vec<usize>)> {
        let kind = (pod.shape, pod.memory_mib);
        let mut offers = self
            .kept
            .remove(&kind)
            .unwrap_or_else(|| vec![(u64::MAX, None); sites.len()]);
        let mut best: Option<(i64, usize)> = None;
        for (node, (version, offer)) in offers.iter_mut().enumerate() {
            if *version != self.versions[node] {
                *version = self.versions[node];
                *offer = sites[node].fits(pod).then(|| self.offer(&sites[node], pod));
            }
            if let Some(offer) = offer
                && best.is_none_or(|(score, _)| offer.score > score)
            {
                best = Some((offer.score, node));
            }
        }
        let chosen = best.and_then(|(_, node)| {
            let offer = offers[node].1.as_ref()?;
            Some((node, offer.gpus.clone()))
        });
        self.kept.insert(kind, offers);
        chosen
    }

    /// Invalidates the cached offers of a node after its load changed.
    pub fn changed(&mut self, node: usize) {
        self.versions[node] += 1;
    }

    fn offer(&self, site: &Site, pod: &Pod) -> Offer {
        let score = match self.policy {
            Policy::Gradient => return self.gradient(site, pod),
            Policy::BestFit => self.best_fit(site, pod),
            Policy::DotProduct => self.dot_product(site, &pod.shape),
            Policy::Random | Policy::FirstFit => 0,
        };
        Offer {
            score,
            gpus: site.usual_gpus(&pod.shape),
        }
    }

    fn gradient(&self, site: &Site, pod: &Pod) -> Offer {
        let before = self.demand.fragmentation(site);
        let options = if pod.shape.is_shared() {
            let able = (0..site.gpus.len()).filter(|at| site.gpus[*at] >= pod.shape.gpu_milli);
            able.map(|at| vec![at]).collect()
        } else {
            vec![site.usual_gpus(&pod.shape)]
        };
        let scored = options.into_iter().map(|gpus| {
            let mut then = site.clone();
            then.take(pod, &gpus);
            let after = self.demand.fragmentation(&then);
            // Euclidean division rounds down for negative values too.
            let steps = (i128::from(before) - i128::from(after)).div_euclid(i128::from(self.step));
            // Small nodes win among equals, because large nodes should stay free for pods that fit
            // nowhere else.
            // else.
            let score = steps * (i128::from(self.largest_gpus) + 1) - site.gpus.len() as i128;
            let score = i64::try_from(score).expect("steps are few");
            Offer { score, gpus }
        });
        // Among equal scores the first one wins.
        let best = scored.reduce(|best, next| if next.score > best.score { next } else { best });
        best.expect("a pod that fits has an option")
    }

    fn best_fit(&self, site: &Site, pod: &Pod) -> i64 {
        let cpu = site.cpu_milli - pod.shape.cpu_milli;
        let gpu = site.gpu_free() - pod.shape.gpu_total();
        halves(cpu, gpu, self.largest_cpu, self.largest_gpus * WHOLE)
    }

    fn dot_product(&self, site: &Site, shape: &Shape) -> i64 {
        let (cpu, gpu) = (self.largest_cpu, self.largest_gpus * WHOLE);
        let cpu_part = site.cpu_milli * shape.cpu_milli;
        let gpu_part = site.gpu_free() * shape.gpu_total();
        halves(cpu_part, gpu_part, cpu * cpu, gpu * gpu)
    }
}

/// Returns 100 · (1 − ½·cpu/cpu_whole − ½·gpu/gpu_whole), rounded down.
fn halves(cpu: u64, gpu: u64, cpu_whole: u64, gpu_whole: u64) -> i64 {
    let (cpu_whole, gpu_whole) = (i128::from(cpu_whole), i128::from(gpu_whole));
    let whole = 2 * cpu_whole * gpu_whole;
    let part = i128::from(cpu) * gpu_whole + i128::from(gpu) * cpu_whole;
    i64::try_from((100 * (whole - part)).div_euclid(whole)).unwrap_or(i64::MIN)
}

/// Returns the first GPUs that fit.
fn first_gpus(site: &Site, shape: &Shape) -> Vec<usize> {
    let count = usize::try_from(shape.gpu_count).unwrap_or(0);
    let able = site
        .gpus
        .iter()
        .enumerate()
        .filter(|(_, free)| **free >= shape.gpu_milli.max(1));
    able.map(|(at, _)| at).take(count).collect()
}
