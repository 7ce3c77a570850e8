//! A gang that is larger than its queue, its user's limit or all nodes together: nothing that ends
//! makes room for it. It is said at once, with the largest number of its processes that could be.
//!
//! Only what is certain is said. How parts of different sizes share nodes is not tried: parts are
//! looked at one by one, and all together by what nodes have in sum.

use hayward_rm_scheduler_domain::{Reason, plan::QuotaNumbers};

use super::Answer;
use crate::{
    amount::told,
    books::Books,
    dims::{Sparse, Vector, add, times},
};

/// Processes that are needed at once, and what one of them needs.
struct Part<'b> {
    least: u64,
    vector: &'b Vector,
}

/// Why it can never be, and how much of it could.
pub(super) struct Never {
    detail: String,
    quota: Option<QuotaNumbers>,
    feasible: u64,
}

pub(super) fn never(books: &Books, ask: usize) -> Option<Never> {
    let it = &books.asks[ask];
    let app = &books.apps[it.app];
    let gang = it.queued.gang.as_ref()?;
    let parts = app.asks.iter().filter_map(|at| {
        let part = &books.asks[*at];
        let its = part
            .queued
            .gang
            .as_ref()
            .filter(|its| its.name == gang.name)?;
        Some(Part {
            least: its.min.min(part.wanted),
            vector: books.vector(*at),
        })
    });
    let parts: Vec<Part> = parts.collect();
    let mut total = books.dims.zero();
    for part in &parts {
        add(&mut total, &times(part.vector, part.least));
    }
    let limits = Limits {
        books,
        parts: &parts,
        total: &total,
    };
    let path = app.queue.as_ref().ok().copied();
    let path = path.into_iter().flat_map(|queue| books.tree.path(queue));
    let queues = path.filter_map(|at| {
        let spot = &books.tree.spots[at];
        limits.over(&spot.max, &format!("queue {}", spot.path))
    });
    let gates = app.gates.iter().filter_map(|gate| {
        let gate = &books.gates.gates[*gate];
        limits.over(&gate.max, &gate.whose.to_string())
    });
    let all: Sparse = books.whole.iter().map(|it| Some(*it)).collect();
    let whole = limits.over(&all, "its pool with all nodes");
    let nodes = parts.iter().filter_map(|part| limits.nodes(part));
    let found = queues.chain(gates).chain(whole).chain(nodes);
    found.min_by_key(|never| never.feasible)
}

impl Never {
    pub fn answer(self) -> Answer {
        let detail = format!("its gang starts as a whole or not at all: {}", self.detail);
        Answer {
            quota: self.quota,
            ..Answer::of(Reason::GangIncomplete, detail)
        }
    }
}

struct Limits<'b, 'a> {
    books: &'b Books<'a>,
    parts: &'b [Part<'b>],
    total: &'b Vector,
}

impl Limits<'_, '_> {
    /// The type of which the whole gang needs more than there may be.
    fn over(&self, max: &Sparse, whose: &str) -> Option<Never> {
        let pairs = max.iter().zip(self.total).enumerate();
        let over = pairs.filter_map(|(dim, (max, total))| Some((dim, (*max)?, *total)));
        let over = over.filter(|(_, max, total)| total > max);
        let told = over.map(|(dim, limit, needed)| {
            let resource = match self.books.dims.name(dim) {
                "" => "quanta",
                name => name,
            };
            self.never(self.fitting(dim, limit), limit, (needed, resource, whose))
        });
        told.min_by_key(|never| never.feasible)
    }

    fn never(
        &self,
        feasible: u64,
        limit: u64,
        (needed, resource, whose): (u64, &str, &str),
    ) -> Never {
        let all = self.all();
        let (all_of_it, most) = (told(resource, needed), told(resource, limit));
        let detail = format!(
            "it needs {all_of_it} {resource} at once, and {whose} may have {most}: it can never \
             start; {feasible} of the {all} processes could"
        );
        Never {
            detail,
            feasible,
            quota: Some(QuotaNumbers {
                limit,
                used: 0,
                needed,
            }),
        }
    }

    fn all(&self) -> u64 {
        let least = self.parts.iter().map(|part| part.least);
        least.fold(0, u64::saturating_add)
    }

    /// Most processes that so much of one type is enough for: the smallest first.
    fn fitting(&self, dim: usize, limit: u64) -> u64 {
        let mut parts: Vec<(u64, u64)> = self
            .parts
            .iter()
            .map(|part| (part.vector[dim], part.least))
            .collect();
        parts.sort_unstable();
        let (mut left, mut count) = (limit, 0_u64);
        for (each, least) in parts {
            let fit = left.checked_div(each).unwrap_or(least).min(least);
            left -= fit * each;
            count += fit;
        }
        count
    }

    /// One part alone, on all nodes as if nothing were there.
    fn nodes(&self, part: &Part) -> Option<Never> {
        let stations = &self.books.nodes.stations;
        let fit = stations.iter().map(|station| {
            let pairs = part.vector.iter().zip(&station.capacity);
            let times = pairs.filter_map(|(each, has)| has.checked_div(*each));
            times.min().unwrap_or(0)
        });
        let fit = fit.fold(0, u64::saturating_add);
        let count = stations.len();
        (fit < part.least).then(|| Never {
            detail: format!(
                "{} processes of one size are needed at once, and {count} nodes have room for \
                 {fit} when they are empty: it can never start; {fit} could",
                part.least
            ),
            quota: None,
            feasible: fit,
        })
    }
}
