//! Clears nodes of what others hold beyond their counts, where that lets counted work in; and sends
//! squatters home for whoever lives there (W-13).

mod candidate_node;

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use rustc_hash::FxHashMap;

use super::budget::{Brake, Purse};
use crate::{
    collections::{dense_set::Marks, id_list::Numbers},
    entitlement::whole_nodes::is_promised,
    incremental::prefetch::fetch_rows,
    input::snapshot::Policy,
    state::Books,
};
use candidate_node::{Lot, Place, Victims};

/// Nodes looked at in one round at most; what remains is found in the next one.
const LOOKS: u64 = 400_000;

pub(super) fn for_waiting(books: &mut Books, tree: usize, turns: &[(Policy, usize)]) {
    if !turns.iter().any(|turn| waits(books, *turn)) {
        return;
    }
    books.follow_prospects();
    let squatted = squatted(books);
    let mut stirred = Stirred::of(books, tree);
    // Nothing leaves and nothing could be taken.
    if stirred.nodes.is_empty() && squatted.is_empty() {
        return;
    }
    if !squatted.is_empty() {
        // Nodes count as they were before anybody went home.
        stirred.look_at_all(books);
    }
    // What finds nothing, and of that what finds nothing for want of budget.
    let mut hopeless = Marks::default();
    let mut braked: FxHashMap<usize, Brake> = FxHashMap::default();
    // Nobody comes to wait by what is done here.
    for turn in turns {
        if !waits(books, *turn) {
            continue;
        }
        let at = turn.1;
        let request = &books.requests[at];
        let shape = request.shape;
        for _ in request.coming..request.missing() {
            if stirred.looks.get() > LOOKS {
                books.passes();
                break;
            }
            if hopeless.contains(shape) {
                books.hold_back(at, braked.get(&shape).cloned());
                break;
            }
            if let Err(brake) = clear_best(books, at, &mut stirred) {
                books.hold_back(at, brake.clone());
                if !books.demand(at).is_picky() {
                    hopeless.insert(shape);
                    braked.extend(brake.map(|brake| (shape, brake)));
                }
                break;
            }
        }
        if !squatted.is_empty() && send_squatters_home(books, at, &squatted) {
            stirred.offers.clear();
        }
    }
}

fn waits(books: &Books, (policy, at): (Policy, usize)) -> bool {
    let request = &books.requests[at];
    policy != Policy::Reserve && request.missing() > 0 && !request.is_out()
}

/// How many have to leave, the work that is lost with them, and the place of the node.
type Offer = (usize, u64, usize);

/// What the nodes would cost for one shape: at least that, until it is their turn and it is
/// reckoned.
struct Offers {
    /// Quanta of one process of the shape.
    order: u64,
    /// With some that no longer hold.
    cheapest: BinaryHeap<Reverse<Offer>>,
    /// By the place of the node.
    of: Vec<Option<Offer>>,
    /// Why nothing may be taken back on the first node where that is so (B5).
    brake: Option<(usize, Brake)>,
}

impl Offers {
    fn new(stirred: &Stirred, order: u64) -> Self {
        let places = stirred.nodes.iter().enumerate();
        let offer = |(at, it): (usize, &Place)| it.at_least(order, at);
        let of: Vec<_> = places.map(offer).collect();
        // Others come while it is worked down.
        let mut cheapest = Vec::with_capacity(2 * of.len());
        cheapest.extend(of.iter().flatten().copied().map(Reverse));
        Self {
            order,
            cheapest: cheapest.into(),
            of,
            brake: None,
        }
    }

    fn set(&mut self, position: usize, offer: Option<Offer>) {
        self.of[position] = offer;
        self.cheapest.extend(offer.map(Reverse));
    }

    fn first(&mut self) -> Option<Offer> {
        while let Some(Reverse(offer)) = self.cheapest.peek().copied() {
            if self.of[offer.2] == Some(offer) {
                return Some(offer);
            }
            self.cheapest.pop();
        }
        None
    }
}

/// What could be taken of work that has more than its count, by node; some of it on nodes that are
/// not open to anybody here.
fn takeable(books: &Books, tree: usize) -> Vec<Lot> {
    let register = books.register;
    let is_other = |at: usize| books.tree_of(at).is_some_and(|other| other != tree);
    let owners: Vec<usize> = books.exceeding().filter(|at| !is_other(*at)).collect();
    let lists = || owners.iter().map(|at| &books.demand(*at).held);
    let mut lots = Vec::with_capacity(lists().map(Numbers::len).sum());
    fetch_rows(lists().filter_map(Numbers::first));
    // Work of other trees holds nothing here but what it held before it moved.
    let exceeds = |at: usize| is_other(at) && books.requests[at].excess() > 0;
    let strays = || {
        let strays = register.strays.iter().copied();
        strays.filter(|held| books.held[*held].request.is_some_and(exceeds))
    };
    #[cfg(test)]
    assert_none_else_strays(books, tree);
    let shares = || lists().flat_map(Numbers::iter).chain(strays());
    fetch_rows(shares().map(|held| usize::from(register.loads[held].fixed)));
    shares().for_each(|held| {
        let load = &register.loads[held];
        if !load.fixed && !books.leaving.contains(held) {
            lots.extend(load.machine().and_then(|machine| Lot::of(machine, held)));
        }
    });
    lots.sort_unstable_by_key(|lot| lot.key());
    lots
}

/// Of work of other trees nothing that could be taken lies here, but for what is known to stray.
#[cfg(test)]
fn assert_none_else_strays(books: &Books, tree: usize) {
    let others = books.exceeding();
    let others = others.filter(|at| books.tree_of(*at).is_some_and(|other| other != tree));
    for held in others.flat_map(|at| books.demand(at).held.iter()) {
        let load = &books.register.loads[held];
        let is_here = load.machine().is_some_and(|at| books.in_tree(at, tree));
        let is_let_be = load.fixed || books.leaving[held];
        assert!(!is_here || is_let_be || books.register.strays.contains(&held));
    }
}

struct Stirred {
    nodes: Vec<Place>,
    /// What could be taken, by node.
    takeable: Vec<Lot>,
    /// By shape. Owners come closer to their counts and room is spoken for, so a node only grows
    /// dearer; an offer is reckoned again when its turn comes.
    offers: FxHashMap<usize, Offers>,
    /// Nodes looked at.
    looks: Cell<u64>,
}

impl Stirred {
    fn of(books: &Books, tree: usize) -> Self {
        let loads = &books.register.loads;
        let takeable = takeable(books, tree);
        let leaving = books.register.leaving.iter();
        let leaving = leaving.filter_map(|held| loads[*held].machine());
        let told = books.vacate_at.keys();
        let told = told.filter_map(|held| loads[*held].machine());
        let told = told.filter(|at| !books.machines[*at].told.is_empty());
        let mut nodes: Vec<usize> = Vec::with_capacity(takeable.len());
        nodes.extend(leaving.chain(told));
        let lots = || takeable.chunk_by(|one, other| one.machine() == other.machine());
        nodes.extend(lots().map(|here| here[0].machine()));
        nodes.sort_unstable();
        nodes.dedup();
        let mut lots = lots().peekable();
        let mut from = 0;
        let mut places = Vec::with_capacity(nodes.len());
        places.extend(nodes.into_iter().filter_map(|at| {
            let here = lots.next_if(|lots| lots[0].machine() == at);
            let here = here.unwrap_or_default();
            let first = from;
            from += here.len();
            let (pool, coming) = books.sets.rooms.coming(at)?;
            let is_open = books.forest.root(pool) == tree && !is_promised(books, at);
            is_open.then(|| Place::of(books, (at, coming), (first, here)))
        }));
        Self {
            nodes: places,
            takeable,
            offers: FxHashMap::default(),
            looks: Cell::new(0),
        }
    }

    fn look_at_all(&self, books: &Books) {
        for place in &self.nodes {
            place.look(books, &self.takeable);
        }
    }

    fn offer(
        &self,
        books: &Books,
        (at, position): (usize, usize),
        list: &mut Victims,
        brake: &mut Option<(usize, Brake)>,
    ) -> Option<Offer> {
        self.looks.update(|looks| looks + 1);
        let place = &self.nodes[position];
        let order = books.requests[at].order;
        if books.machines[place.machine].order < order || !books.is_permitted(at, place.machine) {
            return None;
        }
        let need = (order, books.size(at));
        let mut purse = books.purse(place.machine);
        let all = &self.takeable;
        if list.choose(books, (place, all), need, &mut purse) {
            return Some((list.chosen.len(), list.lost_ms, position));
        }
        // There may be budget later, or others are the cheapest to lose.
        if !books.has_passed() && (purse.declined || place.could_hold(books, all, need)) {
            books.passes();
        }
        let anyhow = &mut Purse::unlimited();
        let is_first = brake.as_ref().is_none_or(|(first, _)| position < *first);
        if purse.declined && is_first && list.choose(books, (place, all), need, anyhow) {
            let why = books.brake(place.machine, &list.chosen);
            *brake = why.map(|why| (position, why));
        }
        None
    }

    /// The node where nobody has to leave, or else the fewest; where it is set, of those the one
    /// where the least work is lost. Where there is none, why nothing may be taken back.
    fn best(&mut self, books: &Books, at: usize) -> Result<(usize, Vec<usize>), Option<Brake>> {
        let mut list = Victims::default();
        let found = if books.demand(at).is_picky() {
            let mut brake = None;
            let offers = (0..self.nodes.len())
                .filter_map(|position| self.offer(books, (at, position), &mut list, &mut brake));
            let best = offers.min().ok_or(brake);
            // Others were asked since.
            if let Ok((.., position)) = best {
                self.offer(books, (at, position), &mut list, &mut None);
            }
            best
        } else {
            let shape = books.requests[at].shape;
            let known = self.offers.remove(&shape);
            let mut offers = known.unwrap_or_else(|| Offers::new(self, books.requests[at].order));
            let mut best = None;
            while let Some(old) = offers.first() {
                let now = self.offer(books, (at, old.2), &mut list, &mut offers.brake);
                if now == Some(old) {
                    best = Some(old);
                    break;
                }
                offers.set(old.2, now);
            }
            let best = best.ok_or_else(|| offers.brake.clone());
            self.offers.insert(shape, offers);
            best
        };
        let (.., position) = found.map_err(|brake| brake.map(|(_, brake)| brake))?;
        Ok((position, list.chosen))
    }

    /// A node whose room was cleared may have become cheaper for everybody.
    fn renew(&mut self, books: &Books, position: usize) {
        let place = &mut self.nodes[position];
        place.renew(books, &self.takeable);
        for offers in self.offers.values_mut() {
            let offer = place.at_least(offers.order, position);
            offers.set(position, offer);
        }
    }
}

/// Speaks for room for one process where the fewest shares have to leave; an error when nowhere.
fn clear_best(books: &mut Books, at: usize, stirred: &mut Stirred) -> Result<(), Option<Brake>> {
    let (position, victims) = stirred.best(books, at)?;
    // S12: whoever it was taken from reads this; the receipt has the names.
    let detail = "makes room for work that is due more";
    for held in victims {
        books.preempt(held, Some(at), detail.to_owned());
    }
    books.speak_for(at, stirred.nodes[position].machine);
    stirred.renew(books, position);
    Ok(())
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
    for turn in turns {
        if waits(books, *turn) {
            send_squatters_home(books, turn.1, &squatted);
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
    let mut purse = books.purse(machine);
    let mut moves: Vec<(usize, usize)> = Vec::new();
    for held in books.station(machine).held.iter() {
        if room.fitting(order, size) > 0 {
            break;
        }
        let it = &books.held[held];
        if let Some(target) = way_home(books, held, machine, &moves).filter(|_| purse.allows(it)) {
            room.give(it.order, &it.size, &it.gpus);
            moves.push((held, target));
        }
    }
    if purse.declined {
        books.passes();
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
