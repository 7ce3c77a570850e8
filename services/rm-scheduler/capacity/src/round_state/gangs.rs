//! Gangs in a round: their parts, the resources they need at once, and how much of that fits a
//! limit.

use std::cmp::Reverse;

use super::RoundState;
use crate::resource_vec::{LimitVector, Vector, add, scale};

impl RoundState<'_> {
    /// Returns all work items of the same gang, in the order of the application.
    pub fn gang_parts(&self, item: usize) -> impl Iterator<Item = usize> + '_ {
        let name = move |other: usize| {
            let gang = self.items[other].queued.gang.as_ref();
            gang.map(|gang| &gang.name)
        };
        let items = self.apps[self.items[item].app].items.iter().copied();
        items.filter(move |other| name(*other).is_some() && name(*other) == name(item))
    }

    /// Returns the parts of the same gang that are neither placed nor skipped.
    pub fn open_gang_parts(&self, item: usize) -> Vec<usize> {
        let is_open = |part: &usize| {
            self.items[*part].wait_reason.is_none() && self.items[*part].missing() > 0
        };
        self.gang_parts(item).filter(is_open).collect()
    }

    /// Returns the parts of the same gang that have fewer processes than their minimum number.
    /// Large parts go first, because small ones fill the gaps.
    pub fn lacking_gang_parts(&self, item: usize) -> Vec<usize> {
        let is_lacking = |part: &usize| self.items[*part].missing_gang_processes() > 0;
        let mut parts: Vec<usize> = self.gang_parts(item).filter(is_lacking).collect();
        parts.sort_by_key(|part| Reverse(self.relative_size(*part)));
        parts
    }

    /// Returns whether the item is the first part of its gang that has fewer processes than its
    /// minimum number. Only this part acts for the gang.
    pub fn is_gang_representative(&self, item: usize) -> bool {
        let mut parts = self.gang_parts(item);
        parts.find(|part| self.items[*part].missing_gang_processes() > 0) == Some(item)
    }

    /// Returns the resources that these parts lack together.
    pub fn missing_resources(&self, parts: &[usize]) -> Vector {
        let mut total = self.dims.zero();
        for part in parts {
            let missing = self.items[*part].missing_gang_processes();
            add(&mut total, &scale(self.vector(*part), missing));
        }
        total
    }

    /// Returns the size of a process as a fraction of the whole pool, by its largest resource. The
    /// fraction is an integer in units of 1 / `SCALE`.
    fn relative_size(&self, part: usize) -> u64 {
        const SCALE: u128 = 1 << 20;
        let pairs = self.vector(part).iter().zip(&self.total_capacity);
        let pairs = pairs.filter(|(_, total)| **total > 0);
        let shares = pairs.map(|(item, total)| u128::from(*item) * SCALE / u128::from(*total));
        u64::try_from(shares.max().unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

/// Needs of one part: the number of processes needed at once, and the resources of one process.
pub(crate) struct PartNeeds<'b> {
    pub item: usize,
    pub min_processes: u64,
    pub vector: &'b Vector,
}

/// Needs of a whole gang.
pub(crate) struct GangNeeds<'b> {
    pub parts: Vec<PartNeeds<'b>>,
    /// Resources of all parts.
    pub total: Vector,
}

/// A resource of which the gang needs more than the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExceededLimit {
    pub dim: usize,
    pub limit: u64,
    pub needed: u64,
    /// Maximum number of processes of the gang that would fit.
    pub feasible: u64,
}

impl<'b> GangNeeds<'b> {
    pub fn new(round: &'b RoundState, items: impl Iterator<Item = usize>) -> Self {
        let parts = items.filter_map(|index| {
            let work_item = &round.items[index];
            let gang = work_item.queued.gang.as_ref()?;
            Some(PartNeeds {
                item: index,
                min_processes: gang
                    .min
                    .min(RoundState::wanted(work_item.demand, work_item.current)),
                vector: round.vector(index),
            })
        });
        let parts: Vec<PartNeeds> = parts.collect();
        let mut total = round.dims.zero();
        for part in &parts {
            add(&mut total, &scale(part.vector, part.min_processes));
        }
        Self { parts, total }
    }

    pub fn count_processes(&self) -> u64 {
        let counts = self.parts.iter().map(|part| part.min_processes);
        counts.fold(0, u64::saturating_add)
    }

    /// Returns the exceeded resource that allows the fewest processes.
    pub fn find_exceeded(&self, max: &LimitVector) -> Option<ExceededLimit> {
        let pairs = max.iter().zip(&self.total).enumerate();
        let pairs = pairs.filter_map(|(dim, (max, total))| Some((dim, (*max)?, *total)));
        let exceeded = pairs.filter(|(_, limit, needed)| needed > limit);
        let exceeded = exceeded.map(|(dim, limit, needed)| ExceededLimit {
            dim,
            limit,
            needed,
            feasible: self.count_fitting(dim, limit),
        });
        exceeded.min_by_key(|exceeded| exceeded.feasible)
    }

    /// Returns the number of processes that fit the limit, counting the smallest first.
    fn count_fitting(&self, dim: usize, limit: u64) -> u64 {
        let parts = self.parts.iter();
        let mut parts: Vec<(u64, u64)> =
            parts.map(|it| (it.vector[dim], it.min_processes)).collect();
        parts.sort_unstable();
        let (mut remaining, mut count) = (limit, 0_u64);
        for (each, min_processes) in parts {
            let fitting = remaining
                .checked_div(each)
                .unwrap_or(min_processes)
                .min(min_processes);
            remaining -= fitting * each;
            count += fitting;
        }
        count
    }
}
