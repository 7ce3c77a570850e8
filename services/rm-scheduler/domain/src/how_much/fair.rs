//! FAIR_SHARE groups: classes, then users, then jobs.
//!
//! Growth caps move with what work holds, so counting under them alone could hand a remainder back
//! and forth for ever. Therefore everyone is first counted as if growth were free, and only work
//! whose count exceeds its cap is held to it, until nobody exceeds. Where no cap binds, counts do
//! not depend on what is held, and so they stand still.

use std::{cmp::Reverse, collections::BTreeMap};

use hayward_vocabulary::UserName;

use super::Tables;
use crate::{
    apportion::{Amounts, Entity, apportion, as_holes, quanta},
    books::Books,
    orders::Holes,
};

/// Recounts before all work is held to its cap at once.
const RECOUNTS: usize = 8;

pub(super) fn count(books: &mut Books, tables: &mut Tables, classes: &[usize]) {
    let work: Vec<usize> = classes
        .iter()
        .flat_map(|class| books.classes[*class].requests.iter().copied())
        .collect();
    let mut limits: BTreeMap<usize, u64> = work
        .iter()
        .map(|at| (*at, allowance(books, *at, books.requests[*at].cap.steady)))
        .collect();
    for recount in 0..=RECOUNTS {
        count_under(books, tables, classes, &limits);
        let mut exceeds = false;
        for at in &work {
            let cap = allowance(books, *at, books.requests[*at].cap.now);
            if books.requests[*at].counted > cap || (recount + 1 == RECOUNTS && limits[at] > cap) {
                limits.insert(*at, cap);
                exceeds = true;
            }
        }
        if !exceeds {
            break;
        }
    }
    for class in classes {
        subtract(books, tables, *class);
    }
    for at in work {
        let request = &mut books.requests[at];
        request.counted += request.resting.min(request.cap.now);
    }
}

/// What is left of a cap after the shares that rest outside the tables.
fn allowance(books: &Books, request: usize, cap: u64) -> u64 {
    cap.saturating_sub(books.requests[request].resting)
}

fn count_under(
    books: &mut Books,
    tables: &Tables,
    classes: &[usize],
    limits: &BTreeMap<usize, u64>,
) {
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

fn wanted(books: &Books, requests: &[usize], limits: &BTreeMap<usize, u64>) -> Amounts {
    let mut want = Amounts::new();
    for at in requests {
        let limit = limits.get(at).copied().unwrap_or(0);
        if limit > 0 {
            *want.entry(books.requests[*at].order).or_default() += limit;
        }
    }
    want
}

/// at every home pool, its holes and all below are divided among the classes at home there
/// or below; a class keeps what it is given at its own home.
fn class_level(
    books: &Books,
    tables: &Tables,
    classes: &[usize],
    limits: &BTreeMap<usize, u64>,
) -> Vec<Amounts> {
    let mut sorted = classes.to_vec();
    sorted.sort_by_key(|class| {
        (
            Reverse(books.classes[*class].class.weight),
            books.classes[*class].name,
        )
    });
    let mut given: BTreeMap<usize, Amounts> = BTreeMap::new();
    for home in classes
        .iter()
        .filter_map(|class| books.classes[*class].pool)
    {
        if classes
            .iter()
            .any(|c| books.classes[*c].pool == Some(home) && given.contains_key(c))
        {
            continue;
        }
        let mut holes = Holes::default();
        for pool in books.forest.subtree(home) {
            holes.merge(tables.of(pool));
        }
        let (rivals, mut entities): (Vec<usize>, Vec<Entity>) = sorted
            .iter()
            .filter(|c| {
                books.classes[**c]
                    .pool
                    .is_some_and(|p| books.forest.is_within(p, home))
            })
            .map(|class| {
                (
                    *class,
                    wanted(books, &books.classes[*class].requests, limits),
                )
            })
            .filter(|(class, want)| !want.is_empty() || books.classes[*class].pool == Some(home))
            .map(|(class, want)| (class, Entity::new(books.classes[class].class.weight, want)))
            .unzip();
        apportion(holes, &mut entities);
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

type UserGrants<'a> = BTreeMap<&'a UserName, (Vec<usize>, Amounts)>;

/// Users are sorted by what they want in all, then by name [C-9].
fn user_level<'a>(
    books: &Books<'a>,
    class: usize,
    given: &Amounts,
    limits: &BTreeMap<usize, u64>,
) -> UserGrants<'a> {
    let mut by_user: BTreeMap<&'a UserName, Vec<usize>> = BTreeMap::new();
    for at in &books.classes[class].requests {
        by_user
            .entry(&books.requests[*at].demand.user)
            .or_default()
            .push(*at);
    }
    let mut users: Vec<(&UserName, Vec<usize>)> = by_user.into_iter().collect();
    users.sort_by_key(|(_, requests)| {
        requests
            .iter()
            .map(|at| books.requests[*at].cap.base)
            .fold(0, u64::saturating_add)
    });
    let mut entities: Vec<Entity> = users
        .iter()
        .map(|(_, requests)| Entity::new(1, wanted(books, requests, limits)))
        .collect();
    apportion(as_holes(given), &mut entities);
    users
        .into_iter()
        .zip(entities)
        .map(|((user, requests), entity)| (user, (requests, entity.given)))
        .collect()
}

/// Jobs by age, then id.
fn job_level(
    books: &mut Books,
    mut requests: Vec<usize>,
    given: &Amounts,
    limits: &BTreeMap<usize, u64>,
) {
    requests.sort_by_key(|at| {
        (
            books.requests[*at].demand.submitted_at,
            books.requests[*at].id,
        )
    });
    let mut entities: Vec<Entity> = requests
        .iter()
        .map(|at| Entity::new(1, wanted(books, std::slice::from_ref(at), limits)))
        .collect();
    apportion(as_holes(given), &mut entities);
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
