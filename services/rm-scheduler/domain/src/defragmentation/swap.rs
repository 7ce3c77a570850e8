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
    placement::serve_order::{go_by_age, lacking_in_turn},
    state::Books,
};

/// Exchanges in one round at most; the rest follows in later ones.
const EXCHANGES: usize = 16;

pub(crate) fn exchange(books: &mut Books, tree: usize) {
    if !books.settings.exchange || !books.settings.count_leaving_room {
        return;
    }
    let waiting = waiting(books, tree);
    let Some(least) = waiting.iter().map(|at| books.requests[*at].order).min() else {
        return;
    };
    books.follow_prospects();
    let mut places = places(books, tree, least);
    let mut hopeless = BTreeSet::new();
    let mut left = EXCHANGES;
    for at in waiting {
        let shape = books.requests[at].shape;
        while left > 0 && lacking(books, at) > 0 && !hopeless.contains(&shape) {
            let Some(moves) = best(books, &places, at) else {
                hopeless.insert(shape);
                break;
            };
            let (from, to) = (moves.from, moves.to);
            carry_out(books, at, moves);
            left -= 1;
            for place in [from, to] {
                places[place] = Place::of(books, places[place].machine);
            }
        }
    }
}

/// Counted processes for which no room is on its way.
fn lacking(books: &Books, at: usize) -> u64 {
    let request = &books.requests[at];
    request.missing().saturating_sub(request.coming)
}

/// The oldest first.
fn waiting(books: &Books, tree: usize) -> Vec<usize> {
    let waits = |at: &usize| {
        let request = &books.requests[*at];
        !request.is_out()
            && books.policy(*at) == Some(Policy::FairShare)
            && !books.demand(*at).is_picky()
            && lacking(books, *at) > 0
    };
    let turns = lacking_in_turn(books, tree).into_iter();
    let mut waiting: Vec<usize> = turns.map(|(_, at)| at).filter(waits).collect();
    if !go_by_age(books, tree) || !is_of_one_priority(books, &waiting) {
        waiting.sort_by(|one, other| books.age(*one).cmp(&books.age(*other)));
    }
    waiting
}

fn is_of_one_priority(books: &Books, work: &[usize]) -> bool {
    let priority = |at: &usize| {
        let class = books.requests[*at].class;
        class.map(|class| books.classes[class].class.priority)
    };
    work.windows(2)
        .all(|two| priority(&two[0]) == priority(&two[1]))
}

/// A node with free room, and what could move from there.
struct Place {
    machine: usize,
    /// Once everything that leaves has left.
    free: u64,
    /// By order; what costs least to lose comes first.
    lots: BTreeMap<u64, Vec<Mover>>,
}

#[derive(Clone, Copy)]
struct Mover {
    lost_ms: u64,
    held: usize,
    owner: usize,
}

impl Place {
    fn of(books: &Books, machine: usize) -> Self {
        let mut lots: BTreeMap<u64, Vec<Mover>> = BTreeMap::new();
        for held in books.station(machine).held.iter() {
            let share = &books.held[held];
            let Some(owner) = share.request.filter(|it| may_move(books, held, *it)) else {
                continue;
            };
            let lost_ms = books.invested_ms(held);
            let lot = lots.entry(share.order).or_default();
            lot.push(Mover {
                lost_ms,
                held,
                owner,
            });
        }
        for lot in lots.values_mut() {
            // Stable: shares on a node ascend by id.
            lot.sort_by_key(|mover| mover.lost_ms);
        }
        Self {
            machine,
            free: books.coming_room(machine).order,
            lots,
        }
    }
}

/// It is due where it is, and would get the same elsewhere.
fn may_move(books: &Books, held: usize, owner: usize) -> bool {
    let (share, request) = (&books.held[held], &books.requests[owner]);
    let same = share.order == request.order && share.size == *books.size(owner);
    let stays = !books.leaving[held] && !share.fixed && share.running;
    same && stays
        && books.policy(owner) == Some(Policy::FairShare)
        && request.has() <= request.counted
        && !was_hit_lately(books, owner)
}

/// Nodes whose free room could come together with that of another to hold this order.
fn places(books: &Books, tree: usize, order: u64) -> Vec<Place> {
    let (pools, prospects) = (books.forest.subtree(tree), &books.sets.rooms.prospects);
    let is_own = |at: &usize| books.machines[*at].promised_to.is_none();
    let most = pools.iter().map(|pool| prospects.most(*pool)).max();
    let least = order.saturating_sub(most.unwrap_or(0));
    let enough = pools.iter().flat_map(|pool| prospects.with(*pool, least));
    let mut enough: Vec<usize> = enough.filter(is_own).collect();
    enough.sort_unstable();
    enough.into_iter().map(|at| Place::of(books, at)).collect()
}

/// One process leaves `from` for `to`, and those it displaces there take its place.
struct Moves {
    from: usize,
    to: usize,
    machines: (usize, usize),
    mover: Mover,
    displaced: Vec<Mover>,
}

/// The exchange in which the fewest move, and of these the one that loses the least work.
fn best(books: &Books, places: &[Place], at: usize) -> Option<Moves> {
    let order = books.requests[at].order;
    let mut best: Option<((usize, u64), Moves)> = None;
    for (from, old) in places.iter().enumerate() {
        if !books.is_permitted(at, old.machine) {
            continue;
        }
        for (size, movers) in &old.lots {
            let Some(mover) = movers.first() else {
                continue;
            };
            for (to, new) in places.iter().enumerate() {
                // What may come back, if the waiting process is to fit as well.
                let Some(back) = (old.free + size).checked_sub(order) else {
                    continue;
                };
                let lack = size.saturating_sub(new.free);
                // Nobody comes to squat, or goes home, by changing places.
                let pool = |place: &Place| books.machines[place.machine].pool;
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
                        machines: (old.machine, new.machine),
                        mover: *mover,
                        displaced,
                    };
                    if fits(books, at, &moves) {
                        best = Some((cost, moves));
                    } else {
                        // Others may be the cheapest to move later.
                        books.passes();
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
    let of_order = |(order, lot): (&u64, &Vec<Mover>)| {
        let count = lack.div_ceil(*order);
        let chosen = lot.get(..usize::try_from(count).ok()?)?;
        (count * order <= back).then(|| chosen.to_vec())
    };
    place.lots.iter().filter_map(of_order).collect()
}

/// By the full vector and single gpus, and by who may be where.
fn fits(books: &Books, at: usize, moves: &Moves) -> bool {
    let (from, to) = moves.machines;
    let (mut old, mut new) = (books.coming_room(from), books.coming_room(to));
    // Both nodes are of one pool.
    let mut purse = books.purse(from);
    let mut movers = moves.displaced.iter().chain([&moves.mover]);
    if !movers.all(|it| purse.allows(&books.held[it.held])) {
        return false;
    }
    let share = &books.held[moves.mover.held];
    old.give(share.order, &share.size, &share.gpus);
    for back in &moves.displaced {
        let share = &books.held[back.held];
        new.give(share.order, &share.size, &share.gpus);
        if old.fitting(share.order, &share.size) == 0 || !books.is_permitted(back.owner, from) {
            return false;
        }
        let gpus = old.choose_gpus(share.size.gpu_milli);
        old.take(share.order, &share.size, &gpus);
    }
    let waiting = &books.requests[at];
    books.is_permitted(moves.mover.owner, to)
        && new.fitting(share.order, &share.size) > 0
        && old.fitting(waiting.order, books.size(at)) > 0
}

fn carry_out(books: &mut Books, at: usize, moves: Moves) {
    let (from, to) = moves.machines;
    let detail = format!("changes places to let {} in", books.id(at));
    for it in moves.displaced.iter().chain([&moves.mover]) {
        books.preempt(it.held, Some(at), detail.clone());
    }
    books.speak_for(moves.mover.owner, to);
    for back in moves.displaced {
        books.speak_for(back.owner, from);
    }
    books.speak_for(at, from);
}

#[cfg(test)]
mod tests {
    use crate::tests::{
        fixture::{World, node_name, share},
        random_fleets::{Draw, fleet},
    };

    /// A process of three quanta on each of two nodes leaves an odd quantum on both.
    fn odd_ends(exchange: bool) -> World {
        let mut world = World::eager().nodes(&[8, 8]);
        world.snapshot.tunables.settings.exchange = exchange;
        for (id, node) in [("one", "n00"), ("two", "n01")] {
            let demand = world.job(id, "a", 3);
            (demand.max_processes, demand.machines) = (1, [node_name(node)].into());
        }
        world.step();
        for id in ["one", "two"] {
            world.of(id).machines.clear();
        }
        world.job("small", "b", 2).max_processes = 5;
        world
    }

    #[test]
    fn w_3_odd_ends_come_together() {
        let over_rounds = |exchange| {
            let mut world = odd_ends(exchange);
            let mut receipts = 0;
            for _ in 0..12 {
                receipts += world.step().receipts.len();
            }
            let plan = world.plan();
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
            let mut world = fleet(&mut Draw::new(seed + 40_000));
            world.snapshot.tunables.settings.exchange = exchange;
            for _ in 0..40 {
                world.step();
            }
            world.plan().receipts.is_empty()
        };
        // Some of these fleets do not rest by their own settings.
        for seed in 0..300 {
            assert!(rests(seed, true) || !rests(seed, false), "seed {seed}");
        }
    }
}
