//! Frees a node for entitled work by vacating overage. Prefers the node where the fewest processes
//! must leave, then the one that loses the least work. Squatters return to their home pool when
//! work of the pool where they squat waits (W-13).

mod candidate_node;

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use rustc_hash::FxHashMap;

use crate::{
    collections::{dense_set::DenseSet, id_list::IdList},
    ids::{AllocIx, NodeIx, PoolIx, ShapeIx, WorkIx},
    input::snapshot::Policy,
    state::{
        RoundState,
        budget::{BudgetStop, PreemptionBudget},
        serve_order::QueuedWork,
        whole_nodes::is_whole_node_reserved,
    },
};
use candidate_node::{CandidateNode, Evictable, Victims, VictimsFor};

/// Most nodes examined in one round. The next round continues.
const MAX_EXAMINED: u64 = 400_000;

pub(super) fn for_waiting(state: &mut RoundState, tree: PoolIx, queue: &[QueuedWork]) {
    if !queue.iter().any(|entry| waits(state, *entry)) {
        return;
    }
    state.update_future_holes();
    let squatted = squatted(state);
    let mut candidates = EvictionCandidates::new(state, tree);
    // No process is leaving, and none could be preempted.
    if candidates.nodes.is_empty() && squatted.is_empty() {
        return;
    }
    if !squatted.is_empty() {
        // The details must be read before squatters move.
        candidates.read_all_details(state);
    }
    // Shapes for which no node can be cleared, and the shapes among them that a budget stops.
    let mut exhausted_shapes = DenseSet::default();
    let mut budget_stops: FxHashMap<ShapeIx, BudgetStop> = FxHashMap::default();
    for entry in queue {
        if !waits(state, *entry) {
            continue;
        }
        let work = entry.work;
        let work_state = &state.work[work];
        let shape = work_state.shape;
        for _ in work_state.reserved..work_state.missing() {
            if candidates.steps.get() > MAX_EXAMINED {
                state.record_time_dependence();
                break;
            }
            if exhausted_shapes.contains(shape) {
                state.record_budget_stop(work, budget_stops.get(&shape).cloned());
                break;
            }
            if let Err(budget_stop) = clear_best(state, work, &mut candidates) {
                state.record_budget_stop(work, budget_stop.clone());
                if !state.work_record(work).is_constrained() {
                    exhausted_shapes.insert(shape);
                    budget_stops.extend(budget_stop.map(|budget_stop| (shape, budget_stop)));
                }
                break;
            }
        }
        if !squatted.is_empty() && send_squatters_home(state, work, &squatted) {
            candidates.costs.clear();
        }
    }
}

fn waits(state: &RoundState, queued: QueuedWork) -> bool {
    let work_state = &state.work[queued.work];
    queued.policy != Policy::Reserve && work_state.missing() > 0 && !work_state.is_excluded()
}

/// Work that needs space for a process, and the position of a candidate to clear for it.
#[derive(Clone, Copy)]
struct Clearing {
    work: WorkIx,
    position: usize,
}

/// Cost of clearing a candidate for one process. The order of the fields is the order of costs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionCost {
    /// Number of processes that must leave.
    processes: usize,
    /// Milliseconds of work lost with them.
    lost_ms: u64,
    /// Position of the candidate.
    position: usize,
}

/// Costs of clearing each candidate for one shape. They are lower bounds. A cost becomes exact when
/// its candidate comes first.
struct EvictionCosts {
    /// Quanta of one process of the shape.
    quanta: u64,
    /// Heap of the costs. It may contain outdated costs, and `of` has the valid ones.
    cheapest: BinaryHeap<Reverse<EvictionCost>>,
    /// Costs by position of the candidate. `None` if clearing the candidate cannot help.
    by_position: Vec<Option<EvictionCost>>,
    /// First candidate that a budget protects, with that budget.
    budget_stop: Option<(usize, BudgetStop)>,
}

impl EvictionCosts {
    fn new(candidates: &EvictionCandidates, quanta: u64) -> Self {
        let positions = candidates.nodes.iter().enumerate();
        let cost = |(at, it): (usize, &CandidateNode)| it.at_least(quanta, at);
        let by_position: Vec<_> = positions.map(cost).collect();
        let mut cheapest = Vec::with_capacity(2 * by_position.len());
        cheapest.extend(by_position.iter().flatten().copied().map(Reverse));
        Self {
            quanta,
            cheapest: cheapest.into(),
            by_position,
            budget_stop: None,
        }
    }

    fn set(&mut self, position: usize, cost: Option<EvictionCost>) {
        self.by_position[position] = cost;
        self.cheapest.extend(cost.map(Reverse));
    }

    fn first(&mut self) -> Option<EvictionCost> {
        while let Some(Reverse(cost)) = self.cheapest.peek().copied() {
            if self.by_position[cost.position] == Some(cost) {
                return Some(cost);
            }
            self.cheapest.pop();
        }
        None
    }
}

/// Returns the allocations of work beyond its entitlement, sorted by node. Some may be on nodes
/// that this tree cannot use.
fn takeable(state: &RoundState, tree: PoolIx) -> Vec<Evictable> {
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
    let mut evictables = Vec::with_capacity(lists().map(IdList::len).sum());
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
            let load = &index.usage[allocation];
            if !load.fixed && !state.leaving.contains(allocation) {
                evictables.extend(load.node().map(|node| Evictable { node, allocation }));
            }
        });
    evictables.sort_unstable();
    evictables
}

/// Asserts that work of other trees has no allocations in this tree except the known orphans.
#[cfg(test)]
fn assert_orphans_are_complete(state: &RoundState, tree: PoolIx) {
    let others = state.work_in_excess();
    let others = others.filter(|work| state.tree_of(*work).is_some_and(|other| other != tree));
    for allocation in others.flat_map(|work| state.work_record(work).allocations.iter()) {
        let load = &state.index.usage[allocation];
        let is_here = load.node().is_some_and(|node| state.is_in_tree(node, tree));
        let is_protected = load.fixed || state.leaving[allocation];
        assert!(!is_here || is_protected || state.index.orphans.contains(&allocation));
    }
}

struct EvictionCandidates {
    nodes: Vec<CandidateNode>,
    /// Allocations that could be preempted, sorted by node.
    takeable: Vec<Evictable>,
    /// Costs by shape. They only grow, because owners approach their entitlements and space gets
    /// reserved. A cost is computed again when its candidate comes first.
    costs: FxHashMap<ShapeIx, EvictionCosts>,
    /// Number of nodes examined.
    steps: Cell<u64>,
}

impl EvictionCandidates {
    fn new(state: &RoundState, tree: PoolIx) -> Self {
        let loads = &state.index.usage;
        let takeable = takeable(state, tree);
        let leaving = state.index.leaving.iter();
        let leaving = leaving.filter_map(|allocation| loads[*allocation].node());
        let to_vacate = state.vacate_position.keys();
        let to_vacate = to_vacate.filter_map(|allocation| loads[*allocation].node());
        let to_vacate = to_vacate.filter(|node| !state.nodes[*node].to_vacate.is_empty());
        let mut nodes: Vec<NodeIx> = Vec::with_capacity(takeable.len());
        nodes.extend(leaving.chain(to_vacate));
        let evictables = || takeable.chunk_by(|one, other| one.node == other.node);
        nodes.extend(evictables().map(|here| here[0].node));
        nodes.sort_unstable();
        nodes.dedup();
        let mut evictables = evictables().peekable();
        let mut from = 0;
        let mut places = Vec::with_capacity(nodes.len());
        places.extend(nodes.into_iter().filter_map(|node| {
            let here = evictables.next_if(|evictables| evictables[0].node == node);
            let here = here.unwrap_or_default();
            let first = from;
            from += here.len();
            let (pool, future_quanta) = state.derived.node_index.future_key(node)?;
            let is_open = state.forest.root(pool) == tree && !is_whole_node_reserved(state, node);
            is_open.then(|| CandidateNode::new(state, node, future_quanta, &takeable, first..from))
        }));
        Self {
            nodes: places,
            takeable,
            costs: FxHashMap::default(),
            steps: Cell::new(0),
        }
    }

    fn read_all_details(&self, state: &RoundState) {
        for place in &self.nodes {
            place.details(state, &self.takeable);
        }
    }

    fn offer(
        &self,
        state: &RoundState,
        Clearing { work, position }: Clearing,
        list: &mut Victims,
        budget_stop: &mut Option<(usize, BudgetStop)>,
    ) -> Option<EvictionCost> {
        self.steps.update(|steps| steps + 1);
        let node_state = &self.nodes[position];
        let quanta = state.work[work].process_quanta;
        if state.nodes[node_state.node].quanta < quanta
            || !state.is_permitted(work, node_state.node)
        {
            return None;
        }
        let mut budget = state.preemption_budget(node_state.node);
        let all = &self.takeable;
        let victims_for = VictimsFor {
            candidate: node_state,
            all,
            process_quanta: quanta,
            size: state.size(work),
        };
        if list.choose(state, victims_for, &mut budget) {
            return Some(EvictionCost {
                processes: list.chosen.len(),
                lost_ms: list.lost_ms,
                position,
            });
        }
        // Later, there may be budget, or other allocations may be the cheapest to lose.
        if !state.has_time_dependence()
            && (budget.declined || node_state.could_hold(state, all, quanta, state.size(work)))
        {
            state.record_time_dependence();
        }
        let anyhow = &mut PreemptionBudget::unlimited();
        let is_first = budget_stop
            .as_ref()
            .is_none_or(|(first, _)| position < *first);
        if budget.declined && is_first && list.choose(state, victims_for, anyhow) {
            let why = state.budget_stop(node_state.node, &list.chosen);
            *budget_stop = why.map(|why| (position, why));
        }
        None
    }

    /// Finds the node where the fewest processes must leave. The setting `lose_least` breaks ties
    /// by the least lost work. If there is no such node, returns the budget that stopped it.
    fn best(
        &mut self,
        state: &RoundState,
        work: WorkIx,
    ) -> Result<(usize, Vec<AllocIx>), Option<BudgetStop>> {
        let mut list = Victims::default();
        let found = if state.work_record(work).is_constrained() {
            let mut budget_stop = None;
            let costs = (0..self.nodes.len()).filter_map(|position| {
                self.offer(
                    state,
                    Clearing { work, position },
                    &mut list,
                    &mut budget_stop,
                )
            });
            let best = costs.min().ok_or(budget_stop);
            // `list` contains the choice for another candidate by now.
            if let Ok(cost) = best {
                let position = cost.position;
                self.offer(state, Clearing { work, position }, &mut list, &mut None);
            }
            best
        } else {
            let shape = state.work[work].shape;
            let known = self.costs.remove(&shape);
            let mut costs =
                known.unwrap_or_else(|| EvictionCosts::new(self, state.work[work].process_quanta));
            let mut best = None;
            while let Some(old) = costs.first() {
                let position = old.position;
                let now = self.offer(
                    state,
                    Clearing { work, position },
                    &mut list,
                    &mut costs.budget_stop,
                );
                if now == Some(old) {
                    best = Some(old);
                    break;
                }
                costs.set(old.position, now);
            }
            let best = best.ok_or_else(|| costs.budget_stop.clone());
            self.costs.insert(shape, costs);
            best
        };
        let cost = found.map_err(|budget_stop| budget_stop.map(|(_, budget_stop)| budget_stop))?;
        Ok((cost.position, list.chosen))
    }

    /// Updates a node after it was cleared. It may have become cheaper for all shapes.
    fn renew(&mut self, state: &RoundState, position: usize) {
        let node_state = &mut self.nodes[position];
        node_state.renew(state, &self.takeable);
        for costs in self.costs.values_mut() {
            let cost = node_state.at_least(costs.quanta, position);
            costs.set(position, cost);
        }
    }
}

/// Clears the cheapest node for one process and reserves the space. The error contains the budget
/// that stopped it, if any.
fn clear_best(
    state: &mut RoundState,
    work: WorkIx,
    candidates: &mut EvictionCandidates,
) -> Result<(), Option<BudgetStop>> {
    let (position, victims) = candidates.best(state, work)?;
    // The owner of the preempted work reads this, so it names no other user (S12).
    let detail = "makes room for work that is due more";
    for allocation in victims {
        state.preempt(allocation, Some(work), detail.to_owned());
    }
    state.reserve(work, candidates.nodes[position].node);
    candidates.renew(state, position);
    Ok(())
}

/// Returns the nodes with squatters. The list is empty unless `squatters_go_home` is set.
fn squatted(state: &RoundState) -> Vec<NodeIx> {
    if !state.settings.squatters_go_home {
        return Vec::new();
    }
    let squatters = state.index.squatters.iter();
    let stay = squatters.filter(|allocation| !state.leaving[**allocation]);
    let nodes: BTreeSet<NodeIx> = stay
        .filter_map(|allocation| state.allocations[*allocation].node)
        .collect();
    nodes.into_iter().collect()
}

/// Sends squatters home from the nodes of all waiting work (W-13).
pub(super) fn send_all_home(state: &mut RoundState, queue: &[QueuedWork]) {
    let squatted = squatted(state);
    for entry in queue {
        if waits(state, *entry) {
            send_squatters_home(state, entry.work, &squatted);
        }
    }
}

/// Moves squatters from the nodes of waiting work to free nodes of their own pool. They keep their
/// number of processes. Returns whether any moved (W-13).
fn send_squatters_home(state: &mut RoundState, work: WorkIx, squatted: &[NodeIx]) -> bool {
    let Some(home) = state.home(work).filter(|_| !squatted.is_empty()) else {
        return false;
    };
    let mut sent = false;
    let mut missing_processes = state.work[work]
        .missing()
        .saturating_sub(state.work[work].reserved);
    for node in squatted.iter().copied() {
        if missing_processes == 0 {
            break;
        }
        let node_state = &state.nodes[node];
        if node_state.pool != Some(home)
            || !node_state.is_schedulable()
            || !state.is_permitted(work, node)
        {
            continue;
        }
        if clear_of_squatters(state, work, node) {
            missing_processes -= 1;
            sent = true;
        }
    }
    sent
}

/// Moves the squatters of a node if one process of the work fits there afterwards.
fn clear_of_squatters(state: &mut RoundState, work: WorkIx, node: NodeIx) -> bool {
    let (quanta, size) = (state.work[work].process_quanta, state.size(work));
    let mut space = state.future_free(node);
    let mut budget = state.preemption_budget(node);
    let mut moves: Vec<(AllocIx, NodeIx)> = Vec::new();
    for allocation in state.node_record(node).allocations.iter() {
        if space.count_fitting(quanta, size) > 0 {
            break;
        }
        let it = &state.allocations[allocation];
        if let Some(target) =
            way_home(state, allocation, node, &moves).filter(|_| budget.allows(it))
        {
            space.give(it.quanta, &it.size, &it.gpus);
            moves.push((allocation, target));
        }
    }
    if budget.declined {
        state.record_time_dependence();
    }
    if moves.is_empty() || space.count_fitting(quanta, size) == 0 {
        return false;
    }
    for (allocation, target) in moves {
        let Some(owner) = state.allocations[allocation].work else {
            continue;
        };
        let detail = format!("goes home and leaves room to {}", state.id(work));
        state.preempt(allocation, Some(work), detail);
        let (quanta, size) = (state.work[owner].process_quanta, state.size(owner));
        state.grant(owner, target, quanta, size);
    }
    state.reserve(work, node);
    true
}

/// Returns a free node of the squatter's own pool that is not yet a target of `moves`.
fn way_home(
    state: &RoundState,
    allocation: AllocIx,
    node: NodeIx,
    moves: &[(AllocIx, NodeIx)],
) -> Option<NodeIx> {
    let record = &state.allocations[allocation];
    let owner = record.work.filter(|_| !state.leaving[allocation])?;
    let own = state.home(owner)?;
    let pool = state.nodes[node].pool?;
    let squats = state.policy(owner) == Some(Policy::FairShare) && pool != own;
    if !squats || !state.forest.is_within(pool, own) {
        return None;
    }
    let (quanta, size) = (state.work[owner].process_quanta, state.size(owner));
    state.nodes.indices().find(|node| {
        let node_state = &state.nodes[*node];
        node_state.pool == Some(own)
            && node_state.is_schedulable()
            && node_state.whole_node_for.is_none()
            && node_state.reservations.is_empty()
            && !moves.iter().any(|(_, target)| target == node)
            && state.admits(owner, *node)
            && node_state.free.count_fitting(quanta, size) > 0
    })
}
