//! Nodes as they will be, or could be, when some of what is held there has left.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::GPU_MILLI;
use hayward_vocabulary::WorkKind;

use crate::{
    resource_vec::{Vector, add, take},
    round_state::{Books, Placed},
};

/// What lies on which node.
pub(crate) struct Yard {
    pub by_node: BTreeMap<usize, Vec<usize>>,
    /// What was placed there in this round.
    fresh: BTreeMap<usize, Vec<usize>>,
}

impl Yard {
    pub fn of(books: &Books) -> Self {
        let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, held) in books.held.iter().enumerate() {
            if let Some(node) = held.node {
                by_node.entry(node).or_default().push(at);
            }
        }
        let mut fresh: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, placed) in books.placed.iter().enumerate() {
            fresh.entry(placed.node).or_default().push(at);
        }
        Self { by_node, fresh }
    }

    fn fresh_on<'b>(&self, books: &'b Books, node: usize) -> impl Iterator<Item = &'b Placed> {
        let fresh = self.fresh.get(&node).into_iter().flatten();
        fresh.map(|at| &books.placed[*at])
    }

    pub fn on(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.by_node.get(&node).into_iter().flatten().copied()
    }
}

#[derive(Clone)]
pub(crate) struct Room {
    capacity: Vector,
    used: Vector,
    /// Thousandths in use, by gpu.
    gpus: BTreeMap<u64, u64>,
}

impl Room {
    fn empty(books: &Books, node: usize) -> Self {
        Self {
            capacity: books.nodes.stations[node].capacity.clone(),
            used: books.dims.zero(),
            gpus: BTreeMap::new(),
        }
    }

    /// Once what leaves has left.
    pub fn soon(books: &Books, yard: &Yard, node: usize) -> Self {
        let mut room = Self::empty(books, node);
        let station = &books.nodes.stations[node];
        if station.capacity[3] > 0 {
            let stays = yard.on(node).filter(|at| !books.held[*at].leaves);
            for at in stays {
                let held = &books.held[at];
                room.charge(&held.vector, &held.allocation.gpus);
            }
            for placed in yard.fresh_on(books, node) {
                room.charge(books.vector(placed.ask), &placed.gpus);
            }
        }
        room.used.clone_from(&station.used);
        take(&mut room.used, &station.going);
        room
    }

    /// Once everything has left that ever may by itself: jobs end. Instances, what is fixed, work
    /// of others, and what this application has itself stay.
    pub fn at_last(books: &Books, yard: &Yard, (node, app): (usize, usize)) -> Self {
        let mut room = Self::empty(books, node);
        let stays = |ask: usize| {
            let it = &books.asks[ask];
            it.app == app || it.demand.kind != WorkKind::Job
        };
        for at in yard.on(node) {
            let held = &books.held[at];
            let fixed = held.allocation.fixed || held.ask.is_none_or(stays);
            if fixed && !held.leaves {
                room.charge(&held.vector, &held.allocation.gpus);
            }
        }
        let fresh = yard.fresh_on(books, node);
        for placed in fresh.filter(|placed| stays(placed.ask)) {
            room.charge(books.vector(placed.ask), &placed.gpus);
        }
        room
    }

    /// How often an ask would still fit into what would be left beside it of the type there would
    /// be least of, in thousandths. The caller knows that it fits.
    pub fn left(&self, ask: &[u64]) -> u64 {
        let all = self.used.iter().zip(&self.capacity).zip(ask);
        let asked = all.filter(|(_, ask)| **ask > 0);
        let left = asked.map(|((used, most), ask)| {
            let left = most.saturating_sub(*used).saturating_sub(*ask);
            left.saturating_mul(1_000) / ask
        });
        left.min().unwrap_or(0)
    }

    pub fn charge(&mut self, vector: &[u64], gpus: &[u64]) {
        add(&mut self.used, vector);
        for gpu in gpus {
            *self.gpus.entry(*gpu).or_default() += vector[3].min(GPU_MILLI);
        }
    }

    /// The caller knows that it fits.
    pub fn place(&mut self, vector: &[u64]) {
        let (count, part) = (vector[3].div_ceil(GPU_MILLI), vector[3].min(GPU_MILLI));
        let mut fit: Vec<(u64, u64)> = self.free_gpus().filter(|it| it.0 >= part).collect();
        fit.sort_unstable();
        let few = fit.into_iter().take(usize::try_from(count).unwrap_or(0));
        let chosen: Vec<u64> = few.map(|(_, gpu)| gpu).collect();
        self.charge(vector, &chosen);
    }

    pub fn free(&mut self, books: &Books, held: usize) {
        let held = &books.held[held];
        take(&mut self.used, &held.vector);
        for gpu in &held.allocation.gpus {
            let used = self.gpus.entry(*gpu).or_default();
            *used = used.saturating_sub(held.vector[3].min(GPU_MILLI));
        }
    }

    pub fn fits(&self, ask: &[u64]) -> bool {
        let all = self.used.iter().zip(&self.capacity).zip(ask);
        let mut all = all.map(|((used, most), ask)| used.saturating_add(*ask) <= *most);
        all.all(|fits| fits) && self.has_gpus(ask[3])
    }

    /// Thousandths free of each gpu.
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
