//! Processes change places, so that room which is there in pieces comes together (W-3).
//!
//! Counts are made as if processes lay in the best order, so work can be due a process and find no
//! room for it although nobody has more than the due. Mending helps only who has little, and at the
//! cost of others. Here nobody loses: one process moves to another node, what stands in its way
//! there moves to where it came from, and what stays free in its old place lets the waiting process
//! in. All of them are due what they have, so each exchange brings one more process to its place,
//! and there is never a reason to undo it.

use std::collections::{BTreeMap, BTreeSet};

use super::donors::was_hit_lately;
use crate::{
    input::snapshot::Policy,
    placement::serve_order::{is_by_age, lacking_in_order},
    state::RoundState,
};

/// Exchanges in one round at most; the rest follows in later ones.
const EXCHANGES: usize = 16;

pub(super) fn swap(state: &mut RoundState, tree: usize) {
    if !state.settings.exchange || !state.settings.count_leaving_room {
        return;
    }
    let waiting = waiting(state, tree);
    let Some(least) = waiting
        .iter()
        .map(|at| state.work[*at].process_quanta)
        .min()
    else {
        return;
    };
    state.update_future_holes();
    let mut places = places(state, tree, least);
    let mut hopeless = BTreeSet::new();
    let mut left = EXCHANGES;
    for at in waiting {
        let shape = state.work[at].shape;
        while left > 0 && lacking(state, at) > 0 && !hopeless.contains(&shape) {
            let Some(moves) = best(state, &places, at) else {
                hopeless.insert(shape);
                break;
            };
            let (from, to) = (moves.from, moves.to);
            carry_out(state, at, moves);
            left -= 1;
            for place in [from, to] {
                places[place] = Place::of(state, places[place].node);
            }
        }
    }
}

/// Counted processes for which no room is on its way.
fn lacking(state: &RoundState, at: usize) -> u64 {
    let work = &state.work[at];
    work.missing().saturating_sub(work.reserved)
}

/// The oldest first.
fn waiting(state: &RoundState, tree: usize) -> Vec<usize> {
    let waits = |at: &usize| {
        let work = &state.work[*at];
        !work.is_excluded()
            && state.policy(*at) == Some(Policy::FairShare)
            && !state.work_record(*at).is_constrained()
            && lacking(state, *at) > 0
    };
    let queue = lacking_in_order(state, tree).into_iter();
    let mut waiting: Vec<usize> = queue.map(|(_, at)| at).filter(waits).collect();
    if !is_by_age(state, tree) || !is_of_one_priority(state, &waiting) {
        waiting.sort_by(|one, other| state.age(*one).cmp(&state.age(*other)));
    }
    waiting
}

fn is_of_one_priority(state: &RoundState, work: &[usize]) -> bool {
    let priority = |at: &usize| {
        let class = state.work[*at].class;
        class.map(|class| state.classes[class].class.priority)
    };
    work.windows(2)
        .all(|two| priority(&two[0]) == priority(&two[1]))
}

/// A node with free room, and what could move from there.
struct Place {
    node: usize,
    /// Once everything that leaves has left.
    free: u64,
    /// By order; what costs least to lose comes first.
    movers: BTreeMap<u64, Vec<Mover>>,
}

#[derive(Clone, Copy)]
struct Mover {
    lost_ms: u64,
    allocation: usize,
    owner: usize,
}

impl Place {
    fn of(state: &RoundState, node: usize) -> Self {
        let mut lots: BTreeMap<u64, Vec<Mover>> = BTreeMap::new();
        for allocation in state.node_record(node).allocations.iter() {
            let record = &state.allocations[allocation];
            let Some(owner) = record.work.filter(|it| may_move(state, allocation, *it)) else {
                continue;
            };
            let lost_ms = state.invested_ms(allocation);
            let lot = lots.entry(record.quanta).or_default();
            lot.push(Mover {
                lost_ms,
                allocation,
                owner,
            });
        }
        for lot in lots.values_mut() {
            // Stable: shares on a node ascend by id.
            lot.sort_by_key(|mover| mover.lost_ms);
        }
        Self {
            node,
            free: state.future_free(node).quanta,
            movers: lots,
        }
    }
}

/// It is due where it is, and would get the same elsewhere.
fn may_move(state: &RoundState, allocation: usize, owner: usize) -> bool {
    let (share, work) = (&state.allocations[allocation], &state.work[owner]);
    let same = share.quanta == work.process_quanta && share.size == *state.size(owner);
    let stays = !state.leaving[allocation] && !share.fixed && share.running;
    same && stays
        && state.policy(owner) == Some(Policy::FairShare)
        && work.has() <= work.counted
        && !was_hit_lately(state, owner)
}

/// Nodes whose free room could come together with that of another to hold this order.
fn places(state: &RoundState, tree: usize, quanta: u64) -> Vec<Place> {
    let (pools, future_holes) = (
        state.forest.subtree(tree),
        &state.derived.node_index.future_holes,
    );
    let is_own = |at: &usize| state.nodes[*at].whole_node_for.is_none();
    let most = pools.iter().map(|pool| future_holes.most(*pool)).max();
    let least = quanta.saturating_sub(most.unwrap_or(0));
    let enough = pools
        .iter()
        .flat_map(|pool| future_holes.with(*pool, least));
    let mut enough: Vec<usize> = enough.filter(is_own).collect();
    enough.sort_unstable();
    enough.into_iter().map(|at| Place::of(state, at)).collect()
}

/// One process leaves `from` for `to`, and those it displaces there take its place.
struct Moves {
    from: usize,
    to: usize,
    nodes: (usize, usize),
    mover: Mover,
    displaced: Vec<Mover>,
}

/// The exchange in which the fewest move, and of these the one that loses the least work.
fn best(state: &RoundState, places: &[Place], at: usize) -> Option<Moves> {
    let quanta = state.work[at].process_quanta;
    let mut best: Option<((usize, u64), Moves)> = None;
    for (from, old) in places.iter().enumerate() {
        if !state.is_permitted(at, old.node) {
            continue;
        }
        for (size, movers) in &old.movers {
            let Some(mover) = movers.first() else {
                continue;
            };
            for (to, new) in places.iter().enumerate() {
                // What may come back, if the waiting process is to fit as well.
                let Some(back) = (old.free + size).checked_sub(quanta) else {
                    continue;
                };
                let lack = size.saturating_sub(new.free);
                // Nobody comes to squat, or goes home, by changing places.
                let pool = |place: &Place| state.nodes[place.node].pool;
                if from == to || lack > back || pool(old) != pool(new) {
                    continue;
                }
                for displaced in displaced(new, lack, back) {
                    let lost = displaced.iter().map(|it| it.lost_ms).sum::<u64>();
                    let cost = (displaced.len(), lost.saturating_add(mover.lost_ms));
                    if best.as_ref().is_some_and(|(least, _)| *least <= cost) {
                        continue;
                    }
                    let moves = Moves {
                        from,
                        to,
                        nodes: (old.node, new.node),
                        mover: *mover,
                        displaced,
                    };
                    if fits(state, at, &moves) {
                        best = Some((cost, moves));
                    } else {
                        // Others may be the cheapest to move later.
                        state.note_time_dependence();
                    }
                }
            }
        }
    }
    best.map(|(_, moves)| moves)
}

/// Processes of one order that make up what is lacking and find room again: those that cost least,
/// by order.
fn displaced(place: &Place, lack: u64, back: u64) -> Vec<Vec<Mover>> {
    if lack == 0 {
        return vec![Vec::new()];
    }
    let of_order = |(quanta, lot): (&u64, &Vec<Mover>)| {
        let count = lack.div_ceil(*quanta);
        let chosen = lot.get(..usize::try_from(count).ok()?)?;
        (count * quanta <= back).then(|| chosen.to_vec())
    };
    place.movers.iter().filter_map(of_order).collect()
}

/// By the full vector and single gpus, and by who may be where.
fn fits(state: &RoundState, at: usize, moves: &Moves) -> bool {
    let (from, to) = moves.nodes;
    let (mut old, mut new) = (state.future_free(from), state.future_free(to));
    // Both nodes are of one pool.
    let mut budget = state.preemption_budget(from);
    let mut movers = moves.displaced.iter().chain([&moves.mover]);
    if !movers.all(|it| budget.allows(&state.allocations[it.allocation])) {
        return false;
    }
    let allocation = &state.allocations[moves.mover.allocation];
    old.give(allocation.quanta, &allocation.size, &allocation.gpus);
    for back in &moves.displaced {
        let allocation = &state.allocations[back.allocation];
        new.give(allocation.quanta, &allocation.size, &allocation.gpus);
        if old.fitting(allocation.quanta, &allocation.size) == 0
            || !state.is_permitted(back.owner, from)
        {
            return false;
        }
        let gpus = old.choose_gpus(allocation.size.gpu_milli);
        old.take(allocation.quanta, &allocation.size, &gpus);
    }
    let waiting = &state.work[at];
    state.is_permitted(moves.mover.owner, to)
        && new.fitting(allocation.quanta, &allocation.size) > 0
        && old.fitting(waiting.process_quanta, state.size(at)) > 0
}

fn carry_out(state: &mut RoundState, at: usize, moves: Moves) {
    let (from, to) = moves.nodes;
    let detail = format!("changes places to let {} in", state.id(at));
    for it in moves.displaced.iter().chain([&moves.mover]) {
        state.preempt(it.allocation, Some(at), detail.clone());
    }
    state.reserve(moves.mover.owner, to);
    for back in moves.displaced {
        state.reserve(back.owner, from);
    }
    state.reserve(at, from);
}

#[cfg(test)]
mod tests {
    use crate::tests::{
        fixture::{Fixture, node_name, share},
        random_fleets::{Draw, fleet},
    };

    /// A process of three quanta on each of two nodes leaves an odd quantum on both.
    fn odd_ends(exchange: bool) -> Fixture {
        let mut fixture = Fixture::eager().nodes(&[8, 8]);
        fixture.snapshot.tunables.settings.exchange = exchange;
        for (id, node) in [("one", "n00"), ("two", "n01")] {
            let work_record = fixture.job(id, "a", 3);
            (work_record.max_processes, work_record.machines) = (1, [node_name(node)].into());
        }
        fixture.step();
        for id in ["one", "two"] {
            fixture.of(id).machines.clear();
        }
        fixture.job("small", "b", 2).max_processes = 5;
        fixture
    }

    #[test]
    fn w_3_odd_ends_come_together() {
        let over_rounds = |exchange| {
            let mut fixture = odd_ends(exchange);
            let mut receipts = 0;
            for _ in 0..12 {
                receipts += fixture.step().receipts.len();
            }
            let plan = fixture.plan();
            assert!(plan.is_empty(), "it comes to rest");
            let current = ["one", "two", "small"].map(|id| share(&plan, id).current);
            (current, receipts)
        };
        assert_eq!(over_rounds(false), ([1, 1, 4], 0));
        // The large one goes to the other, and one small one the other way.
        assert_eq!(over_rounds(true), ([1, 1, 5], 2));
    }

    #[test]
    fn exchanges_come_to_an_end() {
        let rests = |seed: u64, exchange: bool| {
            let mut fixture = fleet(&mut Draw::new(seed + 40_000));
            fixture.snapshot.tunables.settings.exchange = exchange;
            for _ in 0..40 {
                fixture.step();
            }
            fixture.plan().receipts.is_empty()
        };
        // Some of these fleets do not rest by their own settings.
        for seed in 0..300 {
            assert!(rests(seed, true) || !rests(seed, false), "seed {seed}");
        }
    }
}
