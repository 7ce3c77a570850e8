//! Why each piece of work has what it has, with the numbers it was decided by (14, D12).

mod gangs;
mod impossible;
mod no_node_fits;

use std::{collections::BTreeMap, sync::Arc};

use hayward_rm_scheduler_domain::{
    Reason, Verdict, Verdicts,
    plan::{Numbers, QuotaNumbers, Unblock},
};

use crate::{
    amount::told,
    reserve::{cleared_nodes, kept_nodes},
    round_state::{Books, Why},
    tree::ROOT,
};
pub(crate) use impossible::never;
use no_node_fits::nowhere;

/// What is said of an ask, before its counts are added.
#[derive(Clone)]
struct Answer {
    reason: Reason,
    detail: String,
    quota: Option<QuotaNumbers>,
    unblock: Option<Unblock>,
}

impl Answer {
    fn of(reason: Reason, detail: String) -> Self {
        Self {
            reason,
            detail,
            quota: None,
            unblock: None,
        }
    }
}

pub(crate) fn all(books: &Books) -> Verdicts {
    let mut explainer = Explainer {
        books,
        kept: kept_nodes(books),
        cleared: cleared_nodes(books),
        leaving: leaving(books),
        nowhere: BTreeMap::new(),
        roomy: BTreeMap::new(),
    };
    let asks = 0..books.asks.len();
    let said = asks.map(|ask| {
        let work = books.asks[ask].work.clone();
        (work, Box::new(explainer.verdict(ask)))
    });
    said.collect()
}

fn leaving(books: &Books) -> BTreeMap<usize, u64> {
    let mut leaving: BTreeMap<usize, u64> = BTreeMap::new();
    let leaves = books.held.iter().filter(|held| held.leaves);
    for node in leaves.filter_map(|held| held.node) {
        *leaving.entry(node).or_default() += 1;
    }
    leaving
}

struct Explainer<'b, 'a> {
    books: &'b Books<'a>,
    /// Nodes of which something is kept for others.
    kept: Vec<usize>,
    /// By ask: a node that is kept for it while others leave for it.
    cleared: BTreeMap<usize, usize>,
    /// By node: processes that leave it.
    leaving: BTreeMap<usize, u64>,
    /// By shape: asks alike that may go anywhere find the same.
    nowhere: BTreeMap<usize, Answer>,
    /// The same: is there a node with room for it?
    roomy: BTreeMap<usize, bool>,
}

impl Explainer<'_, '_> {
    fn verdict(&mut self, ask: usize) -> Verdict {
        let books = self.books;
        let it = &books.asks[ask];
        let app = &books.apps[it.app];
        let has = it.has + it.placed;
        let numbers = Numbers {
            counted_processes: it.wanted,
            current_processes: has,
            leaving_processes: it.leaving,
            order: books.shapes[it.shape].order,
            wanted_processes: it.wanted,
            ..Numbers::default()
        };
        let class = app.queue.as_ref().ok();
        let class = class.map(|queue| books.tree.spots[*queue].path.clone());
        let (answer, refused) = match &app.queue {
            Err(refusal) => {
                // A gang that is too large is in the right queue.
                let in_place = [Reason::QueueQuota, Reason::GangIncomplete];
                let named = !in_place.contains(&refusal.reason);
                let answer = Answer {
                    unblock: named.then_some(Unblock::NameClass),
                    ..Answer::of(refusal.reason, refusal.detail.clone())
                };
                (answer, true)
            }
            Ok(_) => (self.answer(ask, has), false),
        };
        let missing = it.missing() > 0;
        Verdict {
            reason: answer.reason,
            waits: missing || refused,
            refused: refused && has == 0,
            class: class.map(Arc::from),
            detail: answer.detail.into(),
            numbers: Numbers {
                quota: answer.quota,
                ..numbers
            },
            also: Vec::new(),
            unblock: answer.unblock.filter(|_| missing || refused),
        }
    }

    fn answer(&mut self, ask: usize, has: u64) -> Answer {
        let it = &self.books.asks[ask];
        if it.missing() == 0 {
            let detail = if it.wanted == 0 {
                "holds itself back: it wants no process now".to_owned()
            } else {
                format!("has all {has} processes it can use")
            };
            return Answer::of(Reason::Satisfied, detail);
        }
        if let Some(node) = self.cleared.get(&ask) {
            return self.others_leave(ask, *node);
        }
        let why = it.why.as_ref().or(self.books.apps[it.app].aside.as_ref());
        match why {
            Some(why) => self.waits(ask, why),
            // Whoever is neither served nor aside is in line; nobody is when a round ends.
            None => Answer::of(Reason::ResourcesExhausted, "is in line".to_owned()),
        }
    }

    fn others_leave(&self, ask: usize, node: usize) -> Answer {
        let books = self.books;
        let leaving_processes = self.leaving.get(&node).copied().unwrap_or(0);
        let name = books.nodes.stations[node].name;
        let detail = if leaving_processes > 0 {
            format!("others leave node {name}, which is kept for it")
        } else {
            let queue = books.queue_of(ask).unwrap_or(ROOT);
            let queue = &books.tree.spots[queue].path;
            format!(
                "others leave so that queue {queue} may have more, and node {name} is kept for it"
            )
        };
        Answer {
            unblock: Some(Unblock::Wait {
                leaving_processes: leaving_processes.max(1),
            }),
            ..Answer::of(Reason::WaitingForPreemption, detail)
        }
    }

    fn waits(&mut self, ask: usize, why: &Why) -> Answer {
        let books = self.books;
        let path = |queue: usize| &books.tree.spots[queue].path;
        match why {
            Why::BackingOff { until } => {
                let name = books.apps[books.asks[ask].app].name;
                let detail = format!(
                    "so many asks of application {name} found no node that it is left alone \
                     until {until}"
                );
                Answer::of(Reason::BackingOff, detail)
            }
            Why::TooManyRun {
                queue,
                whose,
                quota,
                kept,
            } => self.too_many((*queue, whose.as_deref()), (*quota, *kept)),
            Why::UserQuota {
                gate,
                dim,
                quota,
                kept,
            } => {
                let gate = &books.gates.gates[*gate];
                let held = said(quota, books.dims.name(*dim));
                let of_it = of_it(*kept, books.dims.name(*dim));
                let detail = format!(
                    "{} holds {held} in queue {}{of_it}",
                    gate.whose,
                    path(gate.queue)
                );
                Answer {
                    quota: Some(*quota),
                    unblock: self.less((*dim, quota)),
                    ..Answer::of(Reason::UserQuota, detail)
                }
            }
            Why::QueueQuota {
                queue,
                dim,
                quota,
                kept,
            } => {
                let held = said(quota, books.dims.name(*dim));
                let of_it = of_it(*kept, books.dims.name(*dim));
                let detail = format!("queue {} holds {held}{of_it}", path(*queue));
                Answer {
                    quota: Some(*quota),
                    unblock: self.less((*dim, quota)),
                    ..Answer::of(Reason::QueueQuota, detail)
                }
            }
            Why::Gang { fit, of, because } => self.gang(ask, (*fit, *of), because.as_deref()),
            Why::NoNode => self.no_node(ask),
        }
    }

    fn too_many(
        &self,
        (queue, whose): (usize, Option<&str>),
        (quota, kept): (QuotaNumbers, u64),
    ) -> Answer {
        let whose = whose.map_or(String::new(), |it| format!(" for {it}"));
        let path = &self.books.tree.spots[queue].path;
        let (used, limit, of_it) = (quota.used, quota.limit, of_it(kept, ""));
        let detail = format!("{used} of {limit} applications run in queue {path}{whose}{of_it}");
        Answer {
            quota: Some(quota),
            ..Answer::of(Reason::NotRunnable, detail)
        }
    }

    /// One process alone is more than may be there at most: smaller ones could be.
    fn less(&self, (dim, quota): (usize, &QuotaNumbers)) -> Option<Unblock> {
        let unit = self.books.quantum.0.memory_bytes;
        let memory = self.books.dims.name(dim) == "memory" && unit > 0;
        let quanta = if memory { quota.limit / unit } else { 0 };
        (quota.needed > quota.limit && quanta > 0).then_some(Unblock::AskForLess { quanta })
    }

    fn no_node(&mut self, ask: usize) -> Answer {
        let it = &self.books.asks[ask];
        if !it.anywhere {
            return nowhere(self.books, ask, &self.kept);
        }
        let books = self.books;
        let known = self.nowhere.entry(it.shape);
        known
            .or_insert_with(|| nowhere(books, ask, &self.kept))
            .clone()
    }
}

fn said(quota: &QuotaNumbers, resource: &str) -> String {
    let of = |amount| told(resource, amount);
    let (used, limit, needed) = (of(quota.used), of(quota.limit), of(quota.needed));
    if quota.needed > quota.limit {
        return format!(
            "{used} of {limit} {resource}, and one process needs {needed}: it can never start"
        );
    }
    format!("{used} of {limit} {resource}, and {needed} more are needed")
}

/// How much of what is said to be used is kept for others.
fn of_it(kept: u64, resource: &str) -> String {
    if kept == 0 {
        return String::new();
    }
    let kept = told(resource, kept);
    format!("; {kept} of that is kept for work that goes before it")
}
