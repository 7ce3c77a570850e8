//! Who gives, and what is taken from them (12.3, 12.4).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use rustc_hash::FxHashSet;

use super::{Candidates, Spacious};
use crate::{
    input::snapshot::Policy,
    preemption::{
        budget::{Brake, Purse},
        cheapest,
    },
    state::Books,
};

/// A share that could be cleared: held, or granted in this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    Held(usize),
    Pending(usize),
}

/// Candidate donors of one step, and what their users hold through them.
struct Donors {
    requests: FxHashSet<usize>,
    /// By the number of the user.
    wealth: Vec<Option<u64>>,
    /// Outranked work may be stripped, other donors not (W-21).
    spare: bool,
    /// Free quanta by node that processes of this request rely on already. They are not there for
    /// the next of them [C-6].
    spent: BTreeMap<usize, u64>,
}

/// Clears room for some processes of a request; returns for how many.
pub(super) fn from_donors(
    books: &mut Books,
    (spacious, candidates): (&Spacious, &mut Candidates),
    (at, need): (usize, u64),
) -> u64 {
    let (rich, poor) = candidates.of(books, at);
    let mut donors = donors(books, rich, books.settings.spare_donors);
    let mut given = take(books, spacious, (at, need), &mut donors);
    // Outranked donors were spared like peers so far.
    let spared = books.settings.spare_donors && rich.iter().any(|it| !is_peer(books, at, *it));
    if given < need && (spared || !poor.is_empty()) {
        //
        let all = [rich, poor].concat();
        let spent = donors.spent;
        donors = Donors {
            spent,
            ..self::donors(books, &all, false)
        };
        given += take(books, spacious, (at, need - given), &mut donors);
    }
    given
}

pub(super) fn is_rich(books: &Books, donor: usize) -> bool {
    let request = &books.requests[donor];
    let threshold = books.snapshot.tunables.fragmentation_threshold;
    let runs = |held: usize| books.held[held].running;
    // What was granted a moment ago costs nothing to give.
    let fresh = books.settings.spare_donors && request.placed > 0;
    request.has() > 0
        && request.has() >= threshold
        && !request.actually_needy
        && (fresh || books.demand(donor).held.iter().any(runs))
        && !was_hit_lately(books, donor)
}

/// The request does not outrank it.
fn is_peer(books: &Books, at: usize, donor: usize) -> bool {
    let priority = |at: usize| {
        let class = books.requests[at].class;
        class.map(|class| books.classes[class].class.priority)
    };
    priority(at) >= priority(donor)
}

/// W-32: who gave lately is left alone for a while.
pub(super) fn was_hit_lately(books: &Books, donor: usize) -> bool {
    let Some(rounds) = books.settings.churn_rounds else {
        return false;
    };
    let last = books.snapshot.carried.last_hit.get(books.id(donor));
    let was = last.is_some_and(|last| books.snapshot.round.saturating_sub(*last) <= rounds);
    if was {
        books.passes();
    }
    was
}

fn donors(books: &Books, requests: &[usize], spare: bool) -> Donors {
    let mut wealth = vec![None; books.register.users()];
    for at in requests.iter().copied() {
        let request = &books.requests[at];
        let user = wealth[books.demand(at).user_at].get_or_insert(0);
        *user += request.has() * request.order;
    }
    Donors {
        requests: requests.iter().copied().collect(),
        wealth,
        spare,
        spent: BTreeMap::new(),
    }
}

/// Nodes are looked at by descending wealth, which only ever falls. So a node is
/// taken up where it stood and put back where it stands now, until one stands where it stood. What
/// does not work once does not work later: nothing that is taken makes it work.
fn take(
    books: &mut Books,
    spacious: &Spacious,
    (at, need): (usize, u64),
    donors: &mut Donors,
) -> u64 {
    let rank = |books: &Books, machine: usize, donors: &Donors| {
        let memory = books.station(machine).node.capacity.memory_bytes;
        let wealth = wealth_on(books, machine, donors);
        (wealth, memory, Reverse(machine))
    };
    let nodes = eligible(books, spacious, at, donors);
    let nodes = nodes.into_iter().map(|node| rank(books, node, donors));
    let mut nodes: BinaryHeap<_> = nodes.collect();
    let (mut given, mut brake) = (0, None);
    while given < need
        && let Some(top) = nodes.pop()
    {
        let Reverse(machine) = top.2;
        let now = rank(books, machine, donors);
        if now != top {
            nodes.push(now);
        } else if let Some(shares) = allowed(books, (at, machine), donors, &mut brake) {
            given += clear(books, at, machine, &shares, donors);
            nodes.push(rank(books, machine, donors));
        }
    }
    if given < need {
        books.hold_back(at, brake);
    }
    given
}

///
fn eligible(books: &Books, spacious: &Spacious, at: usize, donors: &Donors) -> Vec<usize> {
    let order = books.requests[at].order;
    let whole = books.policy(at) == Some(Policy::Reserve);
    let nobody_gives = donors.requests.is_empty();
    let loads = &books.register.loads;
    let is_donors = |held: usize| {
        let owner = loads[held].owner_at();
        owner.is_some_and(|user| donors.wealth[user as usize].is_some())
    };
    let was_given = |pending: &usize| donors.requests.contains(&books.pending[*pending].request);
    let gives = |machine: usize| {
        let held = &books.station(machine).held;
        let pending = &books.machines[machine].pending;
        !nobody_gives && (held.iter().any(is_donors) || pending.iter().any(was_given))
    };
    // Where nobody gives, only room that comes anyway will do: by itself, or by what was mended.
    let mut nodes: Vec<usize> = if nobody_gives {
        spacious.nodes(books)
    } else {
        (0..books.machines.len()).collect()
    };
    nodes.retain(|machine| gives(*machine) || books.coming_order(*machine) >= order);
    nodes
        .into_iter()
        .filter(|machine| {
            let place = &books.machines[*machine];
            let fits = if whole {
                place.order == order && all_are_candidates(books, *machine, donors)
            } else {
                place.order >= order
            };
            // [C-12], [C-15], and for the same reason the machine list: what is cleared where the
            // request may never stand is lost for nothing.
            fits && books.admits(at, *machine)
                && !books.is_parted(at, *machine)
                && place.is_schedulable()
                && place.pool.is_some_and(|pool| books.may_use(at, pool))
                && (place.promised_to.is_none_or(|other| other == at)
                    || !books.settings.clear_promised)
        })
        .collect()
}

fn all_are_candidates(books: &Books, machine: usize, donors: &Donors) -> bool {
    let place = &books.machines[machine];
    let held = books
        .station(machine)
        .held
        .iter()
        .map(|held| books.held[held].request);
    let pending = place
        .pending
        .iter()
        .map(|at| Some(books.pending[*at].request));
    held.chain(pending)
        .all(|owner| owner.is_some_and(|owner| donors.requests.contains(&owner)))
}

/// The greatest wealth of any user with a share there.
fn wealth_on(books: &Books, machine: usize, donors: &Donors) -> u64 {
    let held = books.station(machine).held.iter();
    let held = held.map(|held| books.register.loads[held].user_at as usize);
    let pending = books.machines[machine].pending.iter().map(|at| {
        let owner = books.pending[*at].request;
        books.demand(owner).user_at
    });
    held.chain(pending)
        .filter_map(|user| donors.wealth[user])
        .max()
        .unwrap_or(0)
}

fn owner(books: &Books, share: Share) -> Option<usize> {
    match share {
        Share::Held(held) => books.held[held].request,
        Share::Pending(pending) => Some(books.pending[pending].request),
    }
}

fn order_of(books: &Books, share: Share) -> u64 {
    match share {
        Share::Held(held) => books.held[held].order,
        Share::Pending(pending) => books.pending[pending].order,
    }
}

/// Candidates' shares there by wealth, then cheapest first; granted ones have cost nothing yet.
fn takeable(books: &Books, machine: usize, donors: &Donors) -> Vec<Share> {
    let place = &books.machines[machine];
    let held = books
        .station(machine)
        .held
        .iter()
        .filter(|held| !books.leaving[*held] && !books.held[*held].fixed);
    let mut shares: Vec<Share> = held
        .map(Share::Held)
        .chain(place.pending.iter().map(|pending| Share::Pending(*pending)))
        .filter(|share| owner(books, *share).is_some_and(|owner| donors.requests.contains(&owner)))
        .collect();
    let wealth = |share: Share| {
        let user = owner(books, share).map(|owner| books.demand(owner).user_at);
        user.and_then(|user| donors.wealth[user])
    };
    shares.sort_by(|a, b| {
        let by_wealth = wealth(*b).cmp(&wealth(*a));
        by_wealth.then_with(|| match (a, b) {
            (Share::Held(a), Share::Held(b)) => cheapest(books, *a).cmp(&cheapest(books, *b)),
            (Share::Pending(_), Share::Held(_)) => std::cmp::Ordering::Less,
            (Share::Held(_), Share::Pending(_)) => std::cmp::Ordering::Greater,
            (Share::Pending(a), Share::Pending(b)) => b.cmp(a),
        })
    });
    shares
}

/// The shares to clear so that one process fits, as far as the budget goes (B5).
fn allowed(
    books: &Books,
    (at, machine): (usize, usize),
    donors: &Donors,
    brake: &mut Option<Brake>,
) -> Option<Vec<Share>> {
    let mut purse = books.purse(machine);
    let found = chosen(books, (at, machine), donors, &mut purse);
    if found.is_none() && purse.declined && brake.is_none() {
        let all = chosen(books, (at, machine), donors, &mut Purse::unlimited())?;
        let held = all.iter().filter_map(|share| match share {
            Share::Held(held) => Some(*held),
            Share::Pending(_) => None,
        });
        *brake = books.brake(machine, &held.collect::<Vec<_>>());
    }
    found
}

/// The shares to clear so that one process fits, or `None` when that is not enough.
fn chosen(
    books: &Books,
    (at, machine): (usize, usize),
    donors: &Donors,
    purse: &mut Purse,
) -> Option<Vec<Share>> {
    let request = &books.requests[at];
    let (order, size) = (request.order, books.size(at));
    let early = books.settings.count_leaving_room;
    let place = &books.machines[machine];
    let mut room = if early {
        books.coming_room(machine)
    } else {
        let mut free = place.free.clone();
        free.order = unspent(books, machine, donors);
        free
    };
    let fits = |room: &crate::index::node_space::Room| {
        if books.settings.count_what_fits {
            room.fitting(order, size) > 0
        } else {
            room.order >= order
        }
    };
    let start = room.clone();
    let mut collected = Vec::new();
    let mut left: BTreeMap<usize, u64> = BTreeMap::new();
    for share in takeable(books, machine, donors) {
        if fits(&room) {
            break;
        }
        let giver = owner(books, share)?;
        let has = left
            .entry(giver)
            .or_insert_with(|| books.requests[giver].has());
        // A peer that was stripped would take it all back, and so for ever.
        let spared = donors.spare || is_peer(books, at, giver) && books.settings.spare_donors;
        if spared && *has <= books.snapshot.tunables.fragmentation_threshold {
            continue;
        }
        if let Share::Held(held) = share
            && !purse.allows(&books.held[held])
        {
            continue;
        }
        *has -= 1;
        give_back(books, &mut room, share);
        collected.push(share);
    }
    // Without anything to take the rules find nothing here, though room may be on its way.
    if !fits(&room) || collected.is_empty() && !early {
        return None;
    }
    // What has exactly the right order goes first, and may be enough alone.
    collected.sort_by_key(|share| order_of(books, *share) != order);
    let mut room = start;
    let mut enough = Vec::new();
    for share in collected {
        if fits(&room) {
            break;
        }
        give_back(books, &mut room, share);
        enough.push(share);
    }
    Some(enough)
}

fn unspent(books: &Books, machine: usize, donors: &Donors) -> u64 {
    let free = books.machines[machine].free.order;
    let spent = donors.spent.get(&machine).copied();
    free.saturating_sub(spent.unwrap_or(0))
}

fn give_back(books: &Books, room: &mut crate::index::node_space::Room, share: Share) {
    match share {
        Share::Held(held) => {
            let it = &books.held[held];
            room.give(it.order, &it.size, &it.gpus);
        }
        Share::Pending(pending) => {
            let it = &books.pending[pending];
            room.give(it.order, it.size, &it.gpus);
        }
    }
}

/// The share is a whole node, and one that a request for whole nodes may have.
fn is_whole(books: &Books, pending: usize, at: usize) -> bool {
    let share = &books.pending[pending];
    let place = &books.machines[share.machine];
    books.policy(at) == Some(Policy::Reserve)
        && place.order == share.order
        && books
            .asked(at)
            .fits(&books.station(share.machine).node.capacity)
        && books.is_permitted(at, share.machine)
}

/// Of the same vector, and where the request may be.
fn is_alike(books: &Books, pending: usize, at: usize) -> bool {
    let share = &books.pending[pending];
    books.policy(at) != Some(Policy::Reserve)
        && share.size == books.size(at)
        && books.is_permitted(at, share.machine)
}

/// returns the processes that room is made for.
fn clear(
    books: &mut Books,
    at: usize,
    machine: usize,
    shares: &[Share],
    donors: &mut Donors,
) -> u64 {
    let order = books.requests[at].order;
    let mut room = unspent(books, machine, donors);
    let mut handed = false;
    let detail = format!("split room is mended for {}", books.id(at));
    for share in shares {
        let lost = order_of(books, *share);
        room += lost;
        if let Some(giver) = owner(books, *share) {
            let user = books.demand(giver).user_at;
            if let Some(wealth) = &mut donors.wealth[user] {
                *wealth = wealth.saturating_sub(lost);
            }
        }
        match *share {
            Share::Held(held) => books.preempt(held, Some(at), detail.clone()),
            Share::Pending(pending) if lost == order && is_whole(books, pending, at) => {
                // A whole node is granted with all it has, which the share may not have used.
                books.cancel(pending);
                let whole = &books.station(machine).node.capacity;
                books.grant(at, machine, order, whole);
                handed = true;
            }
            Share::Pending(pending) if lost == order && is_alike(books, pending, at) => {
                books.hand_over(pending, at);
                handed = true;
            }
            Share::Pending(pending) => books.cancel(pending),
        }
    }
    if books.settings.count_leaving_room {
        if !handed {
            books.speak_for(at, machine);
        }
        return 1;
    }
    let processes = (room / order).max(1);
    if !handed {
        // What was cancelled is free by now, what leaves is not.
        let free = unspent(books, machine, donors);
        *donors.spent.entry(machine).or_default() += free.min(processes * order);
    }
    processes
}
