//! FIXED_SHARE groups: who comes first is served, what is held stays.

use hayward_vocabulary::{WorkKind, counted::quanta};

use super::{Tables, reachable::nowhere};
use crate::{
    index::Asked,
    output::{plan::Reason, reason::Deferral},
    state::{Books, Request},
};

pub(super) fn count(books: &mut Books, tables: &mut Tables, classes: &[usize]) {
    for at in super::by_class_and_age(books, classes) {
        let counted = match books.demand(at).kind {
            WorkKind::Job => count_job(books, tables, at),
            WorkKind::Service | WorkKind::Reservation => count_single(books, tables, at),
        };
        books.count(at, counted);
    }
}

///
fn count_job(books: &mut Books, tables: &mut Tables, at: usize) -> u64 {
    let Some(home) = books.home(at) else { return 0 };
    let request = &books.requests[at];
    let (order, current) = (request.order, request.current);
    let wanted = if books.settings.count_what_fits {
        // Fixed work shrinks by its own limit only, never by start-up rules.
        request.cap.now.max(keeps(request, books.demand(at)))
    } else {
        request.cap.now
    };
    let free = tables.of(home).processes(order).min(request.reach);
    if free == 0 && current == 0 {
        return defer(books, at, nowhere);
    }
    let more = books.allotment_left(at, order);
    if more == 0 && current == 0 && wanted > 0 {
        return defer(books, at, |books, at| over_allotment(books, at, order));
    }
    let mut counted = wanted.min(current.saturating_add(more));
    if books.settings.count_what_fits {
        // Counting more than the room there is would only promise what cannot come.
        counted = counted.min(current.saturating_add(free));
    }
    let fresh = counted.saturating_sub(current);
    books.use_allotment(at, order, fresh);
    // [C-17]: child pools are not touched.
    tables.of_mut(home).count_out(fresh, order);
    counted
}

fn keeps(request: &Request, demand: &Asked) -> u64 {
    let limit = if demand.keeps_what_it_holds || demand.completing {
        request.current
    } else {
        demand.max_processes
    };
    request.current.min(limit)
}

///
fn count_single(books: &mut Books, tables: &mut Tables, at: usize) -> u64 {
    let Some(home) = books.home(at) else { return 0 };
    let request = &books.requests[at];
    let order = request.order;
    if request.ended {
        return 0;
    }
    if request.current > 0 {
        return request.cap.now.min(1);
    }
    if request.cap.now == 0 {
        return 0;
    }
    if tables.of(home).processes(order).min(request.reach) == 0 {
        return defer(books, at, nowhere);
    }
    if books.allotment_left(at, order) == 0 {
        return defer(books, at, |books, at| over_allotment(books, at, order));
    }
    books.use_allotment(at, order, 1);
    tables.of_mut(home).count_out(1, order);
    1
}

pub(crate) fn defer(
    books: &mut Books,
    at: usize,
    why: impl FnOnce(&Books, usize) -> Deferral,
) -> u64 {
    books.requests[at].deferral = Some(Box::new(why(books, at)));
    0
}

pub(crate) fn over_allotment(books: &Books, at: usize, order: u64) -> Deferral {
    let user = &books.demand(at).user;
    let (limit, used) = books.allotment(at).unwrap_or((u64::MAX, 0));
    let quantum = books.quantum_bytes(at).max(1);
    let (limit, used) = (limit / quantum, used / quantum);
    let detail = format!(
        "user {user} holds {used} of {} of room that is never taken back; this needs {order} more",
        quanta(limit)
    );
    Deferral {
        reason: Reason::AllotmentExceeded,
        refused: false,
        detail,
    }
}
