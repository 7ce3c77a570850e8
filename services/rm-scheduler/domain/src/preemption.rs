//! Taking back (section 11).
//!
//! By the rules everything above a count leaves. With the setting that evicts for somebody only,
//! there are three causes, in this order:
//!
//! 1. work holds more than its own limit or cap allows;
//! 2. a node holds more than it has, since it shrank (W-20);
//! 3. counted work waits, and clearing a node of what others hold beyond their counts lets it in.
//!
//! What exceeds a count but is in nobody's way stays: sending it away would idle the room. So with
//! steady counts each eviction serves a placement, and placements do not undo each other.

pub mod budget;
mod make_room;

use std::cmp::Reverse;

use hayward_vocabulary::{Size, WorkKind};

use crate::{input::snapshot::Policy, output::plan::VacateReason, state::Books};
use budget::Brake;

pub(crate) fn evict(books: &mut Books, tree: usize, turns: &[(Policy, usize)]) {
    if !books.settings.evict_for_somebody {
        if books.settings.relieve_shrunken {
            relieve_shrunken_nodes(books, tree);
        }
        let mut brake = None;
        for (_, at) in turns {
            brake = shrink_to_count(books, *at).or(brake);
        }
        for (_, at) in turns.iter().filter(|_| brake.is_some()) {
            books.hold_back(*at, brake.clone());
        }
        if books.settings.squatters_go_home {
            make_room::send_all_home(books, turns);
        }
        return;
    }
    for (policy, at) in turns {
        shrink_to_own_limit(books, *policy, *at);
    }
    if books.settings.relieve_shrunken {
        relieve_shrunken_nodes(books, tree);
    }
    make_room::for_waiting(books, tree, turns);
}

/// tells what of it the budget does not allow (B5).
fn shrink_to_count(books: &mut Books, at: usize) -> Option<Brake> {
    let over = books.requests[at].excess();
    let detail = || {
        let request = &books.requests[at];
        let (counted, has) = (request.counted, request.has());
        format!("{} is due {counted} processes and has {has}", books.id(at))
    };
    if over == 0 {
        return None;
    }
    let detail = detail();
    if books.requests[at].cap.own < books.requests[at].current {
        lose(books, at, over, true, &detail);
        return None;
    }
    let mut brake = None;
    for held in cheapest_of(books, at, over) {
        if books.held[held].fixed {
            books.vacate(held, VacateReason::OwnLimit, detail.clone());
        } else if books.may_take_back(held) {
            books.preempt(held, None, detail.clone());
        } else if let Some(machine) = books.held[held].machine {
            brake = brake.or(books.brake(machine, &[held]));
        }
    }
    brake
}

/// As many as that of what it has, the cheapest to lose first.
fn cheapest_of(books: &Books, at: usize, count: u64) -> Vec<usize> {
    let shares = books.demand(at).held.iter();
    let mut shares: Vec<usize> = shares.filter(|held| !books.leaving[*held]).collect();
    shares.sort_by(|a, b| cheapest(books, *a).cmp(&cheapest(books, *b)));
    shares.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    shares
}

/// Sends the cheapest away. What its own limit takes from it has no beneficiary.
fn lose(books: &mut Books, at: usize, count: u64, own_limit: bool, detail: &str) {
    for held in cheapest_of(books, at, count) {
        if own_limit || books.held[held].fixed {
            books.vacate(held, VacateReason::OwnLimit, detail.to_owned());
        } else {
            books.preempt(held, None, detail.to_owned());
        }
    }
}

fn shrink_to_own_limit(books: &mut Books, policy: Policy, at: usize) {
    let request = &books.requests[at];
    let limit = if policy == Policy::FairShare {
        request.cap.own
    } else {
        request.counted
    };
    let over = request.current.saturating_sub(limit);
    let demand = books.demand(at);
    if over == 0 || demand.kind == WorkKind::Reservation {
        return;
    }
    if request.current > demand.max_processes {
        let most = demand.max_processes;
        let detail = format!("{} wants at most {most} processes", books.id(at));
        lose(books, at, over, true, &detail);
    } else {
        let detail = format!(
            "{} may have {limit} processes while it starts",
            books.id(at)
        );
        lose(books, at, over, false, &detail);
    }
}

/// what costs least to lose comes first. Squatters go before others where that is set
/// (W-13).
pub(crate) fn cheapest<'b>(books: &'b Books, held: usize) -> impl Ord + use<'b> {
    let share = &books.held[held];
    let allocation = share;
    let machine = share.machine.map(|machine| &books.machines[machine]);
    let pool = machine.and_then(|machine| machine.pool);
    let home = share.request.and_then(|request| books.home(request));
    let memory = share
        .machine
        .map_or(0, |at| books.station(at).node.capacity.memory_bytes);
    (
        books.settings.squatters_go_home && pool == home,
        allocation.running,
        books.invested_ms(held),
        Reverse(pool.map_or(0, |pool| books.forest.depth(pool))),
        // Of equal orders one node may still be the larger one.
        Reverse((machine.map_or(0, |m| m.order), memory)),
        Reverse(allocation.granted_at),
        Reverse(&share.id),
    )
}

/// Of these shares, what their owners hold beyond their counts, cheapest first.
fn takeable(books: &Books, shares: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut shares: Vec<usize> = shares
        .filter(|held| {
            let share = &books.held[*held];
            let exceeds = |request: usize| books.requests[request].excess() > 0;
            !books.leaving[*held] && !share.fixed && share.request.is_some_and(exceeds)
        })
        .collect();
    if shares.len() > 1 {
        shares.sort_by(|a, b| cheapest(books, *a).cmp(&cheapest(books, *b)));
    }
    shares
}

fn relieve_shrunken_nodes(books: &mut Books, tree: usize) {
    for at in books.register.overfull.iter().copied() {
        let open = books.in_tree(at, tree) && books.machines[at].is_schedulable();
        if !open || !is_over(books, at) {
            continue;
        }
        books.passes();
        let name = &books.station(at).name;
        let detail = format!("node {name} shrank below what it holds");
        for held in takeable(books, books.station(at).held.iter()) {
            let exceeds = books.held[held]
                .request
                .is_some_and(|r| books.requests[r].excess() > 0);
            if exceeds && is_over(books, at) {
                books.preempt(held, None, detail.clone());
            }
        }
    }
}

/// Do the shares that stay exceed what the node has?
fn is_over(books: &Books, machine: usize) -> bool {
    let station = books.station(machine);
    let (mut order, mut size) = (0_u64, Size::default());
    for share in station
        .held
        .iter()
        .filter(|held| !books.leaving[*held])
        .map(|held| &books.held[held])
    {
        order = order.saturating_add(share.order);
        size.add(&share.size);
    }
    order > station.order || !size.fits(&station.node.capacity)
}
