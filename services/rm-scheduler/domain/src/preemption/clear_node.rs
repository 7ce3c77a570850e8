//! Frees a node for entitled work by vacating overage. Prefers the node where the fewest processes
//! must leave, then the one that loses the least work.
//!
//! The candidates are nodes that processes are leaving or could leave. The exact cost of a
//! candidate is computed only when its lower bound is the least.

mod candidate_node;

use std::{cell::Cell, cmp::Reverse, collections::BinaryHeap};

use rustc_hash::FxHashMap;

use super::{
    is_waiting,
    squatters::{nodes_with_squatters, send_squatters_home},
};
use crate::{
    collections::{bit_set::BitSet, id_list::IdList},
    ids::{AllocIx, NodeIx, PoolIx, ShapeIx, WorkIx},
    state::{
        RoundState,
        budget::{BudgetStop, PreemptionBudget},
        serve_order::QueuedWork,
        whole_nodes::is_whole_node_reserved,
    },
};
use candidate_node::{CandidateNode, Preemptable, VictimSearch, Victims};

/// Maximum number of nodes examined in one round. The next round continues.
const MAX_EXAMINED: u64 = 400_000;

/// Clears nodes for the waiting work of the queue, one process after the other.
pub(super) fn clear_for_waiting_work(state: &mut RoundState, tree: PoolIx, queue: &[QueuedWork]) {
    if !queue.iter().any(|queued| is_waiting(state, *queued)) {
        return;
    }
    state.update_future_holes();
    let squatted_nodes = nodes_with_squatters(state);
    let mut candidates = ClearingCandidates::new(state, tree);
    // Without candidates, no process is leaving, and none could be preempted.
    if candidates.nodes.is_empty() && squatted_nodes.is_empty() {
        return;
    }
    if !squatted_nodes.is_empty() {
        // The details must be read before squatters move.
        candidates.read_all_details(state);
    }
    // Shapes for which no node can be cleared, and the shapes among them that a budget stops.
    let mut exhausted_shapes = BitSet::default();
    let mut budget_stops: FxHashMap<ShapeIx, BudgetStop> = FxHashMap::default();
    for queued in queue {
        if !is_waiting(state, *queued) {
            continue;
        }
        let work = queued.work;
        let work_state = &state.work[work];
        let shape = work_state.shape;
        for _ in work_state.reserved..work_state.missing() {
            if candidates.examined.get() > MAX_EXAMINED {
                state.record_time_dependence();
                break;
            }
            if exhausted_shapes.contains(shape) {
                state.record_budget_stop(work, budget_stops.get(&shape).cloned());
                break;
            }
            if let Err(budget_stop) = clear_cheapest_node(state, work, &mut candidates) {
                state.record_budget_stop(work, budget_stop.clone());
                if !state.work_record(work).is_constrained() {
                    exhausted_shapes.insert(shape);
                    budget_stops.extend(budget_stop.map(|budget_stop| (shape, budget_stop)));
                }
                break;
            }
        }
        if !squatted_nodes.is_empty() && send_squatters_home(state, work, &squatted_nodes) {
            candidates.costs.clear();
        }
    }
}

/// Work that needs space for a process, and the position of a candidate to clear for it.
#[derive(Clone, Copy)]
struct ClearingTarget {
    work: WorkIx,
    position: usize,
}

/// Cost of clearing a candidate for one process. The order of the fields is the order of costs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClearingCost {
    /// Number of processes that must leave.
    processes: usize,
    /// Milliseconds of work lost with them.
    lost_ms: u64,
    /// Position of the candidate.
    position: usize,
}

/// Costs of clearing each candidate for one shape. Each cost is a lower bound at first. It becomes
/// exact when its candidate is the cheapest.
struct ClearingCosts {
    /// Quanta of one process of the shape.
    quanta: u64,
    /// Heap of the costs. It may contain outdated costs, and `by_position` has the valid ones.
    heap: BinaryHeap<Reverse<ClearingCost>>,
    /// Costs by position of the candidate. `None` if clearing the candidate cannot help.
    by_position: Vec<Option<ClearingCost>>,
    /// First candidate that a budget protects, with that budget.
    budget_stop: Option<(usize, BudgetStop)>,
}

impl ClearingCosts {
    fn new(candidates: &ClearingCandidates, quanta: u64) -> Self {
        let positions = candidates.nodes.iter().enumerate();
        let cost =
            |(position, candidate): (usize, &CandidateNode)| candidate.min_cost(quanta, position);
        let by_position: Vec<_> = positions.map(cost).collect();
        let mut heap = Vec::with_capacity(2 * by_position.len());
        heap.extend(by_position.iter().flatten().copied().map(Reverse));
        Self {
            quanta,
            heap: heap.into(),
            by_position,
            budget_stop: None,
        }
    }

    /// Replaces the cost of a candidate.
    fn set(&mut self, position: usize, cost: Option<ClearingCost>) {
        self.by_position[position] = cost;
        self.heap.extend(cost.map(Reverse));
    }

    /// Returns the least valid cost, and drops outdated costs.
    fn cheapest(&mut self) -> Option<ClearingCost> {
        while let Some(Reverse(cost)) = self.heap.peek().copied() {
            if self.by_position[cost.position] == Some(cost) {
                return Some(cost);
            }
            self.heap.pop();
        }
        None
    }
}

/// Returns the allocations of work beyond its entitlement, sorted by node. Some may be on nodes
/// that this tree cannot use.
fn preemptable_by_node(state: &RoundState, tree: PoolIx) -> Vec<Preemptable> {
    let index = state.index;
    let is_other = |work: WorkIx| state.tree_of(work).is_some_and(|other| other != tree);
    let owners: Vec<WorkIx> = state
        .work_in_excess()
        .filter(|work| !is_other(*work))
        .collect();
    let lists = || {
        owners
            .iter()
            .map(|work| &state.work_record(*work).allocations)
    };
    let mut by_node = Vec::with_capacity(lists().map(IdList::len).sum());
    // Work of another tree can hold allocations in this tree from before it moved.
    let exceeds = |work: WorkIx| is_other(work) && state.work[work].excess() > 0;
    let orphans = index.orphans.iter().copied();
    let orphans =
        orphans.filter(|allocation| state.allocations[*allocation].work.is_some_and(exceeds));
    #[cfg(test)]
    assert_orphans_are_complete(state, tree);
    lists()
        .flat_map(IdList::iter)
        .chain(orphans)
        .for_each(|allocation| {
            let record = &index.allocations[allocation];
            if !record.fixed && !state.leaving.contains(allocation) {
                by_node.extend(record.node.map(|node| Preemptable { node, allocation }));
            }
        });
    by_node.sort_unstable();
    by_node
}

/// Asserts that work of other trees has no allocations in this tree except the orphans.
#[cfg(test)]
fn assert_orphans_are_complete(state: &RoundState, tree: PoolIx) {
    let others = state.work_in_excess();
    let others = others.filter(|work| state.tree_of(*work).is_some_and(|other| other != tree));
    for allocation in others.flat_map(|work| state.work_record(work).allocations.iter()) {
        let record = &state.allocations[allocation];
        let node = record.node;
        let is_here = node.is_some_and(|node| state.is_in_tree(node, tree));
        let is_protected = record.fixed || state.leaving[allocation];
        assert!(!is_here || is_protected || state.index.orphans.contains(&allocation));
    }
}

/// All candidates of one tree, with their costs.
struct ClearingCandidates {
    nodes: Vec<CandidateNode>,
    /// Allocations that could be preempted, sorted by node.
    preemptable: Vec<Preemptable>,
    /// Costs by shape. They only grow, because owners approach their entitlements and space gets
    /// reserved. A cost is computed again when its candidate comes first.
    costs: FxHashMap<ShapeIx, ClearingCosts>,
    /// Number of nodes examined.
    examined: Cell<u64>,
}

impl ClearingCandidates {
    fn new(state: &RoundState, tree: PoolIx) -> Self {
        let preemptable = preemptable_by_node(state, tree);
        let leaving = state.index.leaving.iter();
        let leaving = leaving.filter_map(|allocation| state.allocations[*allocation].node);
        let to_vacate = state.vacate_position.keys();
        let to_vacate = to_vacate.filter_map(|allocation| state.allocations[*allocation].node);
        let to_vacate = to_vacate.filter(|node| !state.nodes[*node].to_vacate.is_empty());
        let mut nodes: Vec<NodeIx> = Vec::with_capacity(preemptable.len());
        nodes.extend(leaving.chain(to_vacate));
        let by_node = || preemptable.chunk_by(|one, other| one.node == other.node);
        nodes.extend(by_node().map(|node_allocations| node_allocations[0].node));
        nodes.sort_unstable();
        nodes.dedup();
        let mut groups = by_node().peekable();
        let mut start = 0;
        let mut candidates = Vec::with_capacity(nodes.len());
        candidates.extend(nodes.into_iter().filter_map(|node| {
            let node_allocations = groups.next_if(|group| group[0].node == node);
            let node_allocations = node_allocations.unwrap_or_default();
            let first = start;
            start += node_allocations.len();
            let (pool, future_quanta) = state.derived.node_index.future_key(node)?;
            let is_open = state.forest.root(pool) == tree && !is_whole_node_reserved(state, node);
            is_open
                .then(|| CandidateNode::new(state, node, future_quanta, &preemptable, first..start))
        }));
        Self {
            nodes: candidates,
            preemptable,
            costs: FxHashMap::default(),
            examined: Cell::new(0),
        }
    }

    fn read_all_details(&self, state: &RoundState) {
        for candidate in &self.nodes {
            candidate.details(state, &self.preemptable);
        }
    }

    /// Computes the cost of clearing the candidate for the work. Returns `None` if the candidate
    /// cannot be cleared. If a budget is the reason, sets `budget_stop`.
    fn cost_of(
        &self,
        state: &RoundState,
        ClearingTarget { work, position }: ClearingTarget,
        victims: &mut Victims,
        budget_stop: &mut Option<(usize, BudgetStop)>,
    ) -> Option<ClearingCost> {
        self.examined.update(|examined| examined + 1);
        let candidate = &self.nodes[position];
        let quanta = state.work[work].process_quanta;
        if state.nodes[candidate.node].quanta < quanta || !state.is_permitted(work, candidate.node)
        {
            return None;
        }
        let mut budget = state.preemption_budget(candidate.node);
        let all = &self.preemptable;
        let search = VictimSearch {
            candidate,
            all,
            process_quanta: quanta,
            size: state.size(work),
        };
        if victims.choose(state, search, &mut budget) {
            return Some(ClearingCost {
                processes: victims.chosen.len(),
                lost_ms: victims.lost_ms,
                position,
            });
        }
        // Later, there may be budget, or other allocations may be the cheapest to lose.
        if !state.has_time_dependence()
            && (budget.declined || candidate.could_hold(state, all, quanta, state.size(work)))
        {
            state.record_time_dependence();
        }
        let unlimited = &mut PreemptionBudget::unlimited();
        let is_earlier = budget_stop
            .as_ref()
            .is_none_or(|(first, _)| position < *first);
        if budget.declined && is_earlier && victims.choose(state, search, unlimited) {
            let stop = state.budget_stop(candidate.node, &victims.chosen);
            *budget_stop = stop.map(|stop| (position, stop));
        }
        None
    }

    /// Finds the node where the fewest processes must leave. The setting `lose_least` breaks ties
    /// by the least lost work. If there is no such node, returns the budget that stopped it.
    fn cheapest_candidate(
        &mut self,
        state: &RoundState,
        work: WorkIx,
    ) -> Result<(usize, Vec<AllocIx>), Option<BudgetStop>> {
        let mut victims = Victims::default();
        let cheapest = if state.work_record(work).is_constrained() {
            let mut budget_stop = None;
            let costs = (0..self.nodes.len()).filter_map(|position| {
                self.cost_of(
                    state,
                    ClearingTarget { work, position },
                    &mut victims,
                    &mut budget_stop,
                )
            });
            let cheapest = costs.min().ok_or(budget_stop);
            // `victims` contains the choice for another candidate by now.
            if let Ok(cost) = cheapest {
                let position = cost.position;
                self.cost_of(
                    state,
                    ClearingTarget { work, position },
                    &mut victims,
                    &mut None,
                );
            }
            cheapest
        } else {
            let shape = state.work[work].shape;
            let cached = self.costs.remove(&shape);
            let mut costs =
                cached.unwrap_or_else(|| ClearingCosts::new(self, state.work[work].process_quanta));
            let mut cheapest = None;
            while let Some(bound) = costs.cheapest() {
                let position = bound.position;
                let actual = self.cost_of(
                    state,
                    ClearingTarget { work, position },
                    &mut victims,
                    &mut costs.budget_stop,
                );
                if actual == Some(bound) {
                    cheapest = Some(bound);
                    break;
                }
                costs.set(bound.position, actual);
            }
            let cheapest = cheapest.ok_or_else(|| costs.budget_stop.clone());
            self.costs.insert(shape, costs);
            cheapest
        };
        let cost =
            cheapest.map_err(|budget_stop| budget_stop.map(|(_, budget_stop)| budget_stop))?;
        Ok((cost.position, victims.chosen))
    }

    /// Updates a candidate after its node was cleared, because its cost may be lower for all
    /// shapes.
    fn update(&mut self, state: &RoundState, position: usize) {
        let candidate = &mut self.nodes[position];
        candidate.update(state, &self.preemptable);
        for costs in self.costs.values_mut() {
            let cost = candidate.min_cost(costs.quanta, position);
            costs.set(position, cost);
        }
    }
}

/// Clears the cheapest node for one process and reserves the space. The error contains the budget
/// that stopped it, if any.
fn clear_cheapest_node(
    state: &mut RoundState,
    work: WorkIx,
    candidates: &mut ClearingCandidates,
) -> Result<(), Option<BudgetStop>> {
    let (position, victims) = candidates.cheapest_candidate(state, work)?;
    // The owner of the preempted work reads this, so it names no other user (S12).
    let detail = "makes room for work that is due more";
    for allocation in victims {
        state.preempt(allocation, Some(work), detail.to_owned());
    }
    state.reserve(work, candidates.nodes[position].node);
    candidates.update(state, position);
    Ok(())
}
