//! The arithmetic from capacity to each piece of work, as people read it.

use std::collections::BTreeMap;

use crate::{
    books::{Books, Machine},
    plan::{ClassShare, ShareNews, Shares, UserShare, WorkShare},
    snapshot::Policy,
};

/// Everything.
pub(crate) fn of(books: &Books) -> Shares {
    let mut shares = totals(books);
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

/// The fleet as a whole.
fn totals(books: &Books) -> Shares {
    let usable = || {
        let machines = books.machines.iter();
        machines.filter(|machine| machine.is_schedulable())
    };
    Shares {
        capacity: usable().map(|machine| machine.order).sum(),
        held: held_quanta(books),
        free: usable().map(|machine: &Machine| machine.free.order).sum(),
        ..Shares::default()
    }
}

/// Quanta due and held, by class and user.
pub(crate) struct Sums {
    users: usize,
    rows: Vec<(u64, u64)>,
}

impl Sums {
    pub fn new(books: &Books) -> Self {
        let users = books.register.users();
        Self {
            users,
            rows: vec![(0, 0); users * books.classes.len()],
        }
    }

    fn row(&self, books: &Books, at: usize) -> Option<usize> {
        let request = &books.requests[at];
        Some(request.class? * self.users + request.demand.user_at)
    }

    pub fn add(&mut self, books: &Books, at: usize, (due, held): (u64, u64)) {
        if let Some(row) = self.row(books, at) {
            let sums = &mut self.rows[row];
            *sums = (sums.0 + due, sums.1 + held);
        }
    }

    /// Of the class and user of this work.
    fn of(&self, books: &Books, at: usize) -> (u64, u64) {
        self.row(books, at).map_or((0, 0), |row| self.rows[row])
    }
}

/// The same as [`of`], of which only what differs is named: classes and users by their sums, work
/// by `changed`.
pub(crate) fn news(books: &Books, before: &Shares, changed: &[usize], sums: &Sums) -> ShareNews {
    let mut shares = totals(books);
    let mut of_class: Vec<Vec<usize>> = vec![Vec::new(); books.classes.len()];
    for at in changed {
        if let Some(class) = books.requests[*at].class {
            of_class[class].push(*at);
        }
    }
    for (book, changed) in books.classes.iter().zip(of_class) {
        let fair = book.class.policy == Policy::FairShare;
        let mut class = ClassShare {
            weight: book.class.weight,
            ..ClassShare::default()
        };
        let old = before.classes.get(book.name);
        for (place, (user, work)) in book.users.iter().enumerate() {
            let (mut due, held) = work.first().map_or((0, 0), |at| sums.of(books, *at));
            class.held += held;
            class.due += due;
            if fair && let Some(of_user) = book.user_due.get(place) {
                due = *of_user;
            }
            let old = old.and_then(|class| class.users.get(user));
            if old.is_none_or(|old| (old.due, old.held) != (due, held)) {
                let work = BTreeMap::new();
                class
                    .users
                    .insert(user.clone(), UserShare { due, held, work });
            }
        }
        for at in changed {
            let request = &books.requests[at];
            let user = &request.demand.user;
            let users = &mut class.users;
            let entry = users.entry(user.clone()).or_insert_with(|| {
                let old = old.and_then(|class| class.users.get(user));
                old.map_or_else(UserShare::default, |old| UserShare {
                    due: old.due,
                    held: old.held,
                    work: BTreeMap::new(),
                })
            });
            entry.work.insert(request.id.clone(), of_work(books, at).1);
        }
        if fair {
            class.due = crate::apportion::quanta(&book.given);
        }
        shares.classes.insert(book.name.to_owned(), class);
    }
    let gone = books.register.departed.iter().map(|it| {
        let class = books.classes[it.class].name.to_owned();
        (class, it.user.clone(), it.work.clone())
    });
    ShareNews {
        gone: gone.collect(),
        shares,
    }
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
pub(crate) fn of_work(books: &Books, at: usize) -> (u64, WorkShare) {
    let request = &books.requests[at];
    let has = request.has();
    let old = request.demand.held_quanta;
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
