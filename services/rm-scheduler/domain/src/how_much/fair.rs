//! FAIR_SHARE groups: classes, then users, then jobs.

mod steady;

use std::{cmp::Reverse, collections::BTreeMap};

use hayward_vocabulary::UserName;

use super::Tables;
use crate::{
    apportion::{Amounts, Entity, apportion, as_holes, quanta},
    books::Books,
    deficit,
    orders::Holes,
};

pub(super) fn count(books: &mut Books, tables: &mut Tables, classes: &[usize]) {
    let work: Vec<usize> = classes
        .iter()
        .flat_map(|class| books.classes[*class].requests.iter().copied())
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
    let given = class_level(books, tables, classes, limits);
    for (class, given) in classes.iter().zip(given) {
        let users = user_level(books, *class, &given, limits);
        let mut user_due = BTreeMap::new();
        for (user, (requests, given)) in users {
            user_due.insert(user, quanta(&given));
            job_level(books, requests, &given, limits);
        }
        books.classes[*class].given = given;
        books.classes[*class].user_due = user_due;
    }
}

fn wanted(books: &Books, requests: &[usize], limits: &Limits) -> Amounts {
    let mut want = Amounts::new();
    for at in requests {
        let limit = limits.of(*at);
        if limit > 0 {
            let sum = want.entry(books.requests[*at].order).or_default();
            *sum = sum.saturating_add(limit);
        }
    }
    want
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
fn class_level(books: &Books, tables: &Tables, classes: &[usize], limits: &Limits) -> Vec<Amounts> {
    let mut given: BTreeMap<usize, Amounts> = BTreeMap::new();
    for home in homes(books, classes) {
        let mut holes = Holes::default();
        for pool in books.forest.subtree(home) {
            holes.merge(tables.of(pool));
        }
        let rivals = rivals(books, classes, home);
        let mut entities: Vec<Entity> = rivals
            .iter()
            .map(|class| {
                let book = &books.classes[*class];
                let want = wanted(books, &book.requests, limits);
                Entity::new(book.class.weight, want).owed(deficit::of_class(books, *class))
            })
            .collect();
        apportion(holes, &mut entities, books.settings.level_remainders);
        for (class, entity) in rivals.into_iter().zip(entities) {
            if books.classes[class].pool == Some(home) {
                given.insert(class, entity.given);
            }
        }
    }
    classes
        .iter()
        .map(|class| given.remove(class).unwrap_or_default())
        .collect()
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
    for class in classes {
        let users = by_user(books, *class);
        let of_user = books.classes[*class].pure / (users.len() as u64).max(1);
        for requests in users.into_values() {
            let of_job = of_user / (requests.len() as u64).max(1);
            for at in requests {
                books.requests[at].pure = of_job;
            }
        }
    }
}

fn by_user<'a>(books: &Books<'a>, class: usize) -> BTreeMap<&'a UserName, Vec<usize>> {
    let mut by_user: BTreeMap<&'a UserName, Vec<usize>> = BTreeMap::new();
    for at in &books.classes[class].requests {
        by_user
            .entry(&books.requests[*at].demand.user)
            .or_default()
            .push(*at);
    }
    by_user
}

type UserGrants<'a> = BTreeMap<&'a UserName, (Vec<usize>, Amounts)>;

/// Users are sorted by what they want in all, then by name [C-9].
fn user_level<'a>(
    books: &Books<'a>,
    class: usize,
    given: &Amounts,
    limits: &Limits,
) -> UserGrants<'a> {
    let mut users: Vec<(&UserName, Vec<usize>)> = by_user(books, class).into_iter().collect();
    // What is wanted moves with what is held. Where counts are to stand still, the sort goes by
    // what could be used at all.
    let total = |at: &usize| {
        if books.settings.steady_counts {
            books.requests[*at].cap.base
        } else {
            limits.of(*at)
        }
    };
    users.sort_by_cached_key(|(user, requests)| {
        let wanted = requests.iter().map(total).fold(0, u64::saturating_add);
        (wanted, *user)
    });
    let mut entities: Vec<Entity> = users
        .iter()
        .map(|(user, requests)| {
            let owed = deficit::of_user(books, class, user);
            Entity::new(1, wanted(books, requests, limits)).owed(owed)
        })
        .collect();
    let level = books.settings.level_remainders;
    apportion(as_holes(given), &mut entities, level);
    users
        .into_iter()
        .zip(entities)
        .map(|((user, requests), entity)| (user, (requests, entity.given)))
        .collect()
}

/// Jobs by age, then id.
fn job_level(books: &mut Books, mut requests: Vec<usize>, given: &Amounts, limits: &Limits) {
    if requests.len() > 1 {
        requests.sort_by_cached_key(|at| {
            let request = &books.requests[*at];
            (request.demand.submitted_at, request.id)
        });
    }
    let mut entities: Vec<Entity> = requests
        .iter()
        .map(|at| Entity::new(1, wanted(books, std::slice::from_ref(at), limits)))
        .collect();
    let level = books.settings.level_remainders;
    apportion(as_holes(given), &mut entities, level);
    for (at, entity) in requests.into_iter().zip(entities) {
        books.requests[at].counted = entity.given.values().sum();
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
            left = tables.of_mut(pool).count_out(left, *order);
        }
    }
}
