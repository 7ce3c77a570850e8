//! FAIR_SHARE groups: classes, then users, then jobs.

mod steady;

use std::{cmp::Reverse, collections::BTreeMap, ops::Range};

use super::Tables;
use crate::{
    apportion::{Amounts, Claims, Manner, as_holes, quanta},
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
        course.limit_all(false, |row| row.now);
        count_under(books, tables, &mut course);
    }
    pure_shares(books, classes);
    for home in homes(books, classes) {
        subtract(books, tables, classes, home);
    }
    for row in course.rows.drain(..) {
        books.requests[row.at].counted = row.counted + row.resting.min(row.now);
    }
    books.rows = course.rows;
}

/// The classes of a group while they are counted, and counted again.
struct Course {
    classes: Vec<(usize, Vec<Party>)>,
    /// Side by side, since counting walks over them many times: by class, user and age.
    rows: Vec<Row>,
}

/// One piece of work while it is counted.
pub(crate) struct Row {
    at: usize,
    order: u64,
    base: u64,
    steady: u64,
    now: u64,
    /// Outside the tables.
    resting: u64,
    /// Processes it is counted for at most.
    limit: u64,
    counted: u64,
}

/// The work of one user in one class.
struct Party {
    rows: Range<usize>,
    wants: Amounts,
    /// By what users are sorted.
    total: u64,
    given: Amounts,
    /// Its limits are not those it was counted under.
    moved: bool,
    /// Its work was counted anew in the last count.
    recounted: bool,
}

impl Course {
    fn new(books: &mut Books, classes: &[usize]) -> Self {
        let sizes = classes.iter().map(|class| books.classes[*class].users);
        let size = sizes.flat_map(BTreeMap::values).map(Vec::len).sum();
        let mut rows = std::mem::take(&mut books.rows);
        rows.reserve(size);
        let books = &*books;
        let mut party = |work: &Vec<usize>| {
            let from = rows.len();
            rows.extend(work.iter().map(|at| row(books, *at)));
            Party {
                rows: from..rows.len(),
                wants: Amounts::new(),
                total: 0,
                given: Amounts::new(),
                moved: true,
                recounted: false,
            }
        };
        let parties = |class: &usize| {
            let users = books.classes[*class].users.values();
            (*class, users.map(&mut party).collect())
        };
        let classes = classes.iter().map(parties).collect();
        Self { classes, rows }
    }

    /// Limits for everybody. Users are sorted by what they want in all; what is wanted moves with
    /// what is held, so where counts are to stand still they are sorted by what could be used at
    /// all.
    fn limit_all(&mut self, steady: bool, limit: impl Fn(&Row) -> u64) {
        for party in self.classes.iter_mut().flat_map(|(_, parties)| parties) {
            party.total = 0;
            for row in &mut self.rows[party.rows.clone()] {
                row.limit = limit(row);
                let most = if steady { row.base } else { row.limit };
                party.total = party.total.saturating_add(most);
            }
        }
    }
}

fn row(books: &Books, at: usize) -> Row {
    let request = &books.requests[at];
    let rests = books.settings.rest_on_closed;
    Row {
        at,
        order: request.order,
        base: request.cap.base,
        steady: request.cap.steady,
        now: request.cap.now,
        resting: if rests { request.resting } else { 0 },
        limit: 0,
        counted: request.counted,
    }
}

fn count_under(books: &mut Books, tables: &Tables, course: &mut Course) {
    let rows = &mut course.rows;
    for party in course.classes.iter_mut().flat_map(|(_, parties)| parties) {
        if party.moved {
            party.wants = wanted(&rows[party.rows.clone()]);
        }
    }
    let given = class_level(books, tables, &course.classes);
    let manner = books.settings.manner();
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
                job_level(&mut claims, &mut rows[party.rows.clone()], &given, manner);
                (party.moved, party.given) = (false, given);
            }
        }
    }
}

fn wanted(rows: &[Row]) -> Amounts {
    let mut want = Amounts::new();
    // Neighbours often are alike, so one place in the map is kept open.
    let mut last = (0, 0_u64);
    for row in rows {
        if row.order != last.0 {
            close(&mut want, last);
            last = (row.order, 0);
        }
        last.1 = last.1.saturating_add(row.limit);
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
fn job_level(claims: &mut Claims, rows: &mut [Row], given: &Amounts, manner: Manner) {
    claims.clear();
    for row in rows.iter() {
        claims.enter(1, Standing::Even);
        claims.want(row.order, row.limit);
    }
    claims.apportion(as_holes(given), manner);
    for (row, count) in rows.iter_mut().zip(claims.processes()) {
        row.counted = count;
    }
}

/// later groups see the rest, at every depth of the tree [C-14]. All classes at home in one
/// pool are one: a small process of one must not break the hole that was counted for a large one of
/// another. Pools below go first, as they are apportioned and placed first.
fn subtract(books: &Books, tables: &mut Tables, classes: &[usize], home: usize) {
    let mut granted = Amounts::new();
    let at_home = |class: &&usize| books.classes[**class].pool == Some(home);
    for class in classes.iter().filter(at_home) {
        for (order, count) in &books.classes[*class].given {
            close(&mut granted, (*order, *count));
        }
    }
    for (order, count) in granted.iter().rev() {
        let mut left = *count;
        for pool in books.forest.subtree(home) {
            left = tables.of_mut(*pool).count_out(left, *order);
        }
    }
}
