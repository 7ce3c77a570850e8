//! Swaps processes between two nodes, so that fragmented free space is joined (W-3).
//!
//! Entitlements assume an ideal packing. Entitled work may therefore find no node although no work
//! exceeds its entitlement. A swap moves one process to another node, and processes from that node
//! to the old node. Afterwards the old node has enough space for a waiting process. No owner loses
//! a process, so no later round has a reason to undo a swap.

use std::collections::{BTreeMap, BTreeSet};

use super::donors::gave_recently;
use crate::{
    ids::{AllocIx, NodeIx, PoolIx, WorkIx},
    input::snapshot::Policy,
    state::{
        RoundState,
        serve_order::{is_ordered_by_age, to_serve_in_order},
    },
};

/// Maximum number of swaps in one round. Further swaps follow in later rounds.
const MAX_SWAPS: usize = 16;

/// Swaps processes between nodes, so that waiting work fits.
pub(crate) fn swap(state: &mut RoundState, tree: PoolIx) {
    if !state.settings.exchange || !state.settings.count_leaving_room {
        return;
    }
    let waiting = waiting_work(state, tree);
    let Some(least) = waiting
        .iter()
        .map(|work| state.work[*work].process_quanta)
        .min()
    else {
        return;
    };
    state.update_future_holes();
    let mut swap_nodes = swap_nodes(state, tree, least);
    let mut exhausted_shapes = BTreeSet::new();
    let mut remaining_swaps = MAX_SWAPS;
    for work in waiting {
        let shape = state.work[work].shape;
        while remaining_swaps > 0
            && unserved_processes(state, work) > 0
            && !exhausted_shapes.contains(&shape)
        {
            let Some(swap) = best_swap(state, &swap_nodes, work) else {
                exhausted_shapes.insert(shape);
                break;
            };
            let positions = [swap.from_position, swap.to_position];
            apply_swap(state, work, swap);
            remaining_swaps -= 1;
            for position in positions {
                swap_nodes[position] = SwapNode::new(state, swap_nodes[position].node);
            }
        }
    }
}

/// Returns the number of entitled processes without a node or a reservation.
fn unserved_processes(state: &RoundState, work: WorkIx) -> u64 {
    let work_state = &state.work[work];
    work_state.missing().saturating_sub(work_state.reserved)
}

/// Returns the fair-share work that waits, oldest first.
fn waiting_work(state: &RoundState, tree: PoolIx) -> Vec<WorkIx> {
    let waits = |work: &WorkIx| {
        let work_state = &state.work[*work];
        !work_state.is_excluded()
            && state.policy(*work) == Some(Policy::FairShare)
            && !state.work_record(*work).is_constrained()
            && unserved_processes(state, *work) > 0
    };
    let queue = to_serve_in_order(state, tree).into_iter();
    let mut waiting: Vec<WorkIx> = queue.map(|queued| queued.work).filter(waits).collect();
    if !is_ordered_by_age(state, tree) || !have_same_priority(state, &waiting) {
        waiting.sort_by(|one, other| state.age_key(*one).cmp(&state.age_key(*other)));
    }
    waiting
}

fn have_same_priority(state: &RoundState, all: &[WorkIx]) -> bool {
    let priority = |work: &WorkIx| {
        let class = state.work[*work].class;
        class.map(|class| state.classes[class].class.priority)
    };
    all.windows(2)
        .all(|pair| priority(&pair[0]) == priority(&pair[1]))
}

/// A node with free space, and the processes that could move away.
struct SwapNode {
    node: NodeIx,
    /// Quanta that are free once everything that leaves has left.
    free: u64,
    /// Processes that could move, by their quanta. Processes that lose the least work come first.
    movers: BTreeMap<u64, Vec<Mover>>,
}

/// Process that could move to the other node.
#[derive(Clone, Copy)]
struct Mover {
    /// Milliseconds of work that are lost if the process moves.
    lost_ms: u64,
    allocation: AllocIx,
    owner: WorkIx,
}

impl SwapNode {
    fn new(state: &RoundState, node: NodeIx) -> Self {
        let mut movers: BTreeMap<u64, Vec<Mover>> = BTreeMap::new();
        for allocation in state.node_record(node).allocations.iter() {
            let record = &state.allocations[allocation];
            let Some(owner) = record
                .work
                .filter(|owner| may_move(state, allocation, *owner))
            else {
                continue;
            };
            let lost_ms = state.invested_ms(allocation);
            let same_size = movers.entry(record.quanta).or_default();
            same_size.push(Mover {
                lost_ms,
                allocation,
                owner,
            });
        }
        for same_size in movers.values_mut() {
            // The sort is stable, so equal allocations stay in ascending order of their ids.
            same_size.sort_by_key(|mover| mover.lost_ms);
        }
        Self {
            node,
            free: state.future_free(node).quanta,
            movers,
        }
    }
}

/// Returns whether the allocation is within its owner's entitlement and would have the same size
/// elsewhere.
fn may_move(state: &RoundState, allocation: AllocIx, owner: WorkIx) -> bool {
    let (record, work) = (&state.allocations[allocation], &state.work[owner]);
    let has_same_size = record.quanta == work.process_quanta && record.size == *state.size(owner);
    let is_preemptable = !state.leaving[allocation] && !record.fixed && record.running;
    has_same_size
        && is_preemptable
        && state.policy(owner) == Some(Policy::FairShare)
        && work.process_count() <= work.entitlement
        && !gave_recently(state, owner)
}

/// Returns the nodes whose free space, joined with that of another node, could hold `quanta`.
fn swap_nodes(state: &RoundState, tree: PoolIx, quanta: u64) -> Vec<SwapNode> {
    let (pools, future_holes) = (
        state.forest.subtree(tree),
        &state.derived.node_index.future_holes,
    );
    let is_unreserved = |node: &NodeIx| state.nodes[*node].whole_node_for.is_none();
    let largest_hole = pools
        .iter()
        .map(|pool| future_holes.max_future_quanta(*pool))
        .max();
    let least = quanta.saturating_sub(largest_hole.unwrap_or(0));
    let candidates = pools
        .iter()
        .flat_map(|pool| future_holes.nodes_with(*pool, least));
    let mut candidates: Vec<NodeIx> = candidates.filter(is_unreserved).collect();
    candidates.sort_unstable();
    candidates
        .into_iter()
        .map(|node| SwapNode::new(state, node))
        .collect()
}

/// Move of one process to another node. The processes that it displaces there move to its old node.
struct Swap {
    /// Position of the old node in the list of nodes.
    from_position: usize,
    /// Position of the new node in the list of nodes.
    to_position: usize,
    from: NodeIx,
    to: NodeIx,
    mover: Mover,
    displaced: Vec<Mover>,
}

/// Returns the swap that moves the fewest processes. Among several, returns the one that loses the
/// least work.
fn best_swap(state: &RoundState, swap_nodes: &[SwapNode], work: WorkIx) -> Option<Swap> {
    let quanta = state.work[work].process_quanta;
    let mut best: Option<((usize, u64), Swap)> = None;
    for (from_position, old) in swap_nodes.iter().enumerate() {
        if !state.is_permitted(work, old.node) {
            continue;
        }
        for (size, movers) in &old.movers {
            let Some(mover) = movers.first() else {
                continue;
            };
            for (to_position, new) in swap_nodes.iter().enumerate() {
                // Quanta that may move back while the waiting process still fits.
                let Some(returning) = (old.free + size).checked_sub(quanta) else {
                    continue;
                };
                let missing = size.saturating_sub(new.free);
                // Both nodes are of one pool, so that no process becomes a squatter.
                let pool = |swap_node: &SwapNode| state.nodes[swap_node.node].pool;
                if from_position == to_position || missing > returning || pool(old) != pool(new) {
                    continue;
                }
                for displaced in displacement_choices(new, missing, returning) {
                    let lost = displaced.iter().map(|mover| mover.lost_ms).sum::<u64>();
                    let cost = (displaced.len(), lost.saturating_add(mover.lost_ms));
                    if best.as_ref().is_some_and(|(least, _)| *least <= cost) {
                        continue;
                    }
                    let swap = Swap {
                        from_position,
                        to_position,
                        from: old.node,
                        to: new.node,
                        mover: *mover,
                        displaced,
                    };
                    if fits(state, work, &swap) {
                        best = Some((cost, swap));
                    } else {
                        // Work lost grows with time, so other processes may be the cheapest to move
                        // later.
                        state.record_time_dependence();
                    }
                }
            }
        }
    }
    best.map(|(_, swap)| swap)
}

/// Returns choices of processes to displace, at most one choice for each process size. A choice has
/// the cheapest processes that free `missing` quanta and take at most `returning` on the old node.
fn displacement_choices(swap_node: &SwapNode, missing: u64, returning: u64) -> Vec<Vec<Mover>> {
    if missing == 0 {
        return vec![Vec::new()];
    }
    let cheapest_of_size = |(quanta, same_size): (&u64, &Vec<Mover>)| {
        let count = missing.div_ceil(*quanta);
        let chosen = same_size.get(..usize::try_from(count).ok()?)?;
        (count * quanta <= returning).then(|| chosen.to_vec())
    };
    swap_node
        .movers
        .iter()
        .filter_map(cheapest_of_size)
        .collect()
}

/// Returns whether a swap is possible in all dimensions, on single GPUs, and within budgets and
/// constraints.
fn fits(state: &RoundState, work: WorkIx, swap: &Swap) -> bool {
    let (from, to) = (swap.from, swap.to);
    let (mut old, mut new) = (state.future_free(from), state.future_free(to));
    // Both nodes are of one pool, so they share a budget.
    let mut budget = state.preemption_budget(from);
    let mut movers = swap.displaced.iter().chain([&swap.mover]);
    if !movers.all(|mover| budget.allows(&state.allocations[mover.allocation])) {
        return false;
    }
    let allocation = &state.allocations[swap.mover.allocation];
    old.give(allocation.quanta, &allocation.size, &allocation.gpus);
    for returning in &swap.displaced {
        let allocation = &state.allocations[returning.allocation];
        new.give(allocation.quanta, &allocation.size, &allocation.gpus);
        if old.count_fitting(allocation.quanta, &allocation.size) == 0
            || !state.is_permitted(returning.owner, from)
        {
            return false;
        }
        let gpus = old.choose_gpus(allocation.size.gpu_milli);
        old.take(allocation.quanta, &allocation.size, &gpus);
    }
    let waiting = &state.work[work];
    state.is_permitted(swap.mover.owner, to)
        && new.count_fitting(allocation.quanta, &allocation.size) > 0
        && old.count_fitting(waiting.process_quanta, state.size(work)) > 0
}

/// Preempts all processes of the swap, and reserves their new space.
fn apply_swap(state: &mut RoundState, work: WorkIx, swap: Swap) {
    let (from, to) = (swap.from, swap.to);
    let detail = format!("changes places to let {} in", state.id(work));
    for mover in swap.displaced.iter().chain([&swap.mover]) {
        state.preempt(mover.allocation, Some(work), detail.clone());
    }
    state.reserve(swap.mover.owner, to);
    for returning in swap.displaced {
        state.reserve(returning.owner, from);
    }
    state.reserve(work, from);
}

#[cfg(test)]
mod tests {
    use crate::tests::{
        fixture::{Fixture, node_name, share},
        random_fleets::{Random, fleet},
    };

    /// Offset that gives this test other fleets than other tests have.
    const SEED_OFFSET: u64 = 40_000;

    /// Builds a fleet of two nodes of 8 quanta with a process of 3 quanta on each. Job `small`
    /// wants 5 processes of 2 quanta, but only 2 of them fit into the 5 free quanta of each node.
    fn fragmented_fleet(exchange: bool) -> Fixture {
        let mut fixture = Fixture::eager().nodes(&[8, 8]);
        fixture.snapshot.tunables.settings.exchange = exchange;
        for (id, node) in [("one", "n00"), ("two", "n01")] {
            let demand = fixture.job(id, "a", 3);
            (demand.max_processes, demand.node_list) = (1, [node_name(node)].into());
        }
        fixture.step();
        for id in ["one", "two"] {
            fixture.demand_mut(id).node_list.clear();
        }
        fixture.job("small", "b", 2).max_processes = 5;
        fixture
    }

    #[test]
    fn a_swap_joins_free_pieces_of_two_nodes() {
        let run = |exchange| {
            let mut fixture = fragmented_fleet(exchange);
            let mut receipts = 0;
            for _ in 0..12 {
                receipts += fixture.step().receipts.len();
            }
            let plan = fixture.plan();
            assert!(plan.is_empty(), "the fleet is stable");
            let current = ["one", "two", "small"].map(|id| share(&plan, id).current);
            (current, receipts)
        };
        assert_eq!(run(false), ([1, 1, 4], 0));
        // The large process moves to the other node, and one small process moves back.
        assert_eq!(run(true), ([1, 1, 5], 2));
    }

    #[test]
    fn swaps_end_on_a_steady_fleet() {
        let is_stable = |seed: u64, exchange: bool| {
            let mut fixture = fleet(&mut Random::new(SEED_OFFSET + seed));
            fixture.snapshot.tunables.settings.exchange = exchange;
            for _ in 0..40 {
                fixture.step();
            }
            fixture.plan().receipts.is_empty()
        };
        // Some of these fleets are not stable even without swaps.
        for seed in 0..300 {
            assert!(
                is_stable(seed, true) || !is_stable(seed, false),
                "seed {seed}"
            );
        }
    }
}
