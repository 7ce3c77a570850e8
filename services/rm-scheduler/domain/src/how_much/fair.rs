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
    let mut course = Course::new(books, classes);
    if books.settings.steady_counts {
        steady::count(books, tables, &mut course);
    } else {
        course.limit_all(books, |books, at| books.requests[at].cap.now);
        count_under(books, tables, &mut course);
    }
    pure_shares(books, classes);
    for class in classes {
        subtract(books, tables, *class);
    }
    if books.settings.rest_on_closed {
        for class in classes {
            for at in books.classes[*class].requests() {
                let request = &mut books.requests[at];
                request.counted += request.resting.min(request.cap.now);
            }
        }
    }
}

/// The classes of a group while they are counted, and counted again.
struct Course<'a> {
    classes: Vec<(usize, Vec<Party<'a>>)>,
    /// Processes each request is counted for at most, by request.
    limits: Vec<u64>,
}

/// The work of one user in one class.
struct Party<'a> {
    work: &'a [usize],
    wants: Amounts,
    /// By what users are sorted.
    total: u64,
    given: Amounts,
    /// Its limits are not those it was counted under.
    moved: bool,
    /// Its work was counted anew in the last count.
    recounted: bool,
}

impl<'a> Course<'a> {
    fn new(books: &Books<'a>, classes: &[usize]) -> Self {
        let party = |work: &'a Vec<usize>| Party {
            work,
            wants: Amounts::new(),
            total: 0,
            given: Amounts::new(),
            moved: true,
            recounted: false,
        };
        let parties = |class: usize| books.classes[class].users.values().map(party).collect();
        Self {
            classes: classes
                .iter()
                .map(|class| (*class, parties(*class)))
                .collect(),
            limits: vec![0; books.requests.len()],
        }
    }

    /// Limits for everybody. Users are sorted by what they want in all; what is wanted moves with
    /// what is held, so where counts are to stand still they are sorted by what could be used at
    /// all.
    fn limit_all(&mut self, books: &Books, limit: impl Fn(&Books, usize) -> u64) {
        let steady = books.settings.steady_counts;
        for party in self.classes.iter_mut().flat_map(|(_, parties)| parties) {
            party.total = 0;
            for at in party.work {
                let most = limit(books, *at);
                self.limits[*at] = most;
                let base = books.requests[*at].cap.base;
                party.total = party.total.saturating_add(if steady { base } else { most });
            }
        }
    }
}

fn count_under(books: &mut Books, tables: &Tables, course: &mut Course) {
    let limits = &course.limits;
    for party in course.classes.iter_mut().flat_map(|(_, parties)| parties) {
        if party.moved {
            party.wants = wanted(books, party.work, limits);
        }
    }
    let given = class_level(books, tables, &course.classes);
    let whole = undivided(books, tables, &course.classes);
    let mut claims = Claims::default();
    for ((class, parties), given) in course.classes.iter_mut().zip(given) {
        let holes = whole.clone().unwrap_or_else(|| as_holes(&given));
        let of_users = user_level(books, *class, holes, parties);
        books.classes[*class].user_due = of_users.iter().map(quanta).collect();
        books.classes[*class].given = match &whole {
            Some(_) => sum(of_users.iter()),
            None => given,
        };
        for (party, given) in parties.iter_mut().zip(of_users) {
            // The same limits and the same grant give the same counts.
            party.recounted = party.moved || party.given != given;
            if party.recounted {
                job_level(books, &mut claims, party.work, &given, limits);
                (party.moved, party.given) = (false, given);
            }
        }
    }
}

fn wanted(books: &Books, requests: &[usize], limits: &[u64]) -> Amounts {
    let mut want = Amounts::new();
    // Neighbours often are alike, so one place in the map is kept open.
    let mut last = (0, 0_u64);
    for at in requests {
        let limit = limits[*at];
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
fn class_level(books: &Books, tables: &Tables, course: &[(usize, Vec<Party>)]) -> Vec<Amounts> {
    let classes: Vec<usize> = course.iter().map(|(class, _)| *class).collect();
    let wants: Vec<Amounts> = course.iter().map(|(_, parties)| all(parties)).collect();
    let mut given: BTreeMap<usize, Amounts> = BTreeMap::new();
    for home in homes(books, &classes) {
        let holes = holes_within(books, tables, home);
        let rivals = rivals(books, &classes, home);
        let mut claims = Claims::default();
        for class in &rivals {
            claims.enter(
                books.classes[*class].class.weight,
                deficit::of_class(books, *class),
            );
            let own = classes.iter().position(|it| it == class);
            for (order, count) in own.into_iter().flat_map(|own| &wants[own]) {
                claims.want(*order, *count);
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
fn all(parties: &[Party]) -> Amounts {
    sum(parties.iter().map(|party| &party.wants))
}

fn sum<'a>(amounts: impl Iterator<Item = &'a Amounts>) -> Amounts {
    let mut all = Amounts::new();
    for (order, count) in amounts.flatten() {
        close(&mut all, (*order, *count));
    }
    all
}

/// The holes that a class without rivals has to itself. Counted for itself it would be given holes
/// of its largest processes first, whosever they are, and who wants smaller ones could not fill
/// them.
fn undivided(books: &Books, tables: &Tables, course: &[(usize, Vec<Party>)]) -> Option<Holes> {
    let [(class, _)] = course else { return None };
    let home = books.classes[*class].pool;
    let home = home.filter(|_| books.settings.holes_among_rivals)?;
    Some(holes_within(books, tables, home))
}

fn holes_within(books: &Books, tables: &Tables, home: usize) -> Holes {
    let mut holes = Holes::default();
    for pool in books.forest.subtree(home) {
        holes.merge(tables.of(*pool));
    }
    holes
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
fn user_level(books: &Books, class: usize, holes: Holes, parties: &[Party]) -> Vec<Amounts> {
    let mut turns: Vec<(u64, usize)> = parties.iter().map(|party| party.total).zip(0..).collect();
    turns.sort_unstable();
    let users = books.classes[class].users.keys();
    let standings: Vec<_> = users
        .map(|user| deficit::of_user(books, class, user))
        .collect();
    let mut claims = Claims::default();
    for (_, user) in &turns {
        claims.enter(1, standings[*user]);
        for (order, count) in &parties[*user].wants {
            claims.want(*order, *count);
        }
    }
    claims.apportion(holes, books.settings.manner());
    let mut of_users = vec![Amounts::new(); turns.len()];
    for ((_, user), given) in turns.into_iter().zip(claims.given()) {
        of_users[user] = given;
    }
    of_users
}

/// Jobs by age, then id.
fn job_level(
    books: &mut Books,
    claims: &mut Claims,
    requests: &[usize],
    given: &Amounts,
    limits: &[u64],
) {
    claims.clear();
    for at in requests {
        claims.enter(1, Standing::Even);
        claims.want(books.requests[*at].order, limits[*at]);
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
