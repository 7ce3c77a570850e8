//! What each request could hold if everything preemptable gave way: the full size vector against
//! every node it may use. Orders alone would count for work that no node can take (W-1, W-12), and
//! what is counted for it would be kept from others for ever.

use std::collections::BTreeMap;

use crate::{
    books::{Books, Deferral},
    plan::Reason,
    room::Room,
    snapshot::Policy,
};

/// Measures every request against the room that is not held for good, and holds its cap to that.
pub(crate) fn measure(books: &mut Books) {
    if !books.settings.rest_on_closed {
        for request in &mut books.requests {
            request.resting = 0;
        }
    }
    if !books.settings.count_what_fits {
        return;
    }
    let changed = kinds_after_faults(books);
    let kinds = changed.as_ref().unwrap_or(&books.register.kinds);
    let mut known: Vec<Option<u64>> = vec![None; books.register.shapes.len()];
    for at in 0..books.requests.len() {
        let request = &books.requests[at];
        if request.class.is_none() {
            books.requests[at].reach = 0;
            continue;
        }
        let reach = if request.listed {
            among_listed(books, at)
        } else if request.upgraded {
            among(books, kinds, at)
        } else if let Some(reach) = known[request.shape] {
            reach
        } else {
            let reach = among(books, kinds, at);
            known[request.shape] = Some(reach);
            reach
        };
        books.requests[at].reach = reach;
        if books.policy(at) == Some(Policy::FairShare) {
            let most = books.most(at);
            let request = &mut books.requests[at];
            request.cap.steady = request.cap.steady.min(most);
            request.cap.now = request.cap.now.min(most);
        }
    }
}

/// Room that fixed shares leave can be counted on where that is looked at so closely.
fn kinds_after_faults(books: &Books) -> Option<BTreeMap<(usize, Room), u64>> {
    if books.changed_rooms.is_empty() {
        return None;
    }
    let mut kinds = books.register.kinds.clone();
    for (machine, room) in &books.changed_rooms {
        let station = &books.register.machines[*machine];
        if let Some(pool) = station.pool.filter(|_| station.schedulable) {
            if let Some(nodes) = kinds.get_mut(&(pool, station.room.clone())) {
                *nodes -= 1;
            }
            *kinds.entry((pool, room.clone())).or_default() += 1;
        }
    }
    Some(kinds)
}

/// Nodes alike are counted once.
fn among(books: &Books, kinds: &BTreeMap<(usize, Room), u64>, at: usize) -> u64 {
    let request = &books.requests[at];
    kinds
        .iter()
        .filter(|((pool, _), _)| books.may_use(at, *pool))
        .map(|((_, room), nodes)| {
            room.fitting(request.order, request.size)
                .saturating_mul(*nodes)
        })
        .fold(0, u64::saturating_add)
}

fn among_listed(books: &Books, request: usize) -> u64 {
    let work = &books.requests[request];
    work.demand
        .machines
        .iter()
        .filter_map(|name| books.register.machine(name))
        .filter(|at| books.machines[*at].is_schedulable() && books.is_permitted(request, *at))
        .map(|at| books.room(at).fitting(work.order, work.size))
        .fold(0, u64::saturating_add)
}

/// Why no node can take even one process of it. Every node of its pools is looked at, whatever its
/// state: too large is for ever, blocked is not [C-8].
pub(crate) fn nowhere(books: &Books, at: usize) -> Deferral {
    let order = books.requests[at].order;
    let (reason, detail) = if !books.settings.count_what_fits {
        by_order_alone(books, at)
    } else if let Some(never) = never(books, at) {
        never
    } else {
        let blocked = |machine: &usize| {
            let place = &books.machines[*machine];
            place.node.block.is_some() || books.requests[at].demand.avoids(place.name)
        };
        let mut large_enough = large_enough(books, at).peekable();
        if large_enough.peek().is_some() && large_enough.all(|machine| blocked(&machine)) {
            let detail = "every node that could hold it is blocked";
            (Reason::AllBlocked, detail)
        } else {
            let detail = "no node has that much room that is free or could be freed";
            (Reason::InsufficientResources, detail)
        }
    };
    Deferral {
        reason,
        refused: false,
        detail: format!("one process needs {order} quanta: {detail}"),
    }
}

/// machine lists are no matter of counting.
fn by_order_alone(books: &Books, at: usize) -> (Reason, &'static str) {
    if large_enough(books, at).next().is_some() {
        let detail = "no node has that much room that is free or could be freed";
        (Reason::InsufficientResources, detail)
    } else {
        let detail = "no node it may use is large enough";
        (Reason::NoHostLargeEnough, detail)
    }
}

/// What no passing of time changes: no node it may use is listed, or none is large enough.
pub(crate) fn never(books: &Books, at: usize) -> Option<(Reason, &'static str)> {
    let request = &books.requests[at];
    let listed = !request.demand.machines.is_empty();
    if listed && permitted(books, at).next().is_none() {
        let detail = "none of the listed machines is in its pool";
        return Some((Reason::NoListedMachine, detail));
    }
    if large_enough(books, at).next().is_none() {
        let detail = "no node it may use is large enough";
        return Some((Reason::NoHostLargeEnough, detail));
    }
    None
}

/// What is blocked for it alone counts: that passes.
fn permitted<'b>(books: &'b Books, at: usize) -> impl Iterator<Item = usize> + 'b {
    let request = &books.requests[at];
    (0..books.machines.len()).filter(move |machine| {
        let place = &books.machines[*machine];
        let avoided = || {
            let pool = place.pool;
            request.demand.avoids(place.name) && pool.is_some_and(|pool| books.may_use(at, pool))
        };
        books.is_permitted(at, *machine) || avoided()
    })
}

/// Nodes of its pools that one process would fit on if they were empty, whatever its policy. By the
/// rules neither the machine list nor any size but the order matters here (13.2).
fn large_enough<'b>(books: &'b Books, at: usize) -> impl Iterator<Item = usize> + 'b {
    let request = &books.requests[at];
    let closely = books.settings.count_what_fits;
    (0..books.machines.len()).filter(move |machine| {
        let place = &books.machines[*machine];
        let may = request.admits(place) || request.demand.avoids(place.name);
        let could = || may && request.size.fits(&place.node.capacity);
        place.order >= request.order
            && place.pool.is_some_and(|pool| books.may_use(at, pool))
            && (!closely || could())
    })
}
