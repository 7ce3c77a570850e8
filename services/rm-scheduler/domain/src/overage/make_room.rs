//! Clears nodes of what others hold beyond their counts, where that lets counted work in; and sends
//! squatters home for whoever lives there (W-13).

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::Size;

use super::takeable;
use crate::{books::Books, room::Room, snapshot::Policy};

/// Nodes looked at in one round at most; what remains is found in the next one.
const LOOKS: u64 = 400_000;

pub(super) fn for_waiting(books: &mut Books<'_>, tree: usize, turns: &[(Policy, usize)]) {
    let is_waiting = |books: &Books, policy: Policy, at: usize| {
        let request = &books.requests[at];
        policy != Policy::Reserve && !request.is_out() && request.missing() > 0
    };
    let waiting: Vec<usize> = turns
        .iter()
        .filter(|(policy, at)| is_waiting(books, *policy, *at))
        .map(|(_, at)| *at)
        .collect();
    if waiting.is_empty() {
        return;
    }
    let squatted = squatted(books);
    let mut stirred = Stirred::of(books, tree);
    let mut looks = 0;
    let mut hopeless: BTreeSet<Shape> = BTreeSet::new();
    for at in waiting {
        let shape = shape_of(books, at);
        for _ in books.requests[at].coming..books.requests[at].missing() {
            looks += stirred.nodes.len() as u64;
            if looks > LOOKS || hopeless.contains(&shape) {
                break;
            }
            if !clear_best(books, at, &mut stirred) {
                if books.demand(at).machines.is_empty() {
                    hopeless.insert(shape);
                }
                break;
            }
        }
        if send_squatters_home(books, at, &squatted) {
            stirred.offers.clear();
        }
    }
}

/// Home, whether pools below it may be used, order and size: requests alike here find the same.
type Shape<'a> = (Option<usize>, bool, u64, &'a Size);

fn shape_of<'a>(books: &Books<'a>, at: usize) -> Shape<'a> {
    let request = &books.requests[at];
    let fair = books.policy(at) == Some(Policy::FairShare);
    (books.home(at), fair, request.order, books.size(at))
}

/// How many have to leave, the work that is lost with them, and the place of the node.
type Offer = (usize, u64, usize);

/// A node where something leaves or could leave.
struct Place {
    machine: usize,
    /// What will be free there.
    room: Room,
    /// Shares whose owners had more than their counts in the beginning. Nobody comes to exceed its
    /// count by what is done here, so no others are ever taken.
    takeable: Vec<usize>,
}

/// What the nodes would cost for one shape.
#[derive(Default)]
struct Offers {
    sorted: BTreeSet<Offer>,
    /// The same, by the place of the node.
    of: Vec<Option<Offer>>,
}

impl Offers {
    fn set(&mut self, position: usize, offer: Option<Offer>) {
        if let Some(old) = std::mem::replace(&mut self.of[position], offer) {
            self.sorted.remove(&old);
        }
        self.sorted.extend(offer);
    }
}

struct Stirred<'a> {
    nodes: Vec<Place>,
    /// Owners come closer to their counts and room is spoken for, so a node only grows dearer; an
    /// offer is reckoned again when its turn comes.
    offers: BTreeMap<Shape<'a>, Offers>,
}

impl<'a> Stirred<'a> {
    fn of(books: &Books, tree: usize) -> Self {
        let leaving = books.register.leaving.iter().map(|held| &books.held[*held]);
        let mut stirs = vec![false; books.machines.len()];
        for machine in leaving.filter_map(|share| share.machine) {
            stirs[machine] = true;
        }
        let mut takeable: Vec<Vec<usize>> = vec![Vec::new(); books.machines.len()];
        for at in books.exceeding() {
            let can_go = |held: &&usize| !books.leaving[**held] && !books.held[**held].fixed;
            for held in books.demand(at).held.iter().filter(can_go) {
                if let Some(machine) = books.held[*held].machine {
                    stirs[machine] = true;
                    takeable[machine].push(*held);
                }
            }
        }
        let open = (0..books.machines.len()).filter(|at| {
            let machine = &books.machines[*at];
            (stirs[*at] || machine.stirred)
                && books.in_tree(*at, tree)
                && machine.is_schedulable()
                && machine.promised_to.is_none()
        });
        let place = |machine: usize| Place {
            machine,
            room: books.coming_room(machine),
            takeable: std::mem::take(&mut takeable[machine]),
        };
        Self {
            nodes: open.map(place).collect(),
            offers: BTreeMap::new(),
        }
    }

    fn offer(&self, books: &Books, at: usize, position: usize) -> Option<(Offer, Vec<usize>)> {
        let (order, size) = (books.requests[at].order, books.size(at));
        let place = &self.nodes[position];
        let machine = place.machine;
        if books.machines[machine].order < order || !books.is_permitted(at, machine) {
            return None;
        }
        let victims = victims(books, place, (order, size))?;
        let cost = (victims.len(), lost_with(books, &victims), position);
        Some((cost, victims))
    }

    /// The node where nobody has to leave, or else the fewest; where it is set, of those the one
    /// where the least work is lost.
    fn best(&mut self, books: &Books<'a>, at: usize) -> Option<(usize, Vec<usize>)> {
        let every = 0..self.nodes.len();
        if !books.demand(at).machines.is_empty() {
            let offers = every.filter_map(|position| self.offer(books, at, position));
            let best = offers.min_by_key(|(cost, _)| *cost);
            return best.map(|((.., position), victims)| (position, victims));
        }
        let shape = shape_of(books, at);
        let mut offers = self.offers.remove(&shape).unwrap_or_else(|| {
            let offers = every.map(|position| self.offer(books, at, position));
            let of: Vec<Option<Offer>> = offers.map(|offer| Some(offer?.0)).collect();
            let sorted = of.iter().copied().flatten().collect();
            Offers { sorted, of }
        });
        let mut best = None;
        while let Some(old) = offers.sorted.first().copied() {
            let now = self.offer(books, at, old.2);
            let cost = now.as_ref().map(|(cost, _)| *cost);
            if cost == Some(old) {
                best = now.map(|(cost, victims)| (cost.2, victims));
                break;
            }
            offers.set(old.2, cost);
        }
        self.offers.insert(shape, offers);
        best
    }

    /// A node whose room was cleared may have become cheaper for everybody.
    fn renew(&mut self, books: &Books, position: usize) {
        let place = &mut self.nodes[position];
        place.room = books.coming_room(place.machine);
        for offers in self.offers.values_mut() {
            // What nobody has to leave for is the least there can be: it is looked at next.
            offers.set(position, Some((0, 0, position)));
        }
    }
}

/// Speaks for room for one process where the fewest shares have to leave; false when nowhere.
fn clear_best<'a>(books: &mut Books<'a>, at: usize, stirred: &mut Stirred<'a>) -> bool {
    let Some((position, victims)) = stirred.best(books, at) else {
        return false;
    };
    let (work, user) = (books.id(at), &books.demand(at).user);
    let detail = format!("makes room for {work} of {user}, which is due more");
    for held in victims {
        books.preempt(held, Some(at), detail.clone());
    }
    books.speak_for(at, stirred.nodes[position].machine);
    stirred.renew(books, position);
    true
}

/// Milliseconds of work lost with these shares; nothing where that does not count.
fn lost_with(books: &Books, victims: &[usize]) -> u64 {
    if !books.settings.lose_least {
        return 0;
    }
    let lost = victims.iter().map(|held| books.invested_ms(*held));
    lost.fold(0, u64::saturating_add)
}

/// The shares that have to leave this node so that one process fits; `None` when it never will.
fn victims(books: &Books, place: &Place, (order, size): (u64, &Size)) -> Option<Vec<usize>> {
    let mut chosen = Vec::new();
    if place.room.fitting(order, size) > 0 {
        return Some(chosen);
    }
    let most = place.takeable.iter().map(|held| books.held[*held].order);
    if place.room.order.saturating_add(most.sum()) < order {
        return None;
    }
    let mut room = place.room.clone();
    let mut spent = BTreeMap::<usize, u64>::new();
    for held in takeable(books, place.takeable.iter()) {
        let share = &books.held[held];
        let Some(owner) = share.request else { continue };
        let taken = spent.entry(owner).or_default();
        if *taken >= books.requests[owner].excess() {
            continue;
        }
        *taken += 1;
        room.give(share.order, &share.size, &share.gpus);
        chosen.push(held);
        if room.fitting(order, size) > 0 {
            return Some(chosen);
        }
    }
    None
}

/// Nodes on which somebody squats, where squatters go home.
fn squatted(books: &Books) -> Vec<usize> {
    if !books.settings.squatters_go_home {
        return Vec::new();
    }
    let squatters = books.register.squatters.iter();
    let stay = squatters.filter(|held| !books.leaving[**held]);
    let nodes: BTreeSet<usize> = stay.filter_map(|held| books.held[*held].machine).collect();
    nodes.into_iter().collect()
}

/// W-13 alone, for all work that waits.
pub(super) fn send_all_home(books: &mut Books, turns: &[(Policy, usize)]) {
    let squatted = squatted(books);
    for (policy, at) in turns {
        let request = &books.requests[*at];
        if *policy != Policy::Reserve && !request.is_out() && request.missing() > 0 {
            send_squatters_home(books, *at, &squatted);
        }
    }
}

/// W-13: squatters on the nodes of work that still waits move to their own pool, where it has room
/// for them. They keep their number.
/// Tells whether any had to.
fn send_squatters_home(books: &mut Books, at: usize, squatted: &[usize]) -> bool {
    let Some(home) = books.home(at).filter(|_| !squatted.is_empty()) else {
        return false;
    };
    let mut sent = false;
    let mut wanting = books.requests[at]
        .missing()
        .saturating_sub(books.requests[at].coming);
    for machine in squatted.iter().copied() {
        if wanting == 0 {
            break;
        }
        let place = &books.machines[machine];
        if place.pool != Some(home) || !place.is_schedulable() || !books.is_permitted(at, machine) {
            continue;
        }
        if clear_of_squatters(books, at, machine) {
            wanting -= 1;
            sent = true;
        }
    }
    sent
}

/// True when one process of the request will fit on the node once the squatters are gone.
fn clear_of_squatters(books: &mut Books, at: usize, machine: usize) -> bool {
    let (order, size) = (books.requests[at].order, books.size(at));
    let mut room = books.coming_room(machine);
    let mut moves: Vec<(usize, usize)> = Vec::new();
    for held in books.station(machine).held.iter().copied() {
        if room.fitting(order, size) > 0 {
            break;
        }
        if let Some(target) = way_home(books, held, machine, &moves) {
            let it = &books.held[held];
            room.give(it.order, &it.size, &it.gpus);
            moves.push((held, target));
        }
    }
    if moves.is_empty() || room.fitting(order, size) == 0 {
        return false;
    }
    for (held, target) in moves {
        let Some(owner) = books.held[held].request else {
            continue;
        };
        let detail = format!("goes home and leaves room to {}", books.id(at));
        books.preempt(held, Some(at), detail);
        let (order, size) = (books.requests[owner].order, books.size(owner));
        books.grant(owner, target, order, size);
    }
    books.speak_for(at, machine);
    true
}

/// The node of its own pool a squatter can move to, if there is one beside those of `moves`.
fn way_home(books: &Books, held: usize, machine: usize, moves: &[(usize, usize)]) -> Option<usize> {
    let share = &books.held[held];
    let owner = share.request.filter(|_| !books.leaving[held])?;
    let own = books.home(owner)?;
    let pool = books.machines[machine].pool?;
    let squats = books.policy(owner) == Some(Policy::FairShare) && pool != own;
    if !squats || !books.forest.is_within(pool, own) {
        return None;
    }
    let (order, size) = (books.requests[owner].order, books.size(owner));
    (0..books.machines.len()).find(|at| {
        let place = &books.machines[*at];
        place.pool == Some(own)
            && place.is_schedulable()
            && place.promised_to.is_none()
            && place.spoken.is_empty()
            && !moves.iter().any(|(_, target)| target == at)
            && books.admits(owner, *at)
            && place.free.fitting(order, size) > 0
    })
}
