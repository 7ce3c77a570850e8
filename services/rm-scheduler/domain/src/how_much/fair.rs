//! FAIR_SHARE groups: classes, then users, then jobs.

mod steady;

use std::{cmp::Reverse, collections::BTreeMap};

use super::Tables;
use crate::{
    apportion::{Amounts, Claims, as_holes, quanta},
    books::Books,
    deficit,
    orders::Holes,
    snapshot::Standing,
};

pub(super) fn count(books: &mut Books, tables: &mut Tables, classes: &[usize]) {
    let work: Vec<usize> = classes
        .iter()
        .flat_map(|class| books.classes[*class].requests())
        .collect();
    let mut limits = Limits::new(books.requests.len());
    if books.settings.steady_counts {
        steady::count(books, tables, classes, &work, &mut limits);
    } else {
        for at in &work {
            limits.set(*at, books.requests[*at].cap.now);
        }
        count_under(books, tables, classes, &limits);
    }
    pure_shares(books, classes);
    for class in classes {
        subtract(books, tables, *class);
    }
    if books.settings.rest_on_closed {
        for at in work {
            let request = &mut books.requests[at];
            request.counted += request.resting.min(request.cap.now);
        }
    }
}

/// Processes each request is counted for at most, by request.
pub(super) struct Limits(Vec<u64>);

impl Limits {
    fn new(requests: usize) -> Self {
        Self(vec![0; requests])
    }

    fn set(&mut self, request: usize, limit: u64) {
        self.0[request] = limit;
    }

    fn of(&self, request: usize) -> u64 {
        self.0[request]
    }
}

fn count_under(books: &mut Books, tables: &Tables, classes: &[usize], limits: &Limits) {
    let wants: Vec<Vec<Amounts>> = classes
        .iter()
        .map(|class| {
            let users = books.classes[*class].users.values();
            users.map(|work| wanted(books, work, limits)).collect()
        })
        .collect();
    let given = class_level(books, tables, classes, &wants);
    for ((class, given), wants) in classes.iter().zip(given).zip(wants) {
        let of_users = user_level(books, *class, &given, &wants, limits);
        let users = books.classes[*class].users;
        for (requests, given) in users.values().zip(&of_users) {
            job_level(books, requests, given, limits);
        }
        books.classes[*class].user_due = of_users.iter().map(quanta).collect();
        books.classes[*class].given = given;
    }
}

fn wanted(books: &Books, requests: &[usize], limits: &Limits) -> Amounts {
    let mut want = Amounts::new();
    // Neighbours often are alike, so one place in the map is kept open.
    let mut last = (0, 0_u64);
    for at in requests {
        let limit = limits.of(*at);
        let order = books.requests[*at].order;
        if order != last.0 {
            close(&mut want, last);
            last = (order, 0);
        }
        last.1 = last.1.saturating_add(limit);
    }
    close(&mut want, last);
    want
}

fn close(want: &mut Amounts, (order, count): (u64, u64)) {
    if count > 0 {
        let sum = want.entry(order).or_default();
        *sum = sum.saturating_add(count);
    }
}

/// Classes of the group at home in this pool or below: weight descending, then name (9.1).
fn rivals(books: &Books, classes: &[usize], home: usize) -> Vec<usize> {
    let within = |class: &usize| {
        let pool = books.classes[*class].pool;
        pool.is_some_and(|pool| books.forest.is_within(pool, home))
    };
    let mut rivals: Vec<usize> = classes.iter().copied().filter(within).collect();
    rivals.sort_by_key(|class| {
        let book = &books.classes[*class];
        (Reverse(book.class.weight), book.name)
    });
    rivals
}

/// Pools that are home to a class of this group, each after everything below it.
fn homes(books: &Books, classes: &[usize]) -> Vec<usize> {
    let mut homes: Vec<usize> = classes
        .iter()
        .filter_map(|class| books.classes[*class].pool)
        .collect();
    homes.sort_by_key(|pool| books.forest.turn(*pool));
    homes.dedup();
    homes
}

/// at every home pool, its holes and all below are divided among the classes at home there
/// or below; a class keeps what it is given at its own home.
fn class_level(
    books: &Books,
    tables: &Tables,
    classes: &[usize],
    wants: &[Vec<Amounts>],
) -> Vec<Amounts> {
    let mut given: BTreeMap<usize, Amounts> = BTreeMap::new();
    for home in homes(books, classes) {
        let mut holes = Holes::default();
        for pool in books.forest.subtree(home) {
            holes.merge(tables.of(*pool));
        }
        let rivals = rivals(books, classes, home);
        let mut claims = Claims::default();
        for class in &rivals {
            claims.enter(
                books.classes[*class].class.weight,
                deficit::of_class(books, *class),
            );
            let own = classes.iter().position(|it| it == class);
            let wants = own.map_or(&[][..], |own| &wants[own]);
            for (order, count) in all(wants) {
                claims.want(order, count);
            }
        }
        claims.apportion(holes, books.settings.manner());
        for (class, amounts) in rivals.into_iter().zip(claims.given()) {
            if books.classes[class].pool == Some(home) {
                given.insert(class, amounts);
            }
        }
    }
    classes
        .iter()
        .map(|class| given.remove(class).unwrap_or_default())
        .collect()
}

/// What all users of a class want.
fn all(wants: &[Amounts]) -> Amounts {
    let mut all = Amounts::new();
    for (order, count) in wants.iter().flatten() {
        close(&mut all, (*order, *count));
    }
    all
}

/// what weights alone would give, for section 12. Passes at pools above overwrite.
fn pure_shares(books: &mut Books, classes: &[usize]) {
    for home in homes(books, classes) {
        let within = |pool: usize| books.forest.is_within(pool, home);
        // [C-12]: nodes that take no work have nothing to give.
        let total: u64 = books
            .machines
            .iter()
            .filter(|m| m.is_schedulable() && m.pool.is_some_and(within))
            .map(|machine| machine.order)
            .sum();
        let rivals = rivals(books, classes, home);
        let weights: u64 = rivals
            .iter()
            .map(|class| books.classes[*class].class.weight)
            .sum();
        for class in rivals {
            let product = u128::from(total) * u128::from(books.classes[class].class.weight);
            let pure = product / u128::from(weights.max(1));
            books.classes[class].pure = u64::try_from(pure).unwrap_or(u64::MAX);
        }
    }
}

/// What each user of a class is given, by the name of the user. They are sorted by what
/// they want in all, then by name [C-9].
fn user_level(
    books: &Books,
    class: usize,
    given: &Amounts,
    wants: &[Amounts],
    limits: &Limits,
) -> Vec<Amounts> {
    let users = books.classes[class].users;
    // What is wanted moves with what is held. Where counts are to stand still, the sort goes by
    // what could be used at all.
    let total = |at: &usize| {
        if books.settings.steady_counts {
            books.requests[*at].cap.base
        } else {
            limits.of(*at)
        }
    };
    let sum = |work: &Vec<usize>| work.iter().map(total).fold(0, u64::saturating_add);
    let mut turns: Vec<(u64, usize)> = users.values().map(sum).zip(0..).collect();
    turns.sort_unstable();
    let standings: Vec<_> = users
        .keys()
        .map(|user| deficit::of_user(books, class, user))
        .collect();
    let mut claims = Claims::default();
    for (_, user) in &turns {
        claims.enter(1, standings[*user]);
        for (order, count) in &wants[*user] {
            claims.want(*order, *count);
        }
    }
    claims.apportion(as_holes(given), books.settings.manner());
    let mut of_users = vec![Amounts::new(); turns.len()];
    for ((_, user), given) in turns.into_iter().zip(claims.given()) {
        of_users[user] = given;
    }
    of_users
}

/// Jobs by age, then id.
fn job_level(books: &mut Books, requests: &[usize], given: &Amounts, limits: &Limits) {
    let mut claims = Claims::default();
    for at in requests {
        claims.enter(1, Standing::Even);
        claims.want(books.requests[*at].order, limits.of(*at));
    }
    claims.apportion(as_holes(given), books.settings.manner());
    for (at, count) in requests.iter().zip(claims.processes()) {
        books.requests[*at].counted = count;
    }
}

/// later groups see the rest, at every depth of the tree [C-14].
fn subtract(books: &Books, tables: &mut Tables, class: usize) {
    let Some(home) = books.classes[class].pool else {
        return;
    };
    for (order, count) in books.classes[class].given.iter().rev() {
        let mut left = *count;
        for pool in books.forest.subtree(home) {
            left = tables.of_mut(*pool).count_out(left, *order);
        }
    }
}
