//! What a gang needs at once, and how much of it a limit leaves room for.

use crate::{
    resource_vec::{Sparse, Vector, add, times},
    round_state::Books,
};

/// All that these parts lack together.
pub(crate) fn lacks(books: &Books, parts: &[usize]) -> Vector {
    let mut total = books.dims.zero();
    for part in parts {
        let lacks = books.asks[*part].gang_lacks();
        add(&mut total, &times(books.vector(*part), lacks));
    }
    total
}

/// Processes that are needed at once, and what one of them needs.
pub(crate) struct Part<'b> {
    pub ask: usize,
    pub least: u64,
    pub vector: &'b Vector,
}

pub(crate) struct Whole<'b> {
    pub parts: Vec<Part<'b>>,
    /// All parts together.
    pub total: Vector,
}

/// The type of which the whole gang needs more than there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Over {
    pub dim: usize,
    pub limit: u64,
    pub needed: u64,
    /// The largest number of its processes that could be.
    pub feasible: u64,
}

impl<'b> Whole<'b> {
    /// Of these asks, as far as they are parts of gangs.
    pub fn of(books: &'b Books, asks: impl Iterator<Item = usize>) -> Self {
        let parts = asks.filter_map(|at| {
            let it = &books.asks[at];
            let gang = it.queued.gang.as_ref()?;
            Some(Part {
                ask: at,
                least: gang.min.min(Books::wanted(it.demand, it.has)),
                vector: books.vector(at),
            })
        });
        let parts: Vec<Part> = parts.collect();
        let mut total = books.dims.zero();
        for part in &parts {
            add(&mut total, &times(part.vector, part.least));
        }
        Self { parts, total }
    }

    pub fn members(&self) -> u64 {
        let least = self.parts.iter().map(|part| part.least);
        least.fold(0, u64::saturating_add)
    }

    /// Of several such types the one that leaves the fewest.
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

    /// Most processes that so much of one type is enough for: the smallest first.
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
