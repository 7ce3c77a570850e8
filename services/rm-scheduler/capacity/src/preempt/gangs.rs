//! Taking for a gang (section 10, 17.1): with all that it lacks its queue stays within what it is
//! guaranteed, and so many leave at once that the whole gang fits; or nobody does. What was taken
//! one by one would stand idle until the last of it is there.
//!
//! Members are simulated one after the other, each on the node where the least has to leave beside
//! those who leave already. What is lawful only shrinks as more leave, so the costs that were found
//! for the nodes are kept in order and looked at again when their turn comes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Outcome, Wish, fence,
    guarantee::Guarantees,
    tell,
    victims::{Freed, candidates, elsewhere, is_originator, is_short, is_willing, try_take},
};
use crate::{
    future_nodes::{Room, Yard},
    gang::{self, whole::lacks},
    reserve::{
        gang_fit::pack_into,
        gangs::{has_lapsed, hold, of, waits_since},
    },
    resource_vec::share_a_type,
    round_state::{Books, Why},
    verdict::never,
};

/// 10.2, as far as it does not depend on guarantees; for the part that stands for its gang.
pub(super) fn may_try(books: &Books, (ask, leaf): (usize, usize)) -> bool {
    let it = &books.asks[ask];
    let Some(Why::Gang { because, .. }) = &it.why else {
        return false;
    };
    let because = because.as_deref();
    let parts = gang::lacking(books, ask);
    // Two gangs for which room is made would each get a half. One that has room already, and for
    // which nobody left, gives way to a guarantee.
    let room = books.kept.gang.as_ref();
    let open = room.is_none_or(|room| !room.cleared);
    let delay = books.tree.spots[leaf].manner.preemption_delay_ms;
    let may = |part: &usize| {
        let it = &books.asks[*part];
        it.queued.preempts
            && it.queued.required_node.is_none()
            && !books.kept.attempts.contains_key(it.work)
    };
    matches!(because, Some(Why::NoNode | Why::QueueQuota { .. }))
        && gang::all(books, ask).find(|part| books.asks[*part].gang_lacks() > 0) == Some(ask)
        && open
        && parts.iter().all(may)
        && books.snapshot.now.ms_since(waits_since(books, ask)) >= delay
        && !has_lapsed(books, ask)
        && books.may_run(it.app).is_ok()
        && never(books, ask).is_none()
}

pub(super) fn attempt(
    books: &mut Books,
    (guarantees, yard): (&Guarantees, &Yard),
    (ask, leaf): (usize, usize),
) -> Outcome {
    let parts = gang::lacking(books, ask);
    let total = lacks(books, &parts);
    if !books.user_may_hold(ask, &total) || !guarantees.is_short(books, leaf, &total) {
        return Outcome::PreconditionsFailed;
    }
    let (fence, short) = fence(books, guarantees, leaf, &total);
    let lowest = parts.iter().copied();
    let lowest = lowest.min_by_key(|part| books.asks[*part].queued.priority);
    let wish = Wish {
        ask: lowest.unwrap_or(ask),
        leaf,
        fence,
        vector: total,
        short,
    };
    match Attempt::of(books, (guarantees, yard), &wish).all(&parts) {
        None => {
            let now = books.snapshot.now;
            for part in parts {
                books
                    .kept
                    .attempts
                    .insert(books.asks[part].work.clone(), now);
            }
            Outcome::DoesNotHelp
        }
        Some((seats, victims)) => {
            commit(books, &wish, (&seats, &victims));
            Outcome::Done
        }
    }
}

/// Nodes times victims up to which other seats are looked for, on all nodes or else on those that
/// are seats now.
const LOOKS: usize = 100_000;

/// Of all nodes and those that are seats now: are all looked at, or the latter, or none?
fn looks_at_all((all, seated): (usize, usize), victims: usize) -> Option<bool> {
    let few = |nodes: usize| nodes.saturating_mul(victims + 1) <= LOOKS;
    few(all).then_some(true).or(few(seated).then_some(false))
}

/// A part and its node, for each process.
type Seats = Vec<(usize, usize)>;
/// Who would rather stay, then originators, then how many.
type Cost = (bool, bool, usize);

struct Attempt<'b, 'a> {
    books: &'b Books<'a>,
    guarantees: &'b Guarantees,
    wish: &'b Wish,
    candidates: Vec<usize>,
    /// The same, in the same order.
    by_node: BTreeMap<usize, Vec<usize>>,
    /// Once what leaves has left.
    soon: BTreeMap<usize, Room>,
    /// The same with victims gone and members there.
    rooms: BTreeMap<usize, Room>,
    freed: Freed,
    victims: Vec<usize>,
    seats: Seats,
}

impl<'b, 'a> Attempt<'b, 'a> {
    fn of(
        books: &'b Books<'a>,
        (guarantees, yard): (&'b Guarantees, &Yard),
        wish: &'b Wish,
    ) -> Self {
        let candidates = candidates(books, guarantees, wish);
        let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in &candidates {
            if let Some(node) = books.held[*at].node {
                by_node.entry(node).or_default().push(*at);
            }
        }
        let stations = books.nodes.stations.iter().enumerate();
        // Nodes that are kept for others are theirs; room of a gang that is merely kept is not.
        let open = stations.filter(|(_, it)| it.node.is_schedulable() && !it.reserved);
        let soon: BTreeMap<usize, Room> = open
            .map(|(node, _)| (node, Room::soon(books, yard, node)))
            .collect();
        Self {
            books,
            guarantees,
            wish,
            candidates,
            by_node,
            rooms: soon.clone(),
            soon,
            freed: Freed::new(),
            victims: Vec::new(),
            seats: Seats::new(),
        }
    }

    /// Nodes for all processes of these parts, and who leaves for them.
    fn all(mut self, parts: &[usize]) -> Option<(Seats, Vec<usize>)> {
        for part in parts {
            let nodes: Vec<usize> = self.rooms.keys().copied().collect();
            let costs = nodes.into_iter().filter_map(|node| {
                let (cost, _) = self.on_node(*part, node)?;
                Some((cost, node))
            });
            let mut line: BTreeSet<(Cost, usize)> = costs.collect();
            for _ in 0..self.books.asks[*part].gang_lacks() {
                let (node, victims) = loop {
                    let (before, node) = line.pop_first()?;
                    match self.on_node(*part, node) {
                        Some((cost, victims)) if cost <= before => break (node, victims),
                        Some((cost, _)) => drop(line.insert((cost, node))),
                        None => {}
                    }
                };
                self.seat((*part, node), &victims);
                let next = self.on_node(*part, node);
                line.extend(next.map(|(cost, _)| (cost, node)));
            }
        }
        let victims = std::mem::take(&mut self.victims);
        let (books, guarantees) = (self.books, self.guarantees);
        let with = (self.wish, &self.candidates[..]);
        let mut victims = elsewhere(books, guarantees, with, victims)?;
        // Who was taken for one member may not be needed any more now that the others are seated.
        // Who would rather stay goes last, then originators (10.3).
        let mut order = victims.clone();
        order.sort_by_key(|at| (is_willing(books, *at), !is_originator(books, *at)));
        for at in order {
            let others: Vec<usize> = victims.iter().copied().filter(|it| *it != at).collect();
            if let Some(seats) = self.without(at, &others, parts) {
                self.seats = seats;
                victims = others;
            }
        }
        Some((self.seats, victims))
    }

    /// Seats for all members, on the same nodes or on others, when only these leave; so that no
    /// queue is short either.
    fn without(&self, stays: usize, victims: &[usize], parts: &[usize]) -> Option<Seats> {
        let books = self.books;
        if is_short(books, self.wish, victims) {
            return None;
        }
        let node = books.held[stays].node;
        if node.is_none_or(|node| self.still_seats(node, victims)) {
            return Some(self.seats.clone());
        }
        // The more of both there are, the fewer nodes are looked at, and at last none: all of this
        // is done again for each victim.
        let seated: BTreeSet<usize> = self.seats.iter().map(|(_, node)| *node).collect();
        let all = looks_at_all((self.soon.len(), seated.len()), victims.len())?;
        let mut gone: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in victims {
            if let Some(node) = books.held[*at].node {
                gone.entry(node).or_default().push(*at);
            }
        }
        let rooms = self.soon.iter();
        let rooms = rooms.filter(|(node, _)| all || seated.contains(node));
        let rooms = rooms.map(|(node, room)| {
            let mut room = room.clone();
            let gone = gone.get(node).into_iter().flatten();
            gone.for_each(|at| room.free(books, *at));
            (*node, room)
        });
        let found = pack_into(books, rooms, parts)?;
        let seats = found.iter().flat_map(|(node, works)| {
            let each = works.iter();
            each.flat_map(move |(part, count)| (0..*count).map(move |_| (*part, *node)))
        });
        Some(seats.collect())
    }

    /// What one more process of this part costs here.
    fn on_node(&self, part: usize, node: usize) -> Option<(Cost, Vec<usize>)> {
        let books = self.books;
        let vector = books.vector(part);
        let possible = books.nodes.stations[node].could_hold(vector)
            && books.suits(part, node)
            && books.is_apart_beside(part, node, &self.seats);
        if !possible {
            return None;
        }
        let base = &self.rooms[&node];
        let mut room = base.clone();
        let mut victims = Vec::new();
        if !room.fits(vector) {
            let mut freed = self.freed.clone();
            let here = self.by_node.get(&node).into_iter().flatten().copied();
            let here = here.filter(|at| {
                share_a_type(&books.held[*at].vector, vector) && !self.victims.contains(at)
            });
            for at in here {
                if try_take(books, (self.guarantees, self.wish), at, &mut freed) {
                    room.free(books, at);
                    victims.push(at);
                }
                if room.fits(vector) {
                    break;
                }
            }
        }
        if !room.fits(vector) {
            return None;
        }
        for at in victims.clone() {
            let mut without = base.clone();
            let others = victims.iter().filter(|other| **other != at);
            others.for_each(|other| without.free(books, *other));
            if without.fits(vector) {
                victims.retain(|other| *other != at);
            }
        }
        let cost = (
            victims.iter().any(|at| !is_willing(books, *at)),
            victims.iter().any(|at| is_originator(books, *at)),
            victims.len(),
        );
        Some((cost, victims))
    }

    fn seat(&mut self, (part, node): (usize, usize), victims: &[usize]) {
        let books = self.books;
        for at in victims {
            let taken = try_take(books, (self.guarantees, self.wish), *at, &mut self.freed);
            // What was lawful among more of them is lawful among fewer.
            debug_assert!(taken, "a victim that no law allows");
        }
        if let Some(room) = self.rooms.get_mut(&node) {
            for at in victims {
                room.free(books, *at);
            }
            room.place(books.vector(part));
        }
        self.victims.extend(victims);
        self.seats.push((part, node));
    }

    /// Who is seated here fits when only these leave.
    fn still_seats(&self, node: usize, victims: &[usize]) -> bool {
        let books = self.books;
        let Some(mut room) = self.soon.get(&node).cloned() else {
            return true;
        };
        let gone = victims.iter();
        let gone = gone.filter(|at| books.held[**at].node == Some(node));
        gone.for_each(|at| room.free(books, *at));
        let mut here = self.seats.iter().filter(|(_, on)| *on == node);
        here.all(|(part, _)| {
            let vector = books.vector(*part);
            let fits = room.fits(vector);
            room.place(vector);
            fits
        })
    }
}

/// All are told, and the room is the gang's.
fn commit(books: &mut Books, wish: &Wish, (seats, victims): (&Seats, &[usize])) {
    let mut found: BTreeMap<usize, BTreeMap<usize, u64>> = BTreeMap::new();
    for (part, node) in seats {
        *found.entry(*node).or_default().entry(*part).or_default() += 1;
    }
    let queue = books.tree.spots[wish.leaf].path.clone();
    for victim in victims {
        let node = books.held[*victim].node;
        let on_it = seats.iter().find(|(_, on)| Some(*on) == node);
        let part = on_it.map_or(wish.ask, |(part, _)| *part);
        let detail = format!(
            "the gang of work {} of queue {queue} is due the room on {} nodes by its guarantee, \
             and starts as a whole",
            books.asks[part].work,
            found.len()
        );
        tell(books, *victim, (part, detail));
    }
    // Who leaves needs time of their own, whatever time the room was merely kept before; it is
    // taken once, because what lapses takes nothing for as long again.
    let since = books.snapshot.now;
    debug_assert!(of(books, wish.ask).is_none_or(|room| !room.cleared));
    hold(books, (wish.ask, &found), (since, true));
}

#[cfg(test)]
mod tests {
    use super::looks_at_all;

    #[test]
    fn very_many_victims_are_not_packed_around_one_by_one() {
        assert_eq!(looks_at_all((10_000, 9), 9), Some(true));
        assert_eq!(looks_at_all((10_000, 9), 10), Some(false));
        assert_eq!(looks_at_all((10_000, 2_000), 49), Some(false));
        assert_eq!(looks_at_all((10_000, 2_000), 50), None);
        assert_eq!(looks_at_all((usize::MAX, usize::MAX), 9), None);
    }
}
