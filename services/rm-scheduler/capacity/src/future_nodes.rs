//! Free space of nodes after some of their allocations have left.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::GPU_MILLI;
use hayward_vocabulary::WorkKind;

use crate::{
    resource_vec::{Vector, add, take},
    round_state::{Placed, RoundState},
};

/// Allocations and new placements by node.
pub(crate) struct Occupancy {
    pub by_node: BTreeMap<usize, Vec<usize>>,
    /// Placements of this round, by node.
    fresh: BTreeMap<usize, Vec<usize>>,
}

impl Occupancy {
    pub fn new(round: &RoundState) -> Self {
        let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, held) in round.held.iter().enumerate() {
            if let Some(node) = held.node {
                by_node.entry(node).or_default().push(at);
            }
        }
        let mut fresh: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, placed) in round.placed.iter().enumerate() {
            fresh.entry(placed.node).or_default().push(at);
        }
        Self { by_node, fresh }
    }

    fn fresh_on<'b>(&self, round: &'b RoundState, node: usize) -> impl Iterator<Item = &'b Placed> {
        let fresh = self.fresh.get(&node).into_iter().flatten();
        fresh.map(|at| &round.placed[*at])
    }

    pub fn on(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.by_node.get(&node).into_iter().flatten().copied()
    }
}

#[derive(Clone)]
pub(crate) struct FutureNode {
    capacity: Vector,
    used: Vector,
    /// Thousandths in use per gpu.
    gpus: BTreeMap<u64, u64>,
}

impl FutureNode {
    fn empty(round: &RoundState, node: usize) -> Self {
        Self {
            capacity: round.nodes.node_states[node].capacity.clone(),
            used: round.dims.zero(),
            gpus: BTreeMap::new(),
        }
    }

    /// Computes the free space after all vacated allocations have left.
    pub fn soon(round: &RoundState, occupancy: &Occupancy, node: usize) -> Self {
        let mut future = Self::empty(round, node);
        let node_state = &round.nodes.node_states[node];
        if node_state.capacity[3] > 0 {
            let stays = occupancy.on(node).filter(|at| !round.held[*at].leaves);
            for at in stays {
                let held = &round.held[at];
                future.charge(&held.vector, &held.allocation.gpus);
            }
            for placed in occupancy.fresh_on(round, node) {
                future.charge(round.vector(placed.item), &placed.gpus);
            }
        }
        future.used.clone_from(&node_state.used);
        take(&mut future.used, &node_state.going);
        future
    }

    /// Computes the free space after everything has left that ends by itself, such as jobs.
    /// Processes of services, fixed work, work of other planners and work of this application stay.
    pub fn at_last(round: &RoundState, occupancy: &Occupancy, node: usize, app: usize) -> Self {
        let mut future = Self::empty(round, node);
        let stays = |item: usize| {
            let it = &round.items[item];
            it.app == app || it.demand.kind != WorkKind::Job
        };
        for at in occupancy.on(node) {
            let held = &round.held[at];
            let fixed = held.allocation.fixed || held.item.is_none_or(stays);
            if fixed && !held.leaves {
                future.charge(&held.vector, &held.allocation.gpus);
            }
        }
        let fresh = occupancy.fresh_on(round, node);
        for placed in fresh.filter(|placed| stays(placed.item)) {
            future.charge(round.vector(placed.item), &placed.gpus);
        }
        future
    }

    /// Returns how often the needed resources would still fit after they are placed, in
    /// thousandths. The scarcest type decides. The resources must fit.
    pub fn left(&self, needed: &[u64]) -> u64 {
        let all = self.used.iter().zip(&self.capacity).zip(needed);
        let requested = all.filter(|(_, needed)| **needed > 0);
        let left = requested.map(|((used, most), needed)| {
            let left = most.saturating_sub(*used).saturating_sub(*needed);
            left.saturating_mul(1_000) / needed
        });
        left.min().unwrap_or(0)
    }

    pub fn charge(&mut self, vector: &[u64], gpus: &[u64]) {
        add(&mut self.used, vector);
        for gpu in gpus {
            *self.gpus.entry(*gpu).or_default() += vector[3].min(GPU_MILLI);
        }
    }

    /// Places the resources, which must fit.
    pub fn place(&mut self, vector: &[u64]) {
        let (count, part) = (vector[3].div_ceil(GPU_MILLI), vector[3].min(GPU_MILLI));
        let mut fit: Vec<(u64, u64)> = self.free_gpus().filter(|it| it.0 >= part).collect();
        fit.sort_unstable();
        let few = fit.into_iter().take(usize::try_from(count).unwrap_or(0));
        let chosen: Vec<u64> = few.map(|(_, gpu)| gpu).collect();
        self.charge(vector, &chosen);
    }

    pub fn free(&mut self, round: &RoundState, held: usize) {
        let held = &round.held[held];
        take(&mut self.used, &held.vector);
        for gpu in &held.allocation.gpus {
            let used = self.gpus.entry(*gpu).or_default();
            *used = used.saturating_sub(held.vector[3].min(GPU_MILLI));
        }
    }

    pub fn fits(&self, needed: &[u64]) -> bool {
        let all = self.used.iter().zip(&self.capacity).zip(needed);
        let mut all = all.map(|((used, most), needed)| used.saturating_add(*needed) <= *most);
        all.all(|fits| fits) && self.has_gpus(needed[3])
    }

    /// Returns the free thousandths of each gpu.
    fn free_gpus(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let devices = 0..self.capacity[3].div_ceil(GPU_MILLI);
        devices.map(|gpu| {
            let most = self.capacity[3]
                .saturating_sub(gpu * GPU_MILLI)
                .min(GPU_MILLI);
            let used = self.gpus.get(&gpu).copied().unwrap_or(0);
            (most.saturating_sub(used), gpu)
        })
    }

    fn has_gpus(&self, milli: u64) -> bool {
        let (count, part) = (milli.div_ceil(GPU_MILLI), milli.min(GPU_MILLI));
        let fit = || self.free_gpus().filter(|(free, _)| *free >= part);
        count == 0 || fit().count() as u64 >= count
    }
}
