//! Resources that a gang needs at once, and how much of it fits a limit.

use crate::{
    resource_vec::{Sparse, Vector, add, times},
    round_state::RoundState,
};

/// Resources that these parts lack together.
pub(crate) fn lacks(round: &RoundState, parts: &[usize]) -> Vector {
    let mut total = round.dims.zero();
    for part in parts {
        let lacks = round.items[*part].gang_lacks();
        add(&mut total, &times(round.vector(*part), lacks));
    }
    total
}

/// Processes needed at once, and the resources of one.
pub(crate) struct Part<'b> {
    pub item: usize,
    pub least: u64,
    pub vector: &'b Vector,
}

pub(crate) struct Whole<'b> {
    pub parts: Vec<Part<'b>>,
    /// Resources of all parts.
    pub total: Vector,
}

/// A resource of which the gang needs more than the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Over {
    pub dim: usize,
    pub limit: u64,
    pub needed: u64,
    /// Most processes of the gang that would fit.
    pub feasible: u64,
}

impl<'b> Whole<'b> {
    /// Gang needs of these work items.
    pub fn new(round: &'b RoundState, items: impl Iterator<Item = usize>) -> Self {
        let parts = items.filter_map(|at| {
            let it = &round.items[at];
            let gang = it.queued.gang.as_ref()?;
            Some(Part {
                item: at,
                least: gang.min.min(RoundState::wanted(it.demand, it.has)),
                vector: round.vector(at),
            })
        });
        let parts: Vec<Part> = parts.collect();
        let mut total = round.dims.zero();
        for part in &parts {
            add(&mut total, &times(part.vector, part.least));
        }
        Self { parts, total }
    }

    pub fn members(&self) -> u64 {
        let least = self.parts.iter().map(|part| part.least);
        least.fold(0, u64::saturating_add)
    }

    /// The exceeded resource that allows the fewest processes.
    pub fn over(&self, max: &Sparse) -> Option<Over> {
        let pairs = max.iter().zip(&self.total).enumerate();
        let over = pairs.filter_map(|(dim, (max, total))| Some((dim, (*max)?, *total)));
        let over = over.filter(|(_, limit, needed)| needed > limit);
        let over = over.map(|(dim, limit, needed)| Over {
            dim,
            limit,
            needed,
            feasible: self.fitting(dim, limit),
        });
        over.min_by_key(|over| over.feasible)
    }

    /// Most processes that fit the limit, smallest first.
    fn fitting(&self, dim: usize, limit: u64) -> u64 {
        let parts = self.parts.iter();
        let mut parts: Vec<(u64, u64)> = parts.map(|it| (it.vector[dim], it.least)).collect();
        parts.sort_unstable();
        let (mut left, mut count) = (limit, 0_u64);
        for (each, least) in parts {
            let fit = left.checked_div(each).unwrap_or(least).min(least);
            left -= fit * each;
            count += fit;
        }
        count
    }
}
