//! FAIR_SHARE groups: classes, then users, then jobs.

mod crowd;
mod parties;
mod party;
mod said;

use std::{cmp::Reverse, collections::BTreeMap};

use super::Tables;
use crate::{
    apportion::{Amounts, Claims, Manner, as_holes, quanta},
    beside::both,
    books::Books,
    deficit,
    orders::Holes,
};

pub(crate) use parties::{Moved, Parties, Quanta};
use party::Party;

pub(super) fn count(books: &mut Books, tables: &mut Tables, classes: &[usize]) {
    let mut parties = std::mem::take(&mut books.sets.parties);
    let course = Course {
        steady: books.settings.steady_counts,
        manner: books.settings.manner(),
    };
    let mut rivals = gather(books, &mut parties, classes);
    let all = |rivals: &mut Rivals, each: &mut dyn FnMut(&mut Party)| {
        let parties = rivals.iter_mut().flat_map(|(_, parties)| parties);
        parties.for_each(each);
    };
    all(&mut rivals, &mut |party| party.begin(&course));
    let mut recounts = 0;
    while count_under(books, tables, &course, &mut rivals) && recounts < RECOUNTS {
        recounts += 1;
    }
    all(&mut rivals, &mut |party| {
        party.end(&course, books);
    });
    for (class, users) in rivals {
        parties.put_back(books, class, users);
    }
    books.sets.parties = parties;
    pure_shares(books, classes);
    for home in homes(books, classes) {
        subtract(books, tables, classes, home);
    }
}

/// Recounts before the last, for which all work is held to its cap.
const RECOUNTS: usize = 8;

/// How a group is counted.
///
/// Growth caps move with what work holds, so counting under them alone could hand a remainder back
/// and forth for ever. Therefore everyone is first counted as if growth were free, and only work
/// whose count exceeds its cap is held to it, until nobody exceeds. Where no cap binds, counts do
/// not depend on what is held, and so they stand still.
struct Course {
    steady: bool,
    manner: Manner,
}

impl Course {
    /// Is all work held to its cap after so many recounts?
    fn holds_all(recounts: usize) -> bool {
        recounts + 1 == RECOUNTS
    }
}

/// The classes of a group, each with its users by name.
type Rivals = Vec<(usize, Vec<Party>)>;

fn gather(books: &Books, parties: &mut Parties, classes: &[usize]) -> Rivals {
    let users = books.register.users();
    // Read anew, all parties learn everything.
    let some = books.requests.stirred().filter(|_| !books.register.anew);
    let whose = |at: usize| Some(books.requests[at].class? * users + books.demand(at).user_at);
    let mut stirred: Vec<(usize, usize)> = some.filter_map(|at| Some((whose(at)?, at))).collect();
    stirred.sort_unstable();
    let gathered = |class: &usize| {
        let mut own = parties.take(books, *class);
        for (party, work) in own.iter_mut().zip(books.classes[*class].users.values()) {
            party.learn(books, work, &mut parties.seats);
            let party_at = class * users + books.demand(work[0]).user_at;
            let from = stirred.partition_point(|(whose, _)| *whose < party_at);
            let its = stirred[from..].iter();
            for (_, at) in its.take_while(|(whose, _)| *whose == party_at) {
                party.renew(books, *at, &mut parties.seats);
            }
            #[cfg(test)]
            party.assert_known(books, work, &parties.seats);
        }
        (*class, own)
    };
    classes.iter().map(gathered).collect()
}

/// True when somebody wants something else from now on.
fn count_under(books: &mut Books, tables: &Tables, course: &Course, rivals: &mut Rivals) -> bool {
    let given = class_level(books, tables, rivals);
    let whole = undivided(books, tables, rivals);
    let mut steps: Vec<(&mut Party, Amounts)> = Vec::new();
    for ((class, parties), given) in rivals.iter_mut().zip(given) {
        let holes = whole.clone().unwrap_or_else(|| as_holes(&given));
        let of_users = user_level(books, *class, holes, parties);
        books.classes[*class].user_due = of_users.iter().map(quanta).collect();
        books.classes[*class].given = match &whole {
            Some(_) => sum(of_users.iter()),
            None => given,
        };
        steps.extend(parties.iter_mut().zip(of_users));
    }
    take_steps(course, steps)
}

/// What one user's work is given is nothing to another's, so half of them goes beside the rest.
fn take_steps(course: &Course, mut steps: Vec<(&mut Party, Amounts)>) -> bool {
    let stretches = steps.iter().map(|(party, _)| party.stretches()).sum();
    let beside = steps.split_off(steps.len() / 2);
    let take = |steps: Vec<(&mut Party, Amounts)>| {
        let moved = |moved, (party, given): (&mut Party, _)| party.step(course, given) | moved;
        steps.into_iter().fold(false, moved)
    };
    let (here, beside) = both(stretches, || take(steps), || take(beside));
    here || beside
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
    sum(parties.iter().map(Party::wants))
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
        // [C-12]: nodes that take no work have nothing to give.
        let pools = books.forest.subtree(home).iter();
        let total: u64 = pools.map(|pool| books.register.open_quanta[*pool]).sum();
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
        for (order, count) in parties[*user].wants() {
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
