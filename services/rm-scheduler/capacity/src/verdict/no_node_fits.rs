//! Why no node takes one more process of an ask (9.2), and what would mend it.

use hayward_rm_scheduler_domain::{Reason, plan::Unblock};

use super::Answer;
use crate::{
    amount::told,
    nodes::Station,
    reserve::{gangs, kept_away},
    round_state::Books,
};

/// The nodes an ask could be put on, as they are looked at one reason after the other.
struct Search<'b, 'a> {
    books: &'b Books<'a>,
    ask: usize,
    /// Nodes of which something is kept for others.
    kept: &'b [usize],
    /// All it may use by name.
    all: Vec<usize>,
    vector: &'b [u64],
    order: u64,
}

pub(super) fn nowhere(books: &Books, ask: usize, kept: &[usize]) -> Answer {
    let all = books.candidates(ask);
    let search = Search {
        books,
        ask,
        kept,
        all: all.unwrap_or_else(|| (0..books.nodes.stations.len()).collect()),
        vector: books.vector(ask),
        order: books.shapes[books.asks[ask].shape].order,
    };
    search.answer()
}

fn with(reason: Reason, detail: String, unblock: Unblock) -> Answer {
    Answer {
        unblock: Some(unblock),
        ..Answer::of(reason, detail)
    }
}

impl Search<'_, '_> {
    fn station(&self, at: usize) -> &Station<'_> {
        &self.books.nodes.stations[at]
    }

    fn answer(&self) -> Answer {
        if self.all.is_empty() && !self.books.asks[self.ask].anywhere {
            let detail = "none of the machines it may use is in its pool".to_owned();
            let unblock = Unblock::AddNode { quanta: self.order };
            return with(Reason::NoListedMachine, detail, unblock);
        }
        let could = |at: &usize| self.station(*at).could_hold(self.vector);
        let large: Vec<usize> = self.all.iter().copied().filter(could).collect();
        if large.is_empty() {
            return self.too_large();
        }
        let opens = |at: &usize| self.station(*at).node.is_schedulable();
        let open: Vec<usize> = large.iter().copied().filter(opens).collect();
        if open.is_empty() {
            let detail = format!(
                "all {} nodes that are large enough take no work",
                large.len()
            );
            let node = self.station(large[0]).name.clone();
            return with(Reason::AllBlocked, detail, Unblock::OpenNode { node });
        }
        let mut roomy = open
            .iter()
            .filter(|at| self.station(**at).fits(self.vector));
        if roomy.any(|at| !self.books.is_apart(self.ask, *at)) {
            let detail = "every node with room has others of its group, and it is kept apart";
            return Answer::of(Reason::KeptApart, format!("{detail} from them"));
        }
        let kept = kept_away(self.books, self.ask, self.kept);
        if !kept.is_empty() {
            return self.kept_for_others(&kept);
        }
        self.nearest(&open)
    }

    fn kept_for_others(&self, kept: &[usize]) -> Answer {
        const NAMED: usize = 3;
        let reservations = &self.books.kept.reservations;
        let name = |at: &usize| self.station(*at).name;
        let single = kept
            .iter()
            .filter_map(|at| Some((name(at), reservations.get(name(at))?)));
        let mut told: Vec<String> = single
            .map(|(node, it)| format!("node {node} for work {}", it.work))
            .collect();
        let count = kept.len() - told.len();
        let gang = self.books.kept.gang.as_ref().filter(|_| count > 0);
        if let Some(room) = gang {
            let until = gangs::until(self.books, room);
            let gang = &room.work;
            let text = format!("room on {count} nodes for the gang of work {gang} until {until}");
            told.insert(0, text);
        }
        let more = told.len().saturating_sub(NAMED);
        told.truncate(NAMED);
        if more > 0 {
            told.push(format!("{more} more"));
        }
        let told = told.join(", ");
        let detail = format!("the room there is, is kept for work that waited longer: {told}");
        Answer::of(Reason::NodesReserved, detail)
    }

    /// A named resource that no node it may use has.
    fn not_offered(&self) -> Option<&str> {
        let size = &self.books.asks[self.ask].demand.size;
        let offers = |name: &str| {
            let mut nodes = self.all.iter().map(|at| self.station(*at).node);
            nodes.any(|node| node.capacity.extras.contains_key(name))
        };
        let needed = size.extras.iter().filter(|(_, amount)| **amount > 0);
        let mut names = needed.map(|(name, _)| name.as_str());
        names.find(|name| !offers(name))
    }

    fn too_large(&self) -> Answer {
        if let Some(name) = self.not_offered() {
            let detail = format!("no node it may use offers `{name}`");
            let unblock = Unblock::OfferResource {
                name: name.to_owned(),
            };
            return with(Reason::NoHostLargeEnough, detail, unblock);
        }
        let (order, count) = (self.order, self.all.len());
        let most = self
            .all
            .iter()
            .map(|at| self.station(*at).capacity[0])
            .max();
        let most = most.unwrap_or(0);
        let detail = format!(
            "one process needs {order} quanta, the largest of {count} nodes has {most}, and no \
             node has enough of every type"
        );
        let unblock = if (1..order).contains(&most) {
            Unblock::AskForLess { quanta: most }
        } else {
            Unblock::AddNode { quanta: order }
        };
        with(Reason::NoHostLargeEnough, detail, unblock)
    }

    fn nearest(&self, open: &[usize]) -> Answer {
        let short = |at: &usize| {
            let station = self.station(*at);
            let held = station.used.iter().zip(&station.capacity);
            let over = self.vector.iter().zip(held).map(|(ask, (used, most))| {
                let with = used.saturating_add(*ask);
                if *ask > 0 {
                    with.saturating_sub(*most)
                } else {
                    0
                }
            });
            (over.collect::<Vec<u64>>(), *at)
        };
        // What is short, each type as a part of what is asked, summed up.
        let score = |over: &[u64]| -> u128 {
            let parts = over.iter().zip(self.vector).filter(|(_, ask)| **ask > 0);
            parts
                .map(|(over, ask)| u128::from(*over) * 1_000_000 / u128::from(*ask))
                .sum()
        };
        let nearest = open.iter().map(short);
        let nearest = nearest.min_by_key(|(over, at)| (score(over), *at));
        let (over, at) = nearest.unwrap_or_default();
        let lacking = self.books.dims.amounts(&over);
        let lacking = lacking
            .iter()
            .map(|(name, amount)| format!("{} {name}", told(name, *amount)));
        let lacking: Vec<String> = lacking.collect();
        let what = if lacking.is_empty() {
            "a whole gpu".to_owned()
        } else {
            lacking.join(", ")
        };
        let (count, order) = (open.len(), self.order);
        let node = self.station(at).name.clone();
        let detail = format!(
            "none of {count} nodes has room for {order} quanta; {node} comes nearest and lacks \
             {what}"
        );
        let quanta = over[0];
        with(
            Reason::ResourcesExhausted,
            detail,
            Unblock::FreeRoom { node, quanta },
        )
    }
}
