//! RESERVE groups: whole nodes.
//!
//! A request is counted only for a node that is promised to it: free, or holding nothing but what
//! may be taken back. A promised node is out of the tables and of placement for everyone else
//! [C-7], so that what leaves it is not replaced by others.

use std::collections::BTreeSet;

use hayward_vocabulary::{Size, WorkKind};

use crate::{
    books::{Books, Deferral, Machine},
    how_much::{Tables, fixed::over_allotment},
    plan::{Reason, Vacate, VacateReason},
};

/// How-Much: finds nodes and promises them.
pub(crate) fn promise(books: &mut Books, tables: &mut Tables, classes: &[usize]) {
    let mut work: Vec<usize> = classes
        .iter()
        .flat_map(|class| books.classes[*class].requests.iter().copied())
        .collect();
    work.sort_by(|a, b| books.requests[*a].age().cmp(&books.requests[*b].age()));
    let homes: BTreeSet<usize> = work.iter().filter_map(|at| books.home(*at)).collect();
    for home in homes {
        // Sorted once per pool; a promise only takes nodes away from the list.
        let mut candidates = clearable(books, home);
        for at in &work {
            if books.home(*at) == Some(home) {
                promise_one(books, tables, *at, &mut candidates);
            }
        }
    }
}

/// Nodes nobody's fixed share stands on: free ones, then those that are emptying anyway, then those
/// that would have to be cleared, each smallest first, then by least time invested.
fn clearable(books: &Books, home: usize) -> Vec<usize> {
    let mut found: Vec<_> = (0..books.machines.len())
        .filter(|at| {
            let machine = &books.machines[*at];
            machine.pool == Some(home)
                && machine.is_schedulable()
                && machine.promised_to.is_none()
                && machine.order > 0
                && machine.held.iter().all(|held| {
                    let share = &books.held[*held];
                    share.leaving || !share.allocation.fixed
                })
        })
        .map(|at| (rank(books, at), at))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, at)| at).collect()
}

fn rank(books: &Books, at: usize) -> (u8, u64, u64) {
    let machine = &books.machines[at];
    let staying = machine
        .held
        .iter()
        .map(|held| &books.held[*held])
        .filter(|s| !s.leaving);
    let invested = staying
        .clone()
        .filter_map(|share| share.allocation.running_since)
        .map(|since| books.snapshot.now.ms_since(since))
        .fold(0, u64::saturating_add);
    let stage = match (machine.held.is_empty(), staying.count()) {
        (true, _) => 0,
        (false, 0) => 1,
        (false, _) => 2,
    };
    (stage, machine.order, invested)
}

fn promise_one(books: &mut Books, tables: &mut Tables, at: usize, candidates: &mut Vec<usize>) {
    let Some(home) = books.home(at) else { return };
    let wanted = books.requests[at].cap.now;
    let current = books.requests[at].current;
    books.requests[at].counted = match books.requests[at].demand.kind {
        WorkKind::Reservation => current,
        _ => current.min(books.requests[at].demand.max_processes),
    };
    while books.requests[at].counted < wanted {
        let chosen = candidates.iter().position(|machine| {
            let place = &books.machines[*machine];
            // A better group may already count on this room.
            accepts(books, at, place) && tables.of(home).processes(place.order) > 0
        });
        let Some(position) = chosen else {
            defer_if_empty(books, at, |books| no_node(books, at, home));
            return;
        };
        let order = books.machines[candidates[position]].order;
        let user = &books.requests[at].demand.user;
        if books.allotment_left(user) < order {
            defer_if_empty(books, at, |books| over_allotment(books, at, order));
            return;
        }
        let machine = candidates.remove(position);
        let holes = tables.of_mut(home);
        if !holes.remove(order) {
            holes.count_out(1, order);
        }
        *books.fixed_used.entry(user).or_default() += order;
        books.machines[machine].promised_to = Some(at);
        books.requests[at].promised.push(machine);
        books.requests[at].counted += 1;
    }
}

fn defer_if_empty(books: &mut Books, at: usize, deferral: impl FnOnce(&Books) -> Deferral) {
    if books.requests[at].counted == 0 {
        books.requests[at].deferral = Some(deferral(books));
    }
}

/// Is this node's size acceptable, and is it listed? The state of the node does not matter here.
fn accepts(books: &Books, at: usize, machine: &Machine) -> bool {
    let request = &books.requests[at];
    let least = if request.demand.size == Size::default() {
        1
    } else {
        request.order
    };
    let most = match (
        request.demand.kind,
        books.snapshot.tunables.reserve_overage_quanta,
    ) {
        (WorkKind::Reservation, Some(overage)) if request.demand.size != Size::default() => {
            least.saturating_add(overage)
        }
        _ => u64::MAX,
    };
    (least..=most).contains(&machine.order)
        && request.demand.size.fits(&machine.node.capacity)
        && request.admits(machine)
}

fn no_node(books: &Books, at: usize, home: usize) -> Deferral {
    let mut acceptable = books
        .machines
        .iter()
        .filter(|m| m.pool == Some(home) && accepts(books, at, m))
        .peekable();
    let order = books.requests[at].order;
    let (reason, detail) = if acceptable.peek().is_none() {
        (
            Reason::NoHostOfSize,
            format!("no node of its pool has an acceptable size ({order})"),
        )
    } else if acceptable.all(|machine| machine.node.block.is_some()) {
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

/// What-Of: takes promised nodes that are empty, clears the others.
///
/// All shares of a promised node leave at once: clearing only what exceeds its owner's count would
/// shed the rest elsewhere and take several rounds (W-33).
pub(crate) fn place(books: &mut Books, at: usize) {
    for machine in books.requests[at].promised.clone() {
        if books.machines[machine].held.is_empty() {
            let order = books.machines[machine].order;
            let size = books.machines[machine].node.capacity.clone();
            books.grant(at, machine, order, size);
            continue;
        }
        let detail = format!(
            "node {} is cleared for {}",
            books.machines[machine].name, books.requests[at].id
        );
        for held in books.machines[machine].held.clone() {
            if !books.held[held].leaving {
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
        books.requests[at].coming += 1;
    }
}
