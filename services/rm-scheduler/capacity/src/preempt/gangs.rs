//! Preemption for a gang: its queue must stay within its guarantee with the whole gang, and the
//! victims must free space for the whole gang. Otherwise the freed space would stay idle.
//! Processes of the gang are simulated one by one, each on the node where the further victims cost
//! least. The set of allowed victims only shrinks, so the nodes stay sorted by cost. A cost is
//! recomputed when its node comes first.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Outcome, PreemptionRequest, fence,
    guarantee::Guarantees,
    vacate_victim,
    victims::{Cost, Freed, VictimSearch, is_originator, is_willing},
};
use crate::{
    future_nodes::{FutureNode, Occupancy},
    impossible::impossible_gang,
    reserve::{
        gang_fit::pack_into,
        gangs::{has_lapsed, reserve_space, reserved_for, waits_since},
    },
    resource_vec::share_a_type,
    round_state::{RoundState, Why},
};

/// Checks the preconditions that do not depend on guarantees, for the representative of the gang.
pub(super) fn may_try(round: &RoundState, item: usize, leaf: usize) -> bool {
    let it = &round.items[item];
    let Some(Why::Gang { because, .. }) = &it.why else {
        return false;
    };
    let because = because.as_deref();
    let parts = round.lacking_gang_parts(item);
    // Victims leave for one gang at a time. Otherwise two gangs could each get half of their space.
    // A reservation without victims yields to a guarantee.
    let reservation = round.carried.gang.as_ref();
    let open = reservation.is_none_or(|reservation| !reservation.cleared);
    let delay = round.tree.entries[leaf].settings.preemption_delay_ms;
    let may = |part: &usize| {
        let it = &round.items[*part];
        it.queued.preempts
            && it.queued.required_node.is_none()
            && !round.carried.attempts.contains_key(it.work)
    };
    matches!(because, Some(Why::NoNode | Why::QueueQuota { .. }))
        && round.is_gang_representative(item)
        && open
        && parts.iter().all(may)
        && round.snapshot.now.ms_since(waits_since(round, item)) >= delay
        && !has_lapsed(round, item)
        && round.may_run(it.app).is_ok()
        && impossible_gang(round, item).is_none()
}

pub(super) fn attempt(
    round: &mut RoundState,
    guarantees: &Guarantees,
    occupancy: &Occupancy,
    item: usize,
    leaf: usize,
) -> Outcome {
    let parts = round.lacking_gang_parts(item);
    let total = round.missing_resources(&parts);
    if !round.user_may_hold(item, &total) || !guarantees.is_short(round, leaf, &total) {
        return Outcome::PreconditionsFailed;
    }
    let (fence, short) = fence(round, guarantees, leaf, &total);
    let lowest = parts.iter().copied();
    let lowest = lowest.min_by_key(|part| round.items[*part].queued.priority);
    let request = PreemptionRequest {
        item: lowest.unwrap_or(item),
        leaf,
        fence,
        vector: total,
        short,
    };
    let search = VictimSearch::new(round, guarantees, &request);
    match Attempt::new(search, occupancy).run(&parts) {
        None => {
            let now = round.snapshot.now;
            for part in parts {
                round
                    .carried
                    .attempts
                    .insert(round.items[part].work.clone(), now);
            }
            Outcome::DoesNotHelp
        }
        Some(solution) => {
            commit(round, &request, &solution);
            Outcome::Done
        }
    }
}

/// Maximum product of nodes and victims for which the search is repeated.
const MAX_REPEAT_COST: usize = 100_000;

/// Returns true if a repeated search may consider all nodes, and false if it may consider only the
/// used ones. Returns `None` if even those are too many for this number of victims.
fn considers_all_nodes(all: usize, used: usize, victims: usize) -> Option<bool> {
    let few = |nodes: usize| nodes.saturating_mul(victims + 1) <= MAX_REPEAT_COST;
    few(all).then_some(true).or(few(used).then_some(false))
}

/// Part and node of each placed process.
type GangPlacement = Vec<(usize, usize)>;

/// Nodes for all processes of a gang, and the victims that make space on them.
struct Solution {
    placement: GangPlacement,
    victims: Vec<usize>,
}

struct Attempt<'b, 'a> {
    search: VictimSearch<'b, 'a>,
    /// Candidates by node, in the order in which they are taken.
    by_node: BTreeMap<usize, Vec<usize>>,
    /// Free space after vacated allocations have left.
    soon: BTreeMap<usize, FutureNode>,
    /// Free space after the victims have left and the processes of the gang are placed.
    future: BTreeMap<usize, FutureNode>,
    freed: Freed,
    victims: Vec<usize>,
    placement: GangPlacement,
}

impl<'b, 'a> Attempt<'b, 'a> {
    fn new(search: VictimSearch<'b, 'a>, occupancy: &Occupancy) -> Self {
        let round = search.round;
        let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in &search.candidates {
            if let Some(node) = round.held[*at].node {
                by_node.entry(node).or_default().push(*at);
            }
        }
        let node_states = round.nodes.node_states.iter().enumerate();
        // Nodes reserved for other work are excluded. Nodes reserved for a gang without victims are
        // not.
        let open = node_states.filter(|(_, it)| it.node.is_schedulable() && !it.reserved);
        let soon: BTreeMap<usize, FutureNode> = open
            .map(|(node, _)| (node, FutureNode::soon(round, occupancy, node)))
            .collect();
        Self {
            search,
            by_node,
            future: soon.clone(),
            soon,
            freed: Freed::new(),
            victims: Vec::new(),
            placement: GangPlacement::new(),
        }
    }

    /// Finds nodes for all processes of the parts, and the victims.
    fn run(mut self, parts: &[usize]) -> Option<Solution> {
        let round = self.search.round;
        for part in parts {
            let nodes = self.future.keys().copied();
            let costs = nodes.filter_map(|node| {
                let victims = self.on_node(*part, node)?;
                Some((Cost::new(round, &victims), node))
            });
            let mut order: BTreeSet<(Cost, usize)> = costs.collect();
            for _ in 0..round.items[*part].gang_lacks() {
                let (node, victims) = self.cheapest(*part, &mut order)?;
                self.place(*part, node, &victims);
                let next = self.on_node(*part, node);
                order.extend(next.map(|victims| (Cost::new(round, &victims), node)));
            }
        }
        let victims = std::mem::take(&mut self.victims);
        let mut victims = self.search.with_others(victims)?;
        // A victim of one process may be unnecessary once all processes are placed. Reluctant
        // victims are spared first, then originators.
        let mut order = victims.clone();
        order.sort_by_key(|at| (is_willing(round, *at), !is_originator(round, *at)));
        for at in order {
            let others: Vec<usize> = victims.iter().copied().filter(|it| *it != at).collect();
            if let Some(placement) = self.without(at, &others, parts) {
                self.placement = placement;
                victims = others;
            }
        }
        let placement = self.placement;
        Some(Solution { placement, victims })
    }

    /// Returns the node with the cheapest victims for one more process of this part. A cost in
    /// `order` may be out of date, and is corrected when its node comes first.
    fn cheapest(
        &self,
        part: usize,
        order: &mut BTreeSet<(Cost, usize)>,
    ) -> Option<(usize, Vec<usize>)> {
        loop {
            let (before, node) = order.pop_first()?;
            let Some(victims) = self.on_node(part, node) else {
                continue;
            };
            let cost = Cost::new(self.search.round, &victims);
            if cost <= before {
                return Some((node, victims));
            }
            order.insert((cost, node));
        }
    }

    /// Returns a placement of all processes without the victim `stays`, such that no queue lacks
    /// quota.
    fn without(&self, stays: usize, victims: &[usize], parts: &[usize]) -> Option<GangPlacement> {
        let round = self.search.round;
        if self.search.is_short(victims) {
            return None;
        }
        let node = round.held[stays].node;
        if node.is_none_or(|node| self.still_fits_placement(node, victims)) {
            return Some(self.placement.clone());
        }
        // The search is repeated for each victim, so larger problems consider fewer nodes. The
        // largest consider none.
        let used: BTreeSet<usize> = self.placement.iter().map(|(_, node)| *node).collect();
        let all = considers_all_nodes(self.soon.len(), used.len(), victims.len())?;
        let mut gone: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in victims {
            if let Some(node) = round.held[*at].node {
                gone.entry(node).or_default().push(*at);
            }
        }
        let nodes = self.soon.iter();
        let nodes = nodes.filter(|(node, _)| all || used.contains(node));
        let nodes = nodes.map(|(node, soon)| {
            let mut future = soon.clone();
            let gone = gone.get(node).into_iter().flatten();
            gone.for_each(|at| future.free(round, *at));
            (*node, future)
        });
        let found = pack_into(round, nodes, parts)?;
        let placement = found.iter().flat_map(|(node, works)| {
            let each = works.iter();
            each.flat_map(move |(part, count)| (0..*count).map(move |_| (*part, *node)))
        });
        Some(placement.collect())
    }

    /// Returns the victims on the node for one more process of this part.
    fn on_node(&self, part: usize, node: usize) -> Option<Vec<usize>> {
        let round = self.search.round;
        let vector = round.vector(part);
        let possible = round.nodes.node_states[node].could_hold(vector)
            && round.suits(part, node)
            && round.is_apart_from(part, node, &self.placement);
        if !possible {
            return None;
        }
        let base = &self.future[&node];
        let mut future = base.clone();
        let mut victims = Vec::new();
        if !future.fits(vector) {
            let mut freed = self.freed.clone();
            let here = self.by_node.get(&node).into_iter().flatten().copied();
            let here = here.filter(|at| {
                share_a_type(&round.held[*at].vector, vector) && !self.victims.contains(at)
            });
            for at in here {
                if self.search.try_take(at, &mut freed) {
                    future.free(round, at);
                    victims.push(at);
                }
                if future.fits(vector) {
                    break;
                }
            }
        }
        if !future.fits(vector) {
            return None;
        }
        for at in victims.clone() {
            let mut without = base.clone();
            let others = victims.iter().filter(|other| **other != at);
            others.for_each(|other| without.free(round, *other));
            if without.fits(vector) {
                victims.retain(|other| *other != at);
            }
        }
        Some(victims)
    }

    fn place(&mut self, part: usize, node: usize, victims: &[usize]) {
        let round = self.search.round;
        for at in victims {
            let taken = self.search.try_take(*at, &mut self.freed);
            // A victim allowed among more victims is allowed among fewer.
            debug_assert!(taken, "a victim that no law allows");
        }
        if let Some(future) = self.future.get_mut(&node) {
            for at in victims {
                future.free(round, *at);
            }
            future.place(round.vector(part));
        }
        self.victims.extend(victims);
        self.placement.push((part, node));
    }

    /// Returns true if the placed processes on this node still fit with only these victims.
    fn still_fits_placement(&self, node: usize, victims: &[usize]) -> bool {
        let round = self.search.round;
        let Some(mut future) = self.soon.get(&node).cloned() else {
            return true;
        };
        let gone = victims.iter();
        let gone = gone.filter(|at| round.held[**at].node == Some(node));
        gone.for_each(|at| future.free(round, *at));
        let mut here = self.placement.iter().filter(|(_, on)| *on == node);
        here.all(|(part, _)| {
            let vector = round.vector(*part);
            let fits = future.fits(vector);
            future.place(vector);
            fits
        })
    }
}

/// Vacates all victims and reserves the space for the gang.
fn commit(round: &mut RoundState, request: &PreemptionRequest, solution: &Solution) {
    let placement = &solution.placement;
    let mut found: BTreeMap<usize, BTreeMap<usize, u64>> = BTreeMap::new();
    for (part, node) in placement {
        *found.entry(*node).or_default().entry(*part).or_default() += 1;
    }
    let queue = round.tree.entries[request.leaf].path.clone();
    for victim in &solution.victims {
        let node = round.held[*victim].node;
        let on_it = placement.iter().find(|(_, on)| Some(*on) == node);
        let part = on_it.map_or(request.item, |(part, _)| *part);
        let detail = format!(
            "the guarantee of queue {queue} entitles the gang of work {} to the space on {} nodes, \
             and starts as a whole",
            round.items[part].work,
            found.len()
        );
        vacate_victim(round, *victim, part, detail);
    }
    // Victims need time to leave, so the reservation starts again. It restarts only once, because a
    // lapsed reservation blocks the next one for as long as it lasted.
    let since = round.snapshot.now;
    let reservation = reserved_for(round, request.item);
    debug_assert!(reservation.is_none_or(|reservation| !reservation.cleared));
    reserve_space(round, request.item, &found, since, true);
}

#[cfg(test)]
mod tests {
    use super::considers_all_nodes;

    #[test]
    fn large_numbers_of_victims_limit_the_search() {
        assert_eq!(considers_all_nodes(10_000, 9, 9), Some(true));
        assert_eq!(considers_all_nodes(10_000, 9, 10), Some(false));
        assert_eq!(considers_all_nodes(10_000, 2_000, 49), Some(false));
        assert_eq!(considers_all_nodes(10_000, 2_000, 50), None);
        assert_eq!(considers_all_nodes(usize::MAX, usize::MAX, 9), None);
    }
}
