//! Placement in pools with GPUs: fragmentation gradient descent (Weng et al., ATC '23).
//!
//! A node is fragmented for a process size by the free GPU space that such a process could not use.
//! The fragmentation of the node is the sum over all demanded sizes, each weighted by the number of
//! wanted processes. A process goes to the node where it increases fragmentation least.
//! All arithmetic uses integers, and nodes with equal free space share one score.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hayward_vocabulary::Size;

use crate::{
    ids::{NodeIx, PoolIx, TypedVec, WorkIx},
    index::node_space::NodeSpace,
    input::snapshot::GPU_MILLI,
    state::RoundState,
};

/// Percentage of the demanded processes that the considered sizes cover. Rarer sizes are ignored.
const COVERED_PERCENT: u64 = 95;
/// Maximum number of sizes that are considered.
const MAX_SIZES: usize = 64;
/// Resolution of scores, in thousandths of a GPU per likely process. Scores within one step are
/// equal. Node size and name then decide, so that the fleet fills from one side.
const SCORE_STEP: u64 = 40;

/// A process size that is likely in demand. Memory is the mean over the processes of this size.
#[derive(Debug)]
struct LikelySize {
    cpu_milli: u64,
    gpu_milli: u64,
    memory_bytes: u64,
    /// Number of wanted processes.
    weight: u64,
}

impl LikelySize {
    /// Returns the GPU space of a node that such a process could not use, in thousandths of a GPU.
    /// `free` is the free GPU space of the node.
    fn unusable_gpu_milli(&self, space: &NodeSpace, free: u64) -> u64 {
        let fits = space.size.cpu_milli >= self.cpu_milli
            && space.size.memory_bytes >= self.memory_bytes
            && space.count_fitting_gpus(self.gpu_milli) > 0;
        if self.gpu_milli == 0 || !fits {
            return free;
        }
        let least = self.gpu_milli.min(GPU_MILLI);
        space.gpus.iter().filter(|free| **free < least).sum()
    }
}

/// Likely process sizes, most wanted first.
#[derive(Debug)]
struct DemandMix {
    likely: Vec<LikelySize>,
    /// Sum of the weights.
    weight: u64,
}

impl DemandMix {
    fn new(state: &RoundState) -> Self {
        // Number of processes and sum of their memory, by GPU and CPU.
        let mut sums: BTreeMap<(u64, u64), (u64, u128)> = BTreeMap::new();
        for (size, wanted) in state.derived.demand_by_shape.sizes(state) {
            let key = (size.gpu_milli, size.cpu_milli);
            let (count_sum, memory_sum) = sums.entry(key).or_default();
            let count = u64::try_from(wanted).unwrap_or(u64::MAX);
            *count_sum = count_sum.saturating_add(count);
            *memory_sum += wanted * u128::from(size.memory_bytes);
        }
        let mut likely: Vec<LikelySize> = sums
            .into_iter()
            .map(|((gpu_milli, cpu_milli), (weight, memory))| LikelySize {
                cpu_milli,
                gpu_milli,
                memory_bytes: u64::try_from(memory / u128::from(weight)).unwrap_or(u64::MAX),
                weight,
            })
            .collect();
        // The sort is stable, so the smaller of two equally wanted sizes comes first.
        likely.sort_by_key(|likely_size| Reverse(likely_size.weight));
        let total: u64 = likely.iter().map(|likely_size| likely_size.weight).sum();
        let mut weight = 0;
        likely.retain(|likely_size| {
            let is_covered = weight * 100 < total * COVERED_PERCENT;
            weight += if is_covered { likely_size.weight } else { 0 };
            is_covered
        });
        likely.truncate(MAX_SIZES);
        let weight = likely.iter().map(|likely_size| likely_size.weight).sum();
        Self { likely, weight }
    }

    /// Returns the fragmentation of a node, summed over the likely sizes.
    fn fragmentation(&self, space: &NodeSpace) -> i128 {
        let free = space.gpus.iter().sum();
        let weighted_loss = |likely_size: &LikelySize| {
            let unusable = likely_size.unusable_gpu_milli(space, free);
            i128::from(unusable) * i128::from(likely_size.weight)
        };
        self.likely.iter().map(weighted_loss).sum()
    }

    /// Returns the score of placing a process on a node. Higher is better, and `None` means that it
    /// does not fit. `max_gpus` is the number of GPUs of the largest node. Small nodes win ties,
    /// because only large nodes can take large processes.
    fn score(&self, space: &NodeSpace, quanta: u64, size: &Size, max_gpus: usize) -> Option<i128> {
        if space.count_fitting(quanta, size) == 0 {
            return None;
        }
        let mut after = space.clone();
        after.take(quanta, size, &space.choose_gpus(size.gpu_milli));
        let gain = self.fragmentation(space) - self.fragmentation(&after);
        let steps = gain.div_euclid(i128::from(SCORE_STEP * self.weight.max(1)));
        Some(steps * (max_gpus as i128 + 1) - space.gpus.len() as i128)
    }
}

/// Sort key of a node: best score, then smallest hole, then name.
type RankKey = (Reverse<i128>, u64, NodeIx);

/// Quanta and size of one process.
#[derive(Clone, Copy)]
struct ProcessSize<'a> {
    quanta: u64,
    size: &'a Size,
}

/// Ranked nodes of one pool for processes of one size.
#[derive(Default)]
struct Ranking {
    ranked: BTreeSet<RankKey>,
    by_node: BTreeMap<NodeIx, RankKey>,
    /// Scores by free space, so that equal nodes are scored once.
    scores: BTreeMap<NodeSpace, Option<i128>>,
    /// Number of entries of `changed` that are already applied.
    applied: usize,
}

/// GPU packing of one placement pass.
pub(crate) struct GpuPacking<'a> {
    mix: DemandMix,
    /// Usable nodes by pool. The list is empty for pools without GPUs.
    pools: TypedVec<PoolIx, Vec<NodeIx>>,
    /// Number of GPUs of the largest node.
    max_gpus: usize,
    rankings: BTreeMap<(PoolIx, u64, &'a Size), Ranking>,
    /// Nodes whose free space changed in this pass, in order.
    changed: Vec<NodeIx>,
}

impl<'a> GpuPacking<'a> {
    /// Prepares GPU packing. Returns `None` if the setting is off, no work wants GPUs, or no node
    /// of the tree has any.
    pub fn open(
        state: &RoundState<'a>,
        tree: Option<PoolIx>,
        is_usable: impl Fn(NodeIx) -> bool,
    ) -> Option<Self> {
        let mut pools = tree.into_iter().flat_map(|tree| state.forest.subtree(tree));
        if !pools.any(|pool| state.index.has_gpus(*pool)) {
            return None;
        }
        let mut sizes = state.derived.demand_by_shape.sizes(state);
        if !state.settings.pack_gpus || !sizes.any(|(size, _)| size.gpu_milli > 0) {
            return None;
        }
        let mut pools: TypedVec<PoolIx, Vec<NodeIx>> =
            TypedVec::filled(Vec::new(), state.forest.len());
        let mut max_gpus_of: TypedVec<PoolIx, usize> = TypedVec::filled(0, pools.len());
        for node in state.index.gpu_pool_nodes.iter().copied() {
            let node_state = &state.nodes[node];
            if let Some(pool) = node_state
                .pool
                .filter(|_| node_state.is_schedulable() && is_usable(node))
            {
                pools[pool].push(node);
                max_gpus_of[pool] = max_gpus_of[pool].max(node_state.free.gpus.len());
            }
        }
        for (pool, max_gpus) in pools.iter_mut().zip(&max_gpus_of) {
            if *max_gpus == 0 {
                pool.clear();
            }
        }
        let max_gpus = max_gpus_of.iter().copied().max().unwrap_or(0);
        (max_gpus > 0).then(|| Self {
            mix: DemandMix::new(state),
            pools,
            max_gpus,
            rankings: BTreeMap::new(),
            changed: Vec::new(),
        })
    }

    pub fn covers(&self, pool: PoolIx) -> bool {
        !self.pools[pool].is_empty()
    }

    /// Records that the free space of a node changed.
    pub fn record_change(&mut self, node: NodeIx) {
        self.changed.push(node);
    }

    /// Returns true if one process of the work fits on no node of the pool. Call it after
    /// [`Self::best_node`].
    pub fn is_full(&self, state: &RoundState<'a>, work: WorkIx, pool: PoolIx) -> bool {
        let key = (pool, state.work[work].process_quanta, state.size(work));
        let ranking = self.rankings.get(&key);
        ranking.is_some_and(|ranking| ranking.ranked.is_empty())
    }

    /// Returns the best node of the pool for one process, among those that `is_suitable` admits.
    pub fn best_node(
        &mut self,
        state: &RoundState<'a>,
        work: WorkIx,
        pool: PoolIx,
        is_suitable: impl Fn(NodeIx) -> bool,
    ) -> Option<NodeIx> {
        let (quanta, size) = (state.work[work].process_quanta, state.size(work));
        let key = (pool, quanta, size);
        let is_new = !self.rankings.contains_key(&key);
        let ranking = self.rankings.entry(key).or_default();
        let nodes_to_rank = if is_new {
            &self.pools[pool]
        } else {
            &self.changed[ranking.applied..]
        };
        for node in nodes_to_rank {
            let node_state = &state.nodes[*node];
            if node_state.pool == Some(pool) {
                let (mix, max_gpus) = (&self.mix, self.max_gpus);
                let process = ProcessSize { quanta, size };
                ranking.update(*node, &node_state.free, process, |space| {
                    mix.score(space, quanta, size, max_gpus)
                });
            }
        }
        ranking.applied = self.changed.len();
        let nodes = ranking.ranked.iter().map(|(_, _, node)| *node);
        nodes.into_iter().find(|node| is_suitable(*node))
    }
}

impl Ranking {
    /// Ranks the node again by its present free space.
    fn update(
        &mut self,
        node: NodeIx,
        space: &NodeSpace,
        process: ProcessSize,
        score: impl Fn(&NodeSpace) -> Option<i128>,
    ) {
        if let Some(old) = self.by_node.remove(&node) {
            self.ranked.remove(&old);
        }
        // Most nodes are full, and this check is cheaper than the lookup of the score.
        if space.count_fitting(process.quanta, process.size) == 0 {
            return;
        }
        let score = match self.scores.get(space) {
            Some(score) => *score,
            None => *self.scores.entry(space.clone()).or_insert(score(space)),
        };
        if let Some(score) = score {
            let key = (Reverse(score), space.quanta, node);
            self.ranked.insert(key);
            self.by_node.insert(node, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SnapshotDelta, index::FleetIndex, state::RoundCache, tests::fixture::Fixture};

    /// Builds demand from the CPU, the GPUs and the weight of each likely size.
    fn demand_mix(likely: &[(u64, u64, u64)]) -> DemandMix {
        let likely: Vec<LikelySize> = likely
            .iter()
            .map(|(cpu_milli, gpu_milli, weight)| LikelySize {
                cpu_milli: *cpu_milli,
                gpu_milli: *gpu_milli,
                memory_bytes: 0,
                weight: *weight,
            })
            .collect();
        let weight = likely.iter().map(|likely_size| likely_size.weight).sum();
        DemandMix { likely, weight }
    }

    fn space(cpu_milli: u64, gpus: &[u64]) -> NodeSpace {
        let size = Size {
            cpu_milli,
            gpu_milli: gpus.iter().sum(),
            ..Size::default()
        };
        NodeSpace {
            quanta: 8,
            size,
            gpus: gpus.to_vec(),
        }
    }

    #[test]
    fn withdrawn_work_does_not_count_as_demand() {
        let mut fixture = Fixture::eager();
        let staying_job = fixture.job("stays", "a", 1);
        (staying_job.size.gpu_milli, staying_job.max_processes) = (500, 1);
        fixture.job("goes", "a", 1).size.gpu_milli = 1_000;
        let (mut index, mut cache) = (FleetIndex::default(), RoundCache::default());
        index.apply(&fixture.snapshot, &SnapshotDelta::everything());
        let mut before = RoundState::open(&mut cache, &index, &fixture.snapshot);
        before.refresh_derived();
        before.close(&mut cache, crate::state::Needy::default());
        fixture.snapshot.demand.remove("goes");
        let delta = SnapshotDelta::for_work(&fixture.snapshot, ["goes".parse().unwrap()]);
        index.apply(&fixture.snapshot, &delta);
        let mut state = RoundState::open(&mut cache, &index, &fixture.snapshot);
        state.refresh_derived();
        let likely = DemandMix::new(&state).likely;
        let gpus: Vec<u64> = likely
            .iter()
            .map(|likely_size| likely_size.gpu_milli)
            .collect();
        assert_eq!(gpus, [500]);
    }

    #[test]
    fn fragmentation_counts_free_gpu_that_likely_processes_cannot_use() {
        let mix = demand_mix(&[(1, 500, 2), (1, 1_000, 1), (9, 0, 1)]);
        // The two processes of half a GPU cannot use 300 thousandths. The process of a whole GPU
        // can use only the free GPU. The last process needs no GPU.
        let split = space(8, &[300, 1_000]);
        assert_eq!(mix.fragmentation(&split), 2 * 300 + 300 + 1_300);
        // Without free CPU no process can use the GPUs.
        assert_eq!(mix.fragmentation(&space(0, &[300, 1_000])), 4 * 1_300);
        assert_eq!(mix.fragmentation(&space(8, &[0, 0])), 0);
    }

    #[test]
    fn a_gpu_already_in_use_scores_higher_for_a_fraction_of_a_gpu() {
        let mix = demand_mix(&[(1, 500, 1), (1, 1_000, 1)]);
        let half_gpu = Size {
            cpu_milli: 1,
            gpu_milli: 500,
            ..Size::default()
        };
        let score = |gpus: &[u64]| mix.score(&space(8, gpus), 1, &half_gpu, 2);
        assert!(score(&[500, 1_000]) > score(&[1_000, 1_000]));
        assert_eq!(score(&[400, 400]), None);
        // A process without GPUs prefers a node without GPUs.
        let without_gpu = Size {
            cpu_milli: 8,
            ..Size::default()
        };
        let score = |gpus: &[u64]| mix.score(&space(8, gpus), 1, &without_gpu, 2);
        assert!(score(&[]) > score(&[1_000, 1_000]));
    }
}
