//! FIXED_SHARE groups: who comes first is served, what is held stays.

use hayward_vocabulary::WorkKind;

use super::Tables;
use crate::{
    books::{Books, Deferral, Request},
    plan::Reason,
    reach::nowhere,
};

pub(super) fn count(books: &mut Books, tables: &mut Tables, classes: &[usize]) {
    let mut work: Vec<usize> = classes
        .iter()
        .flat_map(|class| books.classes[*class].requests.iter().copied())
        .collect();
    // Classes of one priority are merged by age: their order among themselves is arbitrary (W-17).
    work.sort_by(|a, b| books.requests[*a].age().cmp(&books.requests[*b].age()));
    for at in work {
        count_one(books, tables, at);
    }
}

fn count_one(books: &mut Books, tables: &mut Tables, at: usize) {
    let Some(home) = books.home(at) else { return };
    let request = &books.requests[at];
    let (order, current) = (request.order, request.current);
    let wanted = request.cap.now;
    if wanted <= current {
        books.requests[at].counted = keep(request);
        return;
    }
    let free = tables.of(home).processes(order).min(request.reach);
    if free == 0 {
        books.requests[at].counted = current;
        books.requests[at].deferral = (current == 0).then(|| nowhere(books, at));
        return;
    }
    let allowed = books.allotment_left(&request.demand.user) / order;
    if allowed == 0 {
        books.requests[at].counted = current;
        books.requests[at].deferral = (current == 0).then(|| over_allotment(books, at, order));
        return;
    }
    // Counting more than the room there is would only promise what cannot come.
    let more = (wanted - current).min(allowed).min(free);
    books.requests[at].counted = current + more;
    *books
        .fixed_used
        .entry(&books.requests[at].demand.user)
        .or_default() += more * order;
    tables.of_mut(home).count_out(more, order);
}

/// Fixed work shrinks by its own limit only, never by start-up rules or by others.
fn keep(request: &Request) -> u64 {
    match request.demand.kind {
        WorkKind::Job => request.current.min(request.demand.max_processes),
        WorkKind::Service | WorkKind::Reservation => request.current.min(request.cap.base),
    }
}

pub(crate) fn over_allotment(books: &Books, at: usize, order: u64) -> Deferral {
    let user = &books.requests[at].demand.user;
    let holds = books.fixed_used.get(user).copied().unwrap_or(0);
    let limit = books.allotment(user).unwrap_or(u64::MAX);
    let detail = format!(
        "user {user} holds {holds} of {limit} quanta of room that is never taken back; \
         this needs {order} more"
    );
    Deferral {
        reason: Reason::AllotmentExceeded,
        refused: false,
        detail,
    }
}
