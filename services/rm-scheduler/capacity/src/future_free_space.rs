//! Future free space of nodes: the space that remains when some of the allocations have left.
//! Preemption computes it after all vacated allocations have left, and gang reservations after all
//! jobs have ended.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::GPU_MILLI;
use hayward_vocabulary::WorkKind;

use crate::{
    resource_vec::{GPU, Vector, add, subtract},
    round_state::{Placed, RoundState},
};

/// Allocations and new placements by node.
pub(crate) struct Occupancy {
    /// Indices of the allocations on each node.
    pub by_node: BTreeMap<usize, Vec<usize>>,
    /// Indices of the placements of this round on each node.
    new_placements: BTreeMap<usize, Vec<usize>>,
}

impl Occupancy {
    pub fn new(round: &RoundState) -> Self {
        let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, allocation_state) in round.allocation_states.iter().enumerate() {
            if let Some(node) = allocation_state.node {
                by_node.entry(node).or_default().push(index);
            }
        }
        let mut new_placements: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, placement) in round.placed.iter().enumerate() {
            new_placements
                .entry(placement.node)
                .or_default()
                .push(index);
        }
        Self {
            by_node,
            new_placements,
        }
    }

    fn new_placements_on<'b>(
        &self,
        round: &'b RoundState,
        node: usize,
    ) -> impl Iterator<Item = &'b Placed> {
        let new_placements = self.new_placements.get(&node).into_iter().flatten();
        new_placements.map(|index| &round.placed[*index])
    }

    /// Returns the indices of the allocations on a node.
    pub fn allocations_on(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.by_node.get(&node).into_iter().flatten().copied()
    }
}

/// Capacity and remaining usage of one node in the future. The difference is its free space.
#[derive(Clone)]
pub(crate) struct FutureFreeSpace {
    capacity: Vector,
    used: Vector,
    /// Thousandths in use per gpu.
    gpus: BTreeMap<u64, u64>,
}

impl FutureFreeSpace {
    fn empty(round: &RoundState, node: usize) -> Self {
        Self {
            capacity: round.nodes.node_states[node].capacity.clone(),
            used: round.dims.zero(),
            gpus: BTreeMap::new(),
        }
    }

    /// Computes the free space after all vacated allocations have left.
    pub fn after_vacates(round: &RoundState, occupancy: &Occupancy, node: usize) -> Self {
        let mut future = Self::empty(round, node);
        let node_state = &round.nodes.node_states[node];
        // The usage per gpu is counted again from the allocations that stay. Nodes without gpus
        // skip that, because the sums of all resources are copied below.
        if node_state.capacity[GPU] > 0 {
            let staying = occupancy
                .allocations_on(node)
                .filter(|index| !round.allocation_states[*index].is_leaving);
            for index in staying {
                let allocation_state = &round.allocation_states[index];
                future.charge(&allocation_state.vector, &allocation_state.allocation.gpus);
            }
            for placement in occupancy.new_placements_on(round, node) {
                future.charge(round.vector(placement.item), &placement.gpus);
            }
        }
        future.used.clone_from(&node_state.used);
        subtract(&mut future.used, &node_state.leaving);
        future
    }

    /// Computes the free space after all jobs have ended. Processes of services, fixed work, work
    /// of other planners and work of this application stay.
    pub fn after_jobs_end(
        round: &RoundState,
        occupancy: &Occupancy,
        node: usize,
        app: usize,
    ) -> Self {
        let mut future = Self::empty(round, node);
        let item_stays = |item: usize| {
            let work_item = &round.items[item];
            work_item.app == app || work_item.demand.kind != WorkKind::Job
        };
        for index in occupancy.allocations_on(node) {
            let allocation_state = &round.allocation_states[index];
            let stays =
                allocation_state.allocation.fixed || allocation_state.item.is_none_or(item_stays);
            if stays && !allocation_state.is_leaving {
                future.charge(&allocation_state.vector, &allocation_state.allocation.gpus);
            }
        }
        let new_placements = occupancy.new_placements_on(round, node);
        for placement in new_placements.filter(|placement| item_stays(placement.item)) {
            future.charge(round.vector(placement.item), &placement.gpus);
        }
        future
    }

    /// Returns how many more times the needed resources would fit after they are placed once, in
    /// thousandths. The scarcest type decides. The resources must fit.
    pub fn remaining_fits_milli(&self, needed: &[u64]) -> u64 {
        let amounts = self.used.iter().zip(&self.capacity).zip(needed);
        let requested = amounts.filter(|(_, needed)| **needed > 0);
        let remaining = requested.map(|((used, capacity), needed)| {
            let remaining = capacity.saturating_sub(*used).saturating_sub(*needed);
            remaining.saturating_mul(1_000) / needed
        });
        remaining.min().unwrap_or(0)
    }

    /// Adds usage on these gpus.
    pub fn charge(&mut self, vector: &[u64], gpus: &[u64]) {
        add(&mut self.used, vector);
        for gpu in gpus {
            *self.gpus.entry(*gpu).or_default() += vector[GPU].min(GPU_MILLI);
        }
    }

    /// Places one process, which must fit. It gets the fullest gpus on which it fits.
    pub fn place(&mut self, vector: &[u64]) {
        let (count, per_gpu) = (vector[GPU].div_ceil(GPU_MILLI), vector[GPU].min(GPU_MILLI));
        let mut fitting: Vec<(u64, u64)> = self
            .free_gpus()
            .filter(|(free, _)| *free >= per_gpu)
            .collect();
        fitting.sort_unstable();
        let selected = fitting
            .into_iter()
            .take(usize::try_from(count).unwrap_or(0));
        let chosen: Vec<u64> = selected.map(|(_, gpu)| gpu).collect();
        self.charge(vector, &chosen);
    }

    /// Removes the usage of an allocation.
    pub fn release(&mut self, round: &RoundState, index: usize) {
        let allocation_state = &round.allocation_states[index];
        subtract(&mut self.used, &allocation_state.vector);
        for gpu in &allocation_state.allocation.gpus {
            let used = self.gpus.entry(*gpu).or_default();
            *used = used.saturating_sub(allocation_state.vector[GPU].min(GPU_MILLI));
        }
    }

    /// Returns true if one process with these needs fits, also on the gpus.
    pub fn fits(&self, needed: &[u64]) -> bool {
        let amounts = self.used.iter().zip(&self.capacity).zip(needed);
        let mut amounts =
            amounts.map(|((used, capacity), needed)| used.saturating_add(*needed) <= *capacity);
        amounts.all(|fits| fits) && self.has_gpus(needed[GPU])
    }

    /// Returns the free thousandths and the index of each gpu.
    fn free_gpus(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let devices = 0..self.capacity[GPU].div_ceil(GPU_MILLI);
        devices.map(|gpu| {
            let capacity_milli = self.capacity[GPU]
                .saturating_sub(gpu * GPU_MILLI)
                .min(GPU_MILLI);
            let used = self.gpus.get(&gpu).copied().unwrap_or(0);
            (capacity_milli.saturating_sub(used), gpu)
        })
    }

    /// Returns true if enough gpus have space. A process that needs a gpu or more gets whole gpus.
    fn has_gpus(&self, milli: u64) -> bool {
        let (count, per_gpu) = (milli.div_ceil(GPU_MILLI), milli.min(GPU_MILLI));
        let fitting = || self.free_gpus().filter(|(free, _)| *free >= per_gpu);
        count == 0 || fitting().count() as u64 >= count
    }
}
