//! Taking back (section 11). Three causes, in this order:
//!
//! 1. work holds more than its own limit or cap allows;
//! 2. a node holds more than it has, since it shrank (W-20);
//! 3. counted work waits, and clearing a node of what others hold beyond their counts lets it in.
//!
//! What exceeds a count but is in nobody's way stays: sending it away would idle the room. So with
//! steady counts each eviction serves a placement, and placements do not undo each other.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hayward_vocabulary::{Size, WorkKind};

use crate::{
    books::Books,
    plan::{Vacate, VacateReason},
    reach::fitting,
    snapshot::Policy,
    turns::in_turn,
};

/// Nodes looked at in one round at most; what remains is found in the next one.
const LOOKS: u64 = 400_000;

pub(crate) fn evict(books: &mut Books, tree: usize) {
    let turns = in_turn(books, tree);
    for (policy, at) in &turns {
        shrink_to_own_limit(books, *policy, *at);
    }
    relieve_shrunken_nodes(books, tree);
    make_room(books, tree, &turns);
}

fn shrink_to_own_limit(books: &mut Books, policy: Policy, at: usize) {
    let request = &books.requests[at];
    let demand = request.demand;
    if demand.kind == WorkKind::Reservation {
        return;
    }
    let limit = if policy == Policy::FairShare {
        request.cap.own
    } else {
        request.counted
    };
    let over = request.current.saturating_sub(limit);
    if over == 0 {
        return;
    }
    let (reason, detail) = if request.current > demand.max_processes {
        let detail = format!(
            "{} wants at most {} processes",
            request.id, demand.max_processes
        );
        (VacateReason::WorkGone, detail)
    } else {
        let detail = format!("{} may have {limit} processes while it starts", request.id);
        (VacateReason::Preempted, detail)
    };
    let mut shares: Vec<usize> = request
        .held
        .iter()
        .copied()
        .filter(|held| !books.held[*held].leaving)
        .collect();
    shares.sort_by(|a, b| cheapest(books, *a).cmp(&cheapest(books, *b)));
    for held in shares
        .into_iter()
        .take(usize::try_from(over).unwrap_or(usize::MAX))
    {
        let allocation = books.held[held].id.clone();
        books.vacate(
            held,
            Vacate {
                allocation,
                reason,
                detail: detail.clone(),
                purge: false,
            },
        );
    }
}

/// what costs least to lose comes first.
fn cheapest<'b>(books: &'b Books, held: usize) -> impl Ord + use<'b> {
    let share = &books.held[held];
    let allocation = share.allocation;
    let started = allocation.started_at.unwrap_or(allocation.granted_at);
    let since = allocation
        .running_since
        .filter(|_| allocation.running)
        .unwrap_or(started);
    let machine = share.machine.map(|machine| &books.machines[machine]);
    let depth = machine
        .and_then(|m| m.pool)
        .map_or(0, |pool| books.forest.depth(pool));
    (
        allocation.running,
        books.snapshot.now.ms_since(since),
        Reverse(depth),
        Reverse(machine.map_or(0, |m| m.order)),
        Reverse(allocation.granted_at),
        share.id,
    )
}

/// Shares on a node that their owners hold beyond their counts, cheapest first.
fn takeable(books: &Books, machine: usize) -> Vec<usize> {
    let mut shares: Vec<usize> = books.machines[machine]
        .held
        .iter()
        .copied()
        .filter(|held| {
            let share = &books.held[*held];
            let exceeds = share.request.is_some_and(|request| {
                books.policy(request) == Some(Policy::FairShare)
                    && books.requests[request].excess() > 0
            });
            !share.leaving && !share.allocation.fixed && exceeds
        })
        .collect();
    shares.sort_by(|a, b| cheapest(books, *a).cmp(&cheapest(books, *b)));
    shares
}

fn in_tree(books: &Books, machine: usize, tree: usize) -> bool {
    let machine = &books.machines[machine];
    machine.is_schedulable()
        && machine
            .pool
            .is_some_and(|pool| books.forest.root(pool) == tree)
}

fn relieve_shrunken_nodes(books: &mut Books, tree: usize) {
    for at in 0..books.machines.len() {
        if !in_tree(books, at, tree) || !is_over(books, at) {
            continue;
        }
        let detail = format!(
            "node {} shrank below what it holds",
            books.machines[at].name
        );
        for held in takeable(books, at) {
            let exceeds = books.held[held]
                .request
                .is_some_and(|r| books.requests[r].excess() > 0);
            if exceeds && is_over(books, at) {
                let allocation = books.held[held].id.clone();
                let reason = VacateReason::Preempted;
                let detail = detail.clone();
                books.vacate(
                    held,
                    Vacate {
                        allocation,
                        reason,
                        detail,
                        purge: false,
                    },
                );
            }
        }
    }
}

/// Do the shares that stay exceed what the node has?
fn is_over(books: &Books, machine: usize) -> bool {
    let machine = &books.machines[machine];
    let (mut order, mut size) = (0_u64, Size::default());
    for share in machine
        .held
        .iter()
        .map(|held| &books.held[*held])
        .filter(|s| !s.leaving)
    {
        order = order.saturating_add(share.allocation.order);
        size.add(&share.allocation.size);
    }
    order > machine.order || !size.fits(&machine.node.capacity)
}

/// Room on a node once everything that leaves has left, without what is spoken for.
struct Coming {
    order: u64,
    size: Size,
}

fn coming(books: &Books, machine: usize) -> Coming {
    let machine = &books.machines[machine];
    let mut room = Coming {
        order: machine.order,
        size: machine.node.capacity.clone(),
    };
    for share in machine
        .held
        .iter()
        .map(|held| &books.held[*held])
        .filter(|s| !s.leaving)
    {
        room.order = room.order.saturating_sub(share.allocation.order);
        room.size.take(&share.allocation.size);
    }
    room
}

/// What this round granted on each node is there to stay as well.
fn stirred(books: &Books, tree: usize) -> Vec<(usize, Coming)> {
    let mut granted: BTreeMap<usize, (u64, Size)> = BTreeMap::new();
    for grant in &books.grants {
        if let Some(machine) = books.machine_index.get(&grant.node) {
            let sum = granted.entry(*machine).or_default();
            sum.0 += grant.order;
            sum.1.add(&grant.size);
        }
    }
    (0..books.machines.len())
        .filter(|at| in_tree(books, *at, tree) && books.machines[*at].promised_to.is_none())
        .filter(|at| {
            let leaves = books.machines[*at]
                .held
                .iter()
                .any(|held| books.held[*held].leaving);
            leaves || !takeable(books, *at).is_empty()
        })
        .map(|at| {
            let mut room = coming(books, at);
            if let Some((order, size)) = granted.get(&at) {
                room.order = room.order.saturating_sub(*order);
                room.size.take(size);
            }
            (at, room)
        })
        .collect()
}

fn make_room(books: &mut Books, tree: usize, turns: &[(Policy, usize)]) {
    let waiting: Vec<usize> = turns
        .iter()
        .filter(|(policy, at)| *policy != Policy::Reserve && books.requests[*at].missing() > 0)
        .map(|(_, at)| *at)
        .collect();
    if waiting.is_empty() {
        return;
    }
    let mut nodes = stirred(books, tree);
    let mut looks = 0;
    let mut hopeless: BTreeSet<(Option<usize>, bool, u64, Size)> = BTreeSet::new();
    for at in waiting {
        let request = &books.requests[at];
        let fair = books.policy(at) == Some(Policy::FairShare);
        let shape = (books.home(at), fair, request.order, request.size.clone());
        for _ in 0..request.missing() {
            looks += nodes.len() as u64;
            if looks > LOOKS || hopeless.contains(&shape) {
                break;
            }
            if !clear_best(books, at, &mut nodes) {
                if books.requests[at].demand.machines.is_empty() {
                    hopeless.insert(shape.clone());
                }
                break;
            }
        }
    }
}

/// Speaks for room for one process where the fewest shares have to leave; false when nowhere.
fn clear_best(books: &mut Books, at: usize, nodes: &mut [(usize, Coming)]) -> bool {
    let (order, size) = (books.requests[at].order, books.requests[at].size.clone());
    let mut best: Option<(usize, Vec<usize>)> = None;
    for (position, (machine, room)) in nodes.iter().enumerate() {
        if !books.is_permitted(at, *machine) {
            continue;
        }
        let Some(victims) = victims(books, *machine, room, (order, &size)) else {
            continue;
        };
        if best
            .as_ref()
            .is_none_or(|(_, fewest)| victims.len() < fewest.len())
        {
            let free = victims.is_empty();
            best = Some((position, victims));
            if free {
                break;
            }
        }
    }
    let Some((position, victims)) = best else {
        return false;
    };
    let (machine, room) = &mut nodes[position];
    let (work, user) = (books.requests[at].id, &books.requests[at].demand.user);
    for held in victims {
        let allocation = books.held[held].allocation;
        room.order += allocation.order;
        room.size.add(&allocation.size);
        let detail = format!("makes room for {work} of {user}, which is due more");
        let reason = VacateReason::Preempted;
        let allocation = books.held[held].id.clone();
        books.vacate(
            held,
            Vacate {
                allocation,
                reason,
                detail,
                purge: false,
            },
        );
    }
    room.order = room.order.saturating_sub(order);
    room.size.take(&size);
    books.machines[*machine].claimed = true;
    books.requests[at].coming += 1;
    true
}

/// The shares that have to leave this node so that one process fits; `None` when it never will.
fn victims(
    books: &Books,
    machine: usize,
    room: &Coming,
    (order, size): (u64, &Size),
) -> Option<Vec<usize>> {
    let mut coming = Coming {
        order: room.order,
        size: room.size.clone(),
    };
    let mut chosen = Vec::new();
    if fitting(order, size, coming.order, &coming.size) > 0 {
        return Some(chosen);
    }
    let mut spent = BTreeMap::<usize, u64>::new();
    for held in takeable(books, machine) {
        let share = &books.held[held];
        let Some(owner) = share.request else { continue };
        let taken = spent.entry(owner).or_default();
        if *taken >= books.requests[owner].excess() {
            continue;
        }
        *taken += 1;
        coming.order += share.allocation.order;
        coming.size.add(&share.allocation.size);
        chosen.push(held);
        if fitting(order, size, coming.order, &coming.size) > 0 {
            return Some(chosen);
        }
    }
    None
}
