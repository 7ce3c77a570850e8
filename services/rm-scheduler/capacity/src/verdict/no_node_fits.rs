//! Verdict of work that fits no node, and what would unblock it.

use hayward_rm_scheduler_domain::{Reason, plan::Unblock};

use super::Answer;
use crate::{
    amount::amount_text,
    nodes::NodeState,
    reserve::{blocking_reservations, gangs},
    round_state::RoundState,
};

/// Nodes allowed for a work item, filtered by one reason after another.
struct Search<'b, 'a> {
    round: &'b RoundState<'a>,
    item: usize,
    /// Nodes reserved for other work.
    reserved: &'b [usize],
    /// Nodes that the work names, or all nodes of the pool if it names none.
    all: Vec<usize>,
    vector: &'b [u64],
    order: u64,
}

pub(super) fn no_node_fits(round: &RoundState, item: usize, reserved: &[usize]) -> Answer {
    let all = round.candidates(item);
    let search = Search {
        round,
        item,
        reserved,
        all: all.unwrap_or_else(|| (0..round.nodes.node_states.len()).collect()),
        vector: round.vector(item),
        order: round.shapes[round.items[item].shape].order,
    };
    search.answer()
}

fn with(reason: Reason, detail: String, unblock: Unblock) -> Answer {
    Answer {
        unblock: Some(unblock),
        ..Answer::new(reason, detail)
    }
}

impl Search<'_, '_> {
    fn node_state(&self, at: usize) -> &NodeState<'_> {
        &self.round.nodes.node_states[at]
    }

    fn answer(&self) -> Answer {
        if self.all.is_empty() && !self.round.items[self.item].anywhere {
            let detail = "none of the nodes it may use is in its pool".to_owned();
            let unblock = Unblock::AddNode { quanta: self.order };
            return with(Reason::NoListedMachine, detail, unblock);
        }
        let could = |at: &usize| self.node_state(*at).could_hold(self.vector);
        let large: Vec<usize> = self.all.iter().copied().filter(could).collect();
        if large.is_empty() {
            return self.too_large();
        }
        let opens = |at: &usize| self.node_state(*at).node.is_schedulable();
        let open: Vec<usize> = large.iter().copied().filter(opens).collect();
        if open.is_empty() {
            let detail = format!(
                "all {} nodes that are large enough take no work",
                large.len()
            );
            let node = self.node_state(large[0]).name.clone();
            return with(Reason::AllBlocked, detail, Unblock::OpenNode { node });
        }
        let mut with_space = open
            .iter()
            .filter(|at| self.node_state(**at).fits(self.vector));
        if with_space.any(|at| !self.round.is_apart(self.item, *at)) {
            let detail = "every node with room has others of its group, and it is kept apart";
            return Answer::new(Reason::KeptApart, format!("{detail} from them"));
        }
        let reserved = blocking_reservations(self.round, self.item, self.reserved);
        if !reserved.is_empty() {
            return self.reserved_for_others(&reserved);
        }
        self.nearest(&open)
    }

    fn reserved_for_others(&self, reserved: &[usize]) -> Answer {
        const NAMED: usize = 3;
        let reservations = &self.round.carried.reservations;
        let name = |at: &usize| self.node_state(*at).name;
        let single = reserved
            .iter()
            .filter_map(|at| Some((name(at), reservations.get(name(at))?)));
        let mut texts: Vec<String> = single
            .map(|(node, it)| format!("node {node} for work {}", it.work))
            .collect();
        let count = reserved.len() - texts.len();
        let gang = self.round.carried.gang.as_ref().filter(|_| count > 0);
        if let Some(reservation) = gang {
            let until = gangs::until(self.round, reservation);
            let gang = &reservation.work;
            let text = format!("room on {count} nodes for the gang of work {gang} until {until}");
            texts.insert(0, text);
        }
        let more = texts.len().saturating_sub(NAMED);
        texts.truncate(NAMED);
        if more > 0 {
            texts.push(format!("{more} more"));
        }
        let texts = texts.join(", ");
        let detail = format!("the free space is reserved for work that waited longer: {texts}");
        Answer::new(Reason::NodesReserved, detail)
    }

    /// Returns a named resource that no allowed node offers.
    fn not_offered(&self) -> Option<&str> {
        let size = &self.round.items[self.item].demand.size;
        let offers = |name: &str| {
            let mut nodes = self.all.iter().map(|at| self.node_state(*at).node);
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
            .map(|at| self.node_state(*at).capacity[0])
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
            let node_state = self.node_state(*at);
            let held = node_state.used.iter().zip(&node_state.capacity);
            let over = self.vector.iter().zip(held).map(|(item, (used, most))| {
                let with = used.saturating_add(*item);
                if *item > 0 {
                    with.saturating_sub(*most)
                } else {
                    0
                }
            });
            (over.collect::<Vec<u64>>(), *at)
        };
        // Sum of the lacking fractions of the needed resources.
        let score = |over: &[u64]| -> u128 {
            let parts = over.iter().zip(self.vector).filter(|(_, item)| **item > 0);
            parts
                .map(|(over, item)| u128::from(*over) * 1_000_000 / u128::from(*item))
                .sum()
        };
        let nearest = open.iter().map(short);
        let nearest = nearest.min_by_key(|(over, at)| (score(over), *at));
        let (over, at) = nearest.unwrap_or_default();
        let lacking = self.round.dims.amounts(&over);
        let lacking = lacking
            .iter()
            .map(|(name, amount)| format!("{} {name}", amount_text(name, *amount)));
        let lacking: Vec<String> = lacking.collect();
        let what = if lacking.is_empty() {
            "a whole gpu".to_owned()
        } else {
            lacking.join(", ")
        };
        let (count, order) = (open.len(), self.order);
        let node = self.node_state(at).name.clone();
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
