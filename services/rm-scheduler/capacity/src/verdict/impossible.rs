//! A gang that is larger than its queue, its user's limit or all nodes together: nothing that ends
//! makes room for it. It is said at once, with the largest number of its processes that could be.
//!
//! Only what is certain is said. How parts of different sizes share nodes is not tried: parts are
//! looked at one by one, and all together by what nodes have in sum.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::{Reason, plan::QuotaNumbers};

use super::Answer;
use crate::{
    amount::told,
    gang::{
        self,
        whole::{Part, Whole},
    },
    resource_vec::{Sparse, add},
    round_state::Books,
};

/// Why it can never be, and how much of it could.
pub(crate) struct Never {
    detail: String,
    quota: Option<QuotaNumbers>,
    feasible: u64,
}

pub(crate) fn never(books: &Books, ask: usize) -> Option<Never> {
    let it = &books.asks[ask];
    let app = &books.apps[it.app];
    it.queued.gang.as_ref()?;
    let whole = Whole::of(books, gang::all(books, ask));
    let limits = Limits {
        books,
        whole: &whole,
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
    let pool = limits.over(&all, "its pool with all nodes");
    let nodes = whole.parts.iter().filter_map(|part| limits.nodes(part));
    let named = named(books, &whole);
    let found = queues.chain(gates).chain(pool).chain(nodes).chain(named);
    found.min_by_key(|never| never.feasible)
}

impl Never {
    pub(super) fn answer(self) -> Answer {
        let detail = format!("its gang starts as a whole or not at all: {}", self.detail);
        Answer {
            quota: self.quota,
            ..Answer::of(Reason::GangIncomplete, detail)
        }
    }
}

struct Limits<'b, 'a> {
    books: &'b Books<'a>,
    whole: &'b Whole<'b>,
}

impl Limits<'_, '_> {
    /// The type of which the whole gang needs more than there may be.
    fn over(&self, max: &Sparse, whose: &str) -> Option<Never> {
        let over = self.whole.over(max)?;
        let resource = match self.books.dims.name(over.dim) {
            "" => "quanta",
            name => name,
        };
        let (feasible, all) = (over.feasible, self.whole.members());
        let (needed, most) = (told(resource, over.needed), told(resource, over.limit));
        let detail = format!(
            "it needs {needed} {resource} at once, and {whose} may have {most}: it can never \
             start; {feasible} of the {all} processes could"
        );
        Some(Never {
            detail,
            feasible,
            quota: Some(QuotaNumbers {
                limit: over.limit,
                used: 0,
                needed: over.needed,
            }),
        })
    }

    /// One part alone, on all nodes it may ever use as if nothing were there.
    fn nodes(&self, part: &Part) -> Option<Never> {
        let stations = &self.books.nodes.stations;
        let sum = |nodes: &mut dyn Iterator<Item = usize>| {
            let fit = nodes.map(|node| stations[node].could_hold_of(part.vector));
            fit.fold(0, u64::saturating_add)
        };
        let named = self.books.candidates(part.ask);
        let (fit, nodes) = if let Some(few) = named {
            let fit = sum(&mut few.iter().copied());
            (fit, format!("the {} nodes it may use", few.len()))
        } else {
            let shape = &self.books.shapes[self.books.asks[part.ask].shape];
            let fit = *shape.most.get_or_init(|| sum(&mut (0..stations.len())));
            (fit, format!("{} nodes", stations.len()))
        };
        (fit < part.least).then(|| Never {
            detail: format!(
                "{} processes of one size are needed at once, and {nodes} have room for {fit} \
                 when they are empty: it can never start; {fit} could",
                part.least
            ),
            quota: None,
            feasible: fit,
        })
    }
}

/// Parts that may use a few nodes only, on those together.
fn named(books: &Books, whole: &Whole) -> Option<Never> {
    let mut nodes: BTreeSet<usize> = BTreeSet::new();
    let mut asks = Vec::new();
    for part in &whole.parts {
        if let Some(few) = books.candidates(part.ask) {
            nodes.extend(few);
            asks.push(part.ask);
        }
    }
    if asks.is_empty() {
        return None;
    }
    let mut room = books.dims.zero();
    for node in nodes {
        add(&mut room, &books.nodes.stations[node].capacity);
    }
    let room: Sparse = room.into_iter().map(Some).collect();
    let whole = &Whole::of(books, asks.into_iter());
    Limits { books, whole }.over(&room, "the nodes that its parts name")
}
