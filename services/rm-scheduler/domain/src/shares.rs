//! The arithmetic from capacity to each piece of work, as people read it.

use crate::{
    books::{Books, Machine},
    plan::{ClassShare, Shares, WorkShare},
    snapshot::Policy,
};

pub(crate) fn of(books: &Books) -> Shares {
    let usable = || {
        books
            .machines
            .iter()
            .filter(|machine| machine.is_schedulable())
    };
    let mut shares = Shares {
        capacity: usable().map(|machine| machine.order).sum(),
        held: held_quanta(books),
        free: usable().map(|machine: &Machine| machine.free.order).sum(),
        ..Shares::default()
    };
    for book in &books.classes {
        let weight = book.class.weight;
        let mut class = ClassShare {
            weight,
            ..ClassShare::default()
        };
        for at in book.requests() {
            add_request(books, &mut class, at);
        }
        if book.class.policy == Policy::FairShare {
            class.due = crate::apportion::quanta(&book.given);
            for (user, due) in book.users.keys().zip(&book.user_due) {
                class.users.entry(user.clone()).or_default().due = *due;
            }
        }
        shares.classes.insert(book.name.to_owned(), class);
    }
    shares
}

fn held_quanta(books: &Books) -> u64 {
    let before: u64 = books.register.held_quanta;
    let live = books.pending.iter().filter(|share| share.live);
    before + live.map(|share| share.order).sum::<u64>()
}

fn add_request(books: &Books, class: &mut ClassShare, at: usize) {
    let request = &books.requests[at];
    let has = request.current + request.placed;
    let old: u64 = request
        .held
        .iter()
        .map(|held| books.held[*held].order)
        .sum();
    // A reservation's order is that of its node, known only when it has one.
    let order = request
        .promised
        .first()
        .map(|machine| books.machines[*machine].order)
        .or_else(|| request.held.first().map(|held| books.held[*held].order))
        .filter(|_| books.policy(at) == Some(Policy::Reserve))
        .unwrap_or(request.order);
    let held = old + request.placed * order;
    let counted = books.due(at);
    let user = class.users.entry(request.demand.user.clone()).or_default();
    user.held += held;
    user.due += counted * order;
    class.held += held;
    class.due += counted * order;
    let share = WorkShare {
        kind: request.demand.kind,
        order,
        wanted: request.cap.now,
        counted,
        current: has,
        leaving: request.leaving,
    };
    user.work.insert(request.id.clone(), share);
}
