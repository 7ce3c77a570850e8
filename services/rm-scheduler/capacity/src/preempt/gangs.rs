//! Preemption for a gang: its queue must stay within its guarantee with the whole gang, and the
//! victims must free space for the whole gang. Otherwise the freed space would stay idle.
//!
//! Processes of the gang are simulated one by one, each on the node where the further victims cost
//! least. The set of allowed victims only shrinks, so the nodes stay sorted by cost. A cost is
//! recomputed when its node comes first.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Outcome, PreemptionRequest, find_fence,
    guarantee::Guarantees,
    vacate_victim,
    victims::{Cost, Freed, VictimSearch, is_originator, is_preemptable},
};
use crate::{
    future_free_space::{FutureFreeSpace, Occupancy},
    impossible_gangs::explain_impossible_gang,
    reserve::{
        gang_packing::pack_into,
        gangs::{has_lapsed, reserve_space, reserved_for, waits_since},
    },
    resource_vec::have_common_type,
    round_state::{RoundState, WaitReason},
};

/// Checks the preconditions that do not depend on guarantees, for the representative of the gang.
pub(super) fn may_try(round: &RoundState, item: usize, leaf: usize) -> bool {
    let work_item = &round.items[item];
    let Some(WaitReason::Gang { cause, .. }) = &work_item.wait_reason else {
        return false;
    };
    let cause = cause.as_deref();
    let parts = round.lacking_gang_parts(item);
    // Victims leave for one gang at a time. Otherwise two gangs could each get half of their space.
    // A reservation without victims yields to a guarantee.
    let reservation = round.carried.gang.as_ref();
    let is_open = reservation.is_none_or(|reservation| !reservation.cleared);
    let delay_ms = round.tree.entries[leaf].settings.preemption_delay_ms;
    let may_preempt = |part: &usize| {
        let work_item = &round.items[*part];
        work_item.queued.preempts
            && work_item.queued.required_node.is_none()
            && !round.carried.attempts.contains_key(work_item.work)
    };
    matches!(
        cause,
        Some(WaitReason::NoNode | WaitReason::QueueQuota { .. })
    ) && round.is_gang_representative(item)
        && is_open
        && parts.iter().all(may_preempt)
        && round.snapshot.now.ms_since(waits_since(round, item)) >= delay_ms
        && !has_lapsed(round, item)
        && round.may_run(work_item.app).is_ok()
        && explain_impossible_gang(round, item).is_none()
}

/// Simulates the preemption for the whole gang, and carries it out if it succeeds.
pub(super) fn attempt(
    round: &mut RoundState,
    guarantees: &Guarantees,
    occupancy: &Occupancy,
    item: usize,
    leaf: usize,
) -> Outcome {
    let parts = round.lacking_gang_parts(item);
    let total = round.missing_resources(&parts);
    if !round.user_may_hold(item, &total) || !guarantees.stays_within_guarantee(round, leaf, &total)
    {
        return Outcome::PreconditionsFailed;
    }
    let (fence, missing_quota) = find_fence(round, guarantees, leaf, &total);
    let lowest = parts.iter().copied();
    let lowest = lowest.min_by_key(|part| round.items[*part].queued.priority);
    let request = PreemptionRequest {
        item: lowest.unwrap_or(item),
        leaf,
        fence,
        vector: total,
        missing_quota,
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
            Outcome::NoSolution
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
fn considers_all_nodes(node_count: usize, used_count: usize, victim_count: usize) -> Option<bool> {
    let is_cheap = |nodes: usize| nodes.saturating_mul(victim_count + 1) <= MAX_REPEAT_COST;
    is_cheap(node_count)
        .then_some(true)
        .or(is_cheap(used_count).then_some(false))
}

/// Part and node of each placed process.
type GangPlacement = Vec<(usize, usize)>;

/// Nodes for all processes of a gang, and the victims that make space on them.
struct Solution {
    placement: GangPlacement,
    victims: Vec<usize>,
}

/// The search for nodes and victims of one gang.
struct Attempt<'b, 'a> {
    search: VictimSearch<'b, 'a>,
    /// Candidates by node, in the order in which they are taken.
    by_node: BTreeMap<usize, Vec<usize>>,
    /// Free space after vacated allocations have left.
    after_vacates: BTreeMap<usize, FutureFreeSpace>,
    /// Free space after the victims have left and the processes of the gang are placed.
    after_placement: BTreeMap<usize, FutureFreeSpace>,
    freed: Freed,
    victims: Vec<usize>,
    placement: GangPlacement,
}

impl<'b, 'a> Attempt<'b, 'a> {
    fn new(search: VictimSearch<'b, 'a>, occupancy: &Occupancy) -> Self {
        let round = search.round;
        let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for index in &search.candidates {
            if let Some(node) = round.allocation_states[*index].node {
                by_node.entry(node).or_default().push(*index);
            }
        }
        let node_states = round.nodes.node_states.iter().enumerate();
        // Nodes reserved for other work are excluded. Nodes reserved for a gang without victims are
        // not.
        let open_nodes = node_states.filter(|(_, it)| it.node.is_schedulable() && !it.reserved);
        let after_vacates: BTreeMap<usize, FutureFreeSpace> = open_nodes
            .map(|(node, _)| (node, FutureFreeSpace::after_vacates(round, occupancy, node)))
            .collect();
        Self {
            search,
            by_node,
            after_placement: after_vacates.clone(),
            after_vacates,
            freed: Freed::new(),
            victims: Vec::new(),
            placement: GangPlacement::new(),
        }
    }

    /// Finds nodes for all processes of the parts, and the victims.
    fn run(mut self, parts: &[usize]) -> Option<Solution> {
        let round = self.search.round;
        for part in parts {
            let nodes = self.after_placement.keys().copied();
            let costs = nodes.filter_map(|node| {
                let victims = self.victims_on_node(*part, node)?;
                Some((Cost::new(round, &victims), node))
            });
            let mut nodes_by_cost: BTreeSet<(Cost, usize)> = costs.collect();
            for _ in 0..round.items[*part].missing_gang_processes() {
                let (node, victims) = self.find_cheapest_node(*part, &mut nodes_by_cost)?;
                self.place(*part, node, &victims);
                let victims_after = self.victims_on_node(*part, node);
                nodes_by_cost
                    .extend(victims_after.map(|victims| (Cost::new(round, &victims), node)));
            }
        }
        let victims = std::mem::take(&mut self.victims);
        let mut victims = self.search.with_quota_victims(victims)?;
        // A victim of one process may be unnecessary once all processes are placed. Victims that
        // should be preempted last are spared first: reluctant work, then originators.
        let mut by_importance = victims.clone();
        by_importance.sort_by_key(|victim| {
            (
                is_preemptable(round, *victim),
                !is_originator(round, *victim),
            )
        });
        for victim in by_importance {
            let others: Vec<usize> = victims.iter().copied().filter(|it| *it != victim).collect();
            if let Some(placement) = self.placement_without(victim, &others, parts) {
                self.placement = placement;
                victims = others;
            }
        }
        let placement = self.placement;
        Some(Solution { placement, victims })
    }

    /// Returns the node with the cheapest victims for one more process of this part. A cost in
    /// `nodes_by_cost` may be out of date, and is corrected when its node comes first.
    fn find_cheapest_node(
        &self,
        part: usize,
        nodes_by_cost: &mut BTreeSet<(Cost, usize)>,
    ) -> Option<(usize, Vec<usize>)> {
        loop {
            let (known_cost, node) = nodes_by_cost.pop_first()?;
            let Some(victims) = self.victims_on_node(part, node) else {
                continue;
            };
            let cost = Cost::new(self.search.round, &victims);
            if cost <= known_cost {
                return Some((node, victims));
            }
            nodes_by_cost.insert((cost, node));
        }
    }

    /// Returns a placement of all processes without the victim `staying`, such that no queue lacks
    /// quota.
    fn placement_without(
        &self,
        staying: usize,
        victims: &[usize],
        parts: &[usize],
    ) -> Option<GangPlacement> {
        let round = self.search.round;
        if self.search.lacks_quota(victims) {
            return None;
        }
        let node = round.allocation_states[staying].node;
        if node.is_none_or(|node| self.still_fits_placement(node, victims)) {
            return Some(self.placement.clone());
        }
        // The search is repeated for each victim, so larger problems consider fewer nodes. The
        // largest consider none.
        let used: BTreeSet<usize> = self.placement.iter().map(|(_, node)| *node).collect();
        let considers_all =
            considers_all_nodes(self.after_vacates.len(), used.len(), victims.len())?;
        let mut leaving: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for index in victims {
            if let Some(node) = round.allocation_states[*index].node {
                leaving.entry(node).or_default().push(*index);
            }
        }
        let nodes = self.after_vacates.iter();
        let nodes = nodes.filter(|(node, _)| considers_all || used.contains(node));
        let nodes = nodes.map(|(node, future)| {
            let mut future = future.clone();
            let leaving = leaving.get(node).into_iter().flatten();
            leaving.for_each(|index| future.release(round, *index));
            (*node, future)
        });
        let packing = pack_into(round, nodes, parts)?;
        let placement = packing.iter().flat_map(|(node, works)| {
            let counts = works.iter();
            counts.flat_map(move |(part, count)| (0..*count).map(move |_| (*part, *node)))
        });
        Some(placement.collect())
    }

    /// Returns the victims on the node for one more process of this part.
    fn victims_on_node(&self, part: usize, node: usize) -> Option<Vec<usize>> {
        let round = self.search.round;
        let vector = round.vector(part);
        let is_possible = round.nodes.node_states[node].could_hold(vector)
            && round.meets_constraints(part, node)
            && round.satisfies_anti_affinity_with(part, node, &self.placement);
        if !is_possible {
            return None;
        }
        let before = &self.after_placement[&node];
        let mut future = before.clone();
        let mut victims = Vec::new();
        if !future.fits(vector) {
            let mut freed = self.freed.clone();
            let candidates = self.by_node.get(&node).into_iter().flatten().copied();
            let candidates = candidates.filter(|index| {
                have_common_type(&round.allocation_states[*index].vector, vector)
                    && !self.victims.contains(index)
            });
            for index in candidates {
                if self.search.try_add_victim(index, &mut freed) {
                    future.release(round, index);
                    victims.push(index);
                }
                if future.fits(vector) {
                    break;
                }
            }
        }
        if !future.fits(vector) {
            return None;
        }
        for index in victims.clone() {
            let mut without = before.clone();
            let others = victims.iter().filter(|other| **other != index);
            others.for_each(|other| without.release(round, *other));
            if without.fits(vector) {
                victims.retain(|other| *other != index);
            }
        }
        Some(victims)
    }

    fn place(&mut self, part: usize, node: usize, victims: &[usize]) {
        let round = self.search.round;
        for index in victims {
            let is_added = self.search.try_add_victim(*index, &mut self.freed);
            // The rules allow each subset of an allowed set of victims.
            debug_assert!(is_added, "a victim that no rule allows");
        }
        if let Some(future) = self.after_placement.get_mut(&node) {
            for index in victims {
                future.release(round, *index);
            }
            future.place(round.vector(part));
        }
        self.victims.extend(victims);
        self.placement.push((part, node));
    }

    /// Returns true if the placed processes on this node still fit with only these victims.
    fn still_fits_placement(&self, node: usize, victims: &[usize]) -> bool {
        let round = self.search.round;
        let Some(mut future) = self.after_vacates.get(&node).cloned() else {
            return true;
        };
        let leaving = victims.iter();
        let leaving = leaving.filter(|index| round.allocation_states[**index].node == Some(node));
        leaving.for_each(|index| future.release(round, *index));
        let mut processes = self
            .placement
            .iter()
            .filter(|(_, placed_on)| *placed_on == node);
        processes.all(|(part, _)| {
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
    let mut packing: BTreeMap<usize, BTreeMap<usize, u64>> = BTreeMap::new();
    for (part, node) in placement {
        *packing.entry(*node).or_default().entry(*part).or_default() += 1;
    }
    let queue = round.tree.entries[request.leaf].path.clone();
    for victim in &solution.victims {
        let node = round.allocation_states[*victim].node;
        let process = placement
            .iter()
            .find(|(_, placed_on)| Some(*placed_on) == node);
        let part = process.map_or(request.item, |(part, _)| *part);
        let detail = format!(
            "the guarantee of queue {queue} entitles the gang of work {} to the space on {} nodes, \
             and starts as a whole",
            round.items[part].work,
            packing.len()
        );
        vacate_victim(round, *victim, part, detail);
    }
    // Victims need time to leave, so the lifetime of the reservation starts again. This happens
    // only once, because a lapsed reservation blocks the next one for as long as it lasted.
    let since = round.snapshot.now;
    let reservation = reserved_for(round, request.item);
    debug_assert!(reservation.is_none_or(|reservation| !reservation.cleared));
    reserve_space(round, request.item, &packing, since, true);
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
