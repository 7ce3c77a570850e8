//! The arithmetic from capacity to each piece of work, as people read it.

use crate::{
    books::{Books, Machine},
    plan::{ClassShare, Shares, UserShare, WorkShare},
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
        let fair = book.class.policy == Policy::FairShare;
        let mut class = ClassShare {
            weight: book.class.weight,
            ..ClassShare::default()
        };
        let users = book.users.iter().enumerate().map(|(place, (user, work))| {
            let mut share = of_user(books, work);
            class.held += share.held;
            class.due += share.due;
            if fair && let Some(due) = book.user_due.get(place) {
                share.due = *due;
            }
            (user.clone(), share)
        });
        let users = users.collect();
        class.users = users;
        if fair {
            class.due = crate::apportion::quanta(&book.given);
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

fn of_user(books: &Books, work: &[usize]) -> UserShare {
    let mut user = UserShare::default();
    let shares = work.iter().map(|at| {
        let (held, share) = of_work(books, *at);
        user.held += held;
        user.due += share.counted * share.order;
        (books.requests[*at].id.clone(), share)
    });
    let shares = shares.collect();
    user.work = shares;
    user
}

/// Quanta held, and what is shown of it.
fn of_work(books: &Books, at: usize) -> (u64, WorkShare) {
    let request = &books.requests[at];
    let has = request.has();
    let orders = request.held.iter().map(|held| books.held[*held].order);
    let old: u64 = orders.sum();
    // A reservation's order is that of its node, known only when it has one.
    let of_node = || {
        let promised = request.promised.first();
        let promised = promised.map(|machine| books.machines[*machine].order);
        promised.or_else(|| Some(books.held[*request.held.first()?].order))
    };
    let whole = books.policy(at) == Some(Policy::Reserve);
    let order = whole.then(of_node).flatten().unwrap_or(request.order);
    let share = WorkShare {
        kind: request.demand.kind,
        order,
        wanted: request.cap.now,
        counted: books.due(at),
        current: has,
        leaving: request.leaving,
    };
    (old + request.placed * order, share)
}
