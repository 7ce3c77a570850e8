//! Verdict of work that fits no node, and what would unblock it.

use hayward_rm_scheduler_domain::{Reason, plan::Unblock};

use super::Explanation;
use crate::{
    amount::amount_text,
    nodes::NodeState,
    reserve::{blocking_reservations, gangs},
    resource_vec::QUANTA,
    round_state::RoundState,
};

/// The search for the reason why a work item fits no node. The allowed nodes are filtered by one
/// condition after another. The first condition that excludes all of them is the reason.
struct Search<'b, 'a> {
    round: &'b RoundState<'a>,
    item: usize,
    /// Nodes that are reserved for any work.
    reserved: &'b [usize],
    /// Nodes that the work names, or all nodes of the pool if it names none.
    candidates: Vec<usize>,
    vector: &'b [u64],
    quanta: u64,
}

pub(super) fn explain_no_fitting_node(
    round: &RoundState,
    item: usize,
    reserved: &[usize],
) -> Explanation {
    let candidates = round.candidates(item);
    let search = Search {
        round,
        item,
        reserved,
        candidates: candidates.unwrap_or_else(|| (0..round.nodes.node_states.len()).collect()),
        vector: round.vector(item),
        quanta: round.shapes[round.items[item].shape].quanta,
    };
    search.explain()
}

fn with_unblock(reason: Reason, detail: String, unblock: Unblock) -> Explanation {
    Explanation {
        unblock: Some(unblock),
        ..Explanation::new(reason, detail)
    }
}

impl Search<'_, '_> {
    fn node_state(&self, node: usize) -> &NodeState<'_> {
        &self.round.nodes.node_states[node]
    }

    fn explain(&self) -> Explanation {
        if self.candidates.is_empty() && !self.round.items[self.item].may_use_any_node {
            let detail = "none of the nodes it may use is in its pool".to_owned();
            let unblock = Unblock::AddNode {
                quanta: self.quanta,
            };
            return with_unblock(Reason::NoListedMachine, detail, unblock);
        }
        let could_hold = |node: &usize| self.node_state(*node).could_hold(self.vector);
        let large_enough: Vec<usize> = self.candidates.iter().copied().filter(could_hold).collect();
        if large_enough.is_empty() {
            return self.explain_too_large();
        }
        let is_open = |node: &usize| self.node_state(*node).node.is_schedulable();
        let open_nodes: Vec<usize> = large_enough.iter().copied().filter(is_open).collect();
        if open_nodes.is_empty() {
            let detail = format!(
                "all {} nodes that are large enough take no work",
                large_enough.len()
            );
            let node = self.node_state(large_enough[0]).name.clone();
            return with_unblock(Reason::AllBlocked, detail, Unblock::OpenNode { node });
        }
        let mut with_free_space = open_nodes
            .iter()
            .filter(|node| self.node_state(**node).fits(self.vector));
        if with_free_space.any(|node| !self.round.satisfies_anti_affinity(self.item, *node)) {
            let detail = "every node with room has others of its group, and it is kept apart";
            return Explanation::new(Reason::AntiAffinity, format!("{detail} from them"));
        }
        let reserved = blocking_reservations(self.round, self.item, self.reserved);
        if !reserved.is_empty() {
            return self.explain_reserved(&reserved);
        }
        self.explain_nearest(&open_nodes)
    }

    fn explain_reserved(&self, reserved: &[usize]) -> Explanation {
        const MAX_LISTED: usize = 3;
        let reservations = &self.round.carried.reservations;
        let name = |node: &usize| self.node_state(*node).name;
        let single_reservations = reserved
            .iter()
            .filter_map(|node| Some((name(node), reservations.get(name(node))?)));
        let mut texts: Vec<String> = single_reservations
            .map(|(node, reservation)| format!("node {node} for work {}", reservation.work))
            .collect();
        let count = reserved.len() - texts.len();
        let gang = self.round.carried.gang.as_ref().filter(|_| count > 0);
        if let Some(reservation) = gang {
            let until = gangs::expiry(self.round, reservation);
            let gang = &reservation.work;
            let text = format!("room on {count} nodes for the gang of work {gang} until {until}");
            texts.insert(0, text);
        }
        let more = texts.len().saturating_sub(MAX_LISTED);
        texts.truncate(MAX_LISTED);
        if more > 0 {
            texts.push(format!("{more} more"));
        }
        let texts = texts.join(", ");
        let detail = format!("the free space is reserved for work that waited longer: {texts}");
        Explanation::new(Reason::NodesReserved, detail)
    }

    /// Returns a named resource that no allowed node offers.
    fn find_missing_resource(&self) -> Option<&str> {
        let size = &self.round.items[self.item].demand.size;
        let is_offered = |name: &str| {
            let mut nodes = self
                .candidates
                .iter()
                .map(|node| self.node_state(*node).node);
            nodes.any(|node| node.capacity.extras.contains_key(name))
        };
        let needed = size.extras.iter().filter(|(_, amount)| **amount > 0);
        let mut names = needed.map(|(name, _)| name.as_str());
        names.find(|name| !is_offered(name))
    }

    fn explain_too_large(&self) -> Explanation {
        if let Some(name) = self.find_missing_resource() {
            let detail = format!("no node it may use offers `{name}`");
            let unblock = Unblock::OfferResource {
                name: name.to_owned(),
            };
            return with_unblock(Reason::NoHostLargeEnough, detail, unblock);
        }
        let (quanta, count) = (self.quanta, self.candidates.len());
        let max_quanta = self
            .candidates
            .iter()
            .map(|node| self.node_state(*node).capacity[QUANTA])
            .max();
        let max_quanta = max_quanta.unwrap_or(0);
        let detail = format!(
            "one process needs {quanta} quanta, the largest of {count} nodes has {max_quanta}, and \
             no node has enough of every type"
        );
        let unblock = if (1..quanta).contains(&max_quanta) {
            Unblock::AskForLess { quanta: max_quanta }
        } else {
            Unblock::AddNode { quanta }
        };
        with_unblock(Reason::NoHostLargeEnough, detail, unblock)
    }

    fn explain_nearest(&self, open_nodes: &[usize]) -> Explanation {
        const SCALE: u128 = 1_000_000;
        let shortage_of_node = |node: &usize| {
            let node_state = self.node_state(*node);
            let used_and_capacity = node_state.used.iter().zip(&node_state.capacity);
            let shortage =
                self.vector
                    .iter()
                    .zip(used_and_capacity)
                    .map(|(amount, (used, capacity))| {
                        let needed = used.saturating_add(*amount);
                        if *amount > 0 {
                            needed.saturating_sub(*capacity)
                        } else {
                            0
                        }
                    });
            (shortage.collect::<Vec<u64>>(), *node)
        };
        // Sum of the lacking fractions of the needed resources, in millionths.
        let score = |shortage: &[u64]| -> u128 {
            let needed_parts = shortage
                .iter()
                .zip(self.vector)
                .filter(|(_, amount)| **amount > 0);
            needed_parts
                .map(|(shortage, amount)| u128::from(*shortage) * SCALE / u128::from(*amount))
                .sum()
        };
        let nearest = open_nodes.iter().map(shortage_of_node);
        let nearest = nearest.min_by_key(|(shortage, node)| (score(shortage), *node));
        let (shortage, node) = nearest.unwrap_or_default();
        let missing = self.round.dims.amounts(&shortage);
        let missing = missing
            .iter()
            .map(|(name, amount)| format!("{} {name}", amount_text(name, *amount)));
        let missing: Vec<String> = missing.collect();
        let missing_text = if missing.is_empty() {
            "a whole gpu".to_owned()
        } else {
            missing.join(", ")
        };
        let (count, quanta) = (open_nodes.len(), self.quanta);
        let node = self.node_state(node).name.clone();
        let detail = format!(
            "none of {count} nodes has room for {quanta} quanta; {node} comes nearest and lacks \
             {missing_text}"
        );
        let quanta = shortage[QUANTA];
        with_unblock(
            Reason::ResourcesExhausted,
            detail,
            Unblock::FreeRoom { node, quanta },
        )
    }
}
