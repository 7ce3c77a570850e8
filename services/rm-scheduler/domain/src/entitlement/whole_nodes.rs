//! RESERVE groups: whole nodes.
//!
//! A request is counted only for a node that is promised to it: free, or holding nothing but what
//! may be taken back. A promised node is out of the tables for everyone else [C-7].

use std::collections::BTreeMap;

use hayward_vocabulary::{Size, WorkKind};

use super::{
    Tables, by_class_and_age,
    fixed_share::{defer, over_allotment},
};
use crate::{
    output::{plan::Reason, reason::Deferral},
    preemption::cheapest,
    state::Books,
};

/// By pool, where anybody wants one, the nodes that could be promised.
type Candidates = BTreeMap<usize, Vec<usize>>;

/// How-Much: finds nodes and promises them. Turns go by class and age whatever the pools are
/// called, for an allotment is one over all pools (W-17).
pub(crate) fn promise(books: &mut Books, tables: &mut Tables, classes: &[usize]) {
    let mut candidates = Candidates::new();
    for at in by_class_and_age(books, classes) {
        promise_one(books, tables, at, &mut candidates);
    }
}

/// Nodes nobody's fixed share stands on: free ones, then those that would have to be cleared, each
/// smallest first, then by least time invested, then by name.
fn clearable(books: &Books, home: usize) -> Vec<usize> {
    let mut found: Vec<_> = (0..books.machines.len())
        .filter(|at| {
            let (machine, held) = (&books.machines[*at], &books.station(*at).held);
            machine.pool == Some(home)
                && machine.is_schedulable()
                && machine.promised_to.is_none()
                && machine.order > 0
                && held.iter().all(|held| is_clearable(books, held))
        })
        .map(|at| (rank(books, at), at))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, at)| at).collect()
}

fn is_clearable(books: &Books, held: usize) -> bool {
    let share = &books.held[held];
    !share.fixed || (books.settings.clear_promised && books.leaving[held])
}

/// With the setting that clears promised nodes at once, nodes that empty anyway come before those
/// that would have to be cleared.
fn rank(books: &Books, at: usize) -> (u8, u64, u64) {
    let machine = &books.machines[at];
    let clears = books.settings.clear_promised;
    let counts = |held: &usize| !clears || !books.leaving[*held];
    let held = &books.station(at).held;
    let staying = held.iter().filter(counts);
    let invested = staying
        .clone()
        .map(|held| investment_ms(books, held))
        .fold(0, u64::saturating_add);
    let stage = match (held.is_empty(), staying.count()) {
        (true, _) => 0,
        (false, 0) => 1,
        (false, _) => 2,
    };
    (stage, machine.order, invested)
}

/// Milliseconds spent on tasks in flight: none before a share has come up, however long that takes.
fn investment_ms(books: &Books, held: usize) -> u64 {
    if books.held[held].running {
        books.invested_ms(held)
    } else {
        0
    }
}

fn promise_one(books: &mut Books, tables: &mut Tables, at: usize, known: &mut Candidates) {
    let Some(home) = books.home(at) else { return };
    let request = &books.requests[at];
    let (wanted, current, order) = (request.cap.now, request.current, request.order);
    if request.ended {
        return;
    }
    let counted = match books.demand(at).kind {
        WorkKind::Reservation => current,
        _ => current.min(wanted),
    };
    books.count(at, counted);
    if current == 0 && wanted > 0 && books.allotment_left(at, order) == 0 {
        defer(books, at, |books, at| over_allotment(books, at, order));
        return;
    }
    if books.requests[at].counted >= wanted {
        return;
    }
    // A promise only takes nodes away from the list.
    let candidates = known.entry(home);
    let candidates = candidates.or_insert_with(|| clearable(books, home));
    while books.requests[at].counted < wanted {
        let chosen = candidates.iter().position(|machine| {
            let place = &books.machines[*machine];
            // A better group may already count on this room.
            accepts(books, at, *machine)
                && (!books.settings.count_what_fits || tables.of(home).processes(place.order) > 0)
        });
        let Some(position) = chosen else {
            defer_if_empty(books, at, |books, at| no_node(books, at, home));
            return;
        };
        let order = books.machines[candidates[position]].order;
        if books.allotment_left(at, order) == 0 {
            defer_if_empty(books, at, |books, at| over_allotment(books, at, order));
            return;
        }
        let machine = candidates.remove(position);
        let holes = tables.of_mut(home);
        if !holes.remove(order) {
            holes.count_out(1, order);
        }
        books.use_allotment(at, order, 1);
        books.machines[machine].promised_to = Some(at);
        books.promised.entry(at).or_default().push(machine);
        let request = &mut books.requests[at];
        request.counted += 1;
        if books.snapshot.tunables.reserve_overage_bytes.is_some() {
            // from now on only this order.
            (request.order, request.upgraded) = (order, true);
        }
    }
}

fn defer_if_empty(books: &mut Books, at: usize, why: impl FnOnce(&Books, usize) -> Deferral) {
    if books.requests[at].counted == 0 {
        defer(books, at, why);
    }
}

/// Orders of nodes that are acceptable. Where the fleet names no overage, any larger node is.
fn acceptable(books: &Books, at: usize) -> std::ops::RangeInclusive<u64> {
    let request = &books.requests[at];
    let asked = books.asked(at);
    let least = if *asked == Size::default() {
        1
    } else {
        request.order
    };
    if request.upgraded && books.snapshot.tunables.reserve_overage_bytes.is_some() {
        return request.order..=request.order;
    }
    let most = match books.snapshot.tunables.reserve_overage_bytes {
        None => u64::MAX,
        Some(_) if books.demand(at).kind != WorkKind::Reservation => least,
        Some(_) if *asked == Size::default() => u64::MAX,
        Some(overage) => {
            let mut larger = asked.clone();
            larger.memory_bytes = larger.memory_bytes.saturating_add(overage);
            let quantum = books.register.quantum(books.home(at));
            quantum.work_order(&larger)
        }
    };
    least..=most
}

/// Is this node's size acceptable, and is it listed? The state of the node does not matter here.
pub(crate) fn accepts(books: &Books, at: usize, machine: usize) -> bool {
    let station = books.station(machine);
    acceptable(books, at).contains(&station.order)
        && books.asked(at).fits(&station.node.capacity)
        && books.admits(at, machine)
}

fn no_node(books: &Books, at: usize, home: usize) -> Deferral {
    let range = acceptable(books, at);
    let mut of_size = books
        .machines
        .iter()
        .enumerate()
        .filter(|(_, m)| m.pool == Some(home) && range.contains(&m.order))
        .map(|(machine, _)| machine)
        .filter(|m| !books.settings.count_what_fits || accepts(books, at, *m))
        .peekable();
    let order = books.requests[at].order;
    let (reason, detail) = if of_size.peek().is_none() {
        (
            Reason::NoHostOfSize,
            format!("no node of its pool has an acceptable size ({order})"),
        )
    } else if of_size.all(|machine| books.station(machine).node.block.is_some()) {
        (
            Reason::AllBlocked,
            "every node that could be reserved is blocked".into(),
        )
    } else {
        let detail = "nodes of that size exist, but none is free or could be cleared";
        (Reason::ResourcesExhausted, detail.into())
    };
    Deferral {
        reason,
        refused: false,
        detail,
    }
}

/// Is this whole node kept for anybody? Mostly none is, which is seen without looking at the node.
pub(crate) fn is_promised(books: &Books, machine: usize) -> bool {
    !books.promised.is_empty() && books.machines[machine].promised_to.is_some()
}

/// What-Of for work in RESERVE classes.
pub(crate) fn place(books: &mut Books, at: usize) {
    if books.requests[at].is_out() {
        return;
    }
    if books.settings.clear_promised {
        take_or_clear(books, at);
        return;
    }
    take_free(books, at);
    for machine in books.promised_to(at).to_vec() {
        if books.requests[at].missing() > 0 {
            shed_overage(books, at, machine);
        }
    }
}

/// free nodes of exactly its order; those promised to it before those of others.
fn take_free(books: &mut Books, at: usize) {
    let Some(home) = books.home(at) else { return };
    if books.requests[at].missing() == 0 {
        return;
    }
    let order = books.requests[at].order;
    let mut free: Vec<(u8, usize)> = (0..books.machines.len())
        .filter(|machine| {
            let place = &books.machines[*machine];
            place.pool == Some(home)
                && place.order == order
                && place.is_schedulable()
                && books.station(*machine).held.is_empty()
                && place.pending.is_empty()
                && accepts(books, at, *machine)
        })
        .map(|machine| match books.machines[machine].promised_to {
            Some(request) if request == at => (0, machine),
            None => (1, machine),
            Some(_) => (2, machine),
        })
        .collect();
    free.sort_unstable();
    let missing = usize::try_from(books.requests[at].missing()).unwrap_or(usize::MAX);
    for (_, machine) in free.into_iter().take(missing) {
        take(books, at, machine);
    }
}

fn take(books: &mut Books, at: usize, machine: usize) {
    let order = books.machines[machine].order;
    let node = &books.station(machine).node;
    books.grant(at, machine, order, &node.capacity);
}

/// Shares there leave as far as their owners have more than their counts.
fn shed_overage(books: &mut Books, at: usize, machine: usize) {
    let may_go = |held: &usize| !books.leaving[*held] && !books.held[*held].fixed;
    let shares = books.station(machine).held.iter();
    let mut shares: Vec<usize> = shares.filter(may_go).collect();
    shares.sort_by(|a, b| cheapest(books, *a).cmp(&cheapest(books, *b)));
    for held in shares {
        let owner = books.held[held].request;
        if owner.is_some_and(|owner| books.requests[owner].excess() > 0) {
            if !books.may_take_back(held) {
                let brake = books.brake(machine, &[held]);
                books.hold_back(at, brake);
                continue;
            }
            let detail = clearing(books, at, machine);
            books.preempt(held, Some(at), detail);
        }
    }
}

fn clearing(books: &Books, at: usize, machine: usize) -> String {
    format!(
        "node {} is cleared for {}",
        books.station(machine).name,
        books.id(at)
    )
}

/// Takes promised nodes that are empty, clears the others. All shares leave at once: clearing only
/// what exceeds its owner's count would shed the rest elsewhere and take several rounds (W-33).
fn take_or_clear(books: &mut Books, at: usize) {
    for machine in books.promised_to(at).to_vec() {
        if books.requests[at].missing() == 0 {
            return;
        }
        if books.station(machine).held.is_empty() {
            take(books, at, machine);
            continue;
        }
        let detail = clearing(books, at, machine);
        let staying = books.station(machine).held.iter();
        let staying: Vec<usize> = staying.filter(|held| !books.leaving[*held]).collect();
        if let Some(brake) = books.brake(machine, &staying) {
            // B5: the node stays promised, and empties as those on it end.
            books.hold_back(at, Some(brake));
            continue;
        }
        for held in staying {
            books.preempt(held, Some(at), detail.clone());
        }
        books.requests[at].coming += 1;
    }
}
