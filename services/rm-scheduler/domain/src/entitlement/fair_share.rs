//! FAIR_SHARE groups: classes, then users, then jobs.

mod count_pass;
mod count_runs;
mod user_count;
mod user_counts;
mod work_groups;

use std::{cell::LazyCell, cmp::Reverse, collections::BTreeMap};

use super::{
    Tables,
    apportion::{Amounts, Claims},
    deficit,
    hole_table::Holes,
};
use crate::{incremental::join::both, input::snapshot::Standing, state::Books};

use count_pass::{Course, RECOUNTS};
pub(crate) use user_counts::{Moved, Parties, Quanta};
use user_counts::{Party, Seat, Seats, Users, fetch};

pub(super) fn count(books: &mut Books, tables: &mut Tables, classes: &[usize]) {
    let mut parties = std::mem::take(&mut books.sets.parties);
    let course = Course {
        steady: books.settings.steady_counts,
        manner: books.settings.manner(),
    };
    let mut rivals = gather(books, &mut parties, &course, classes);
    for rival in &mut rivals {
        rival.line_up(books);
    }
    let mut recounts = 0;
    while count_under(books, tables, &course, &mut rivals) && recounts < RECOUNTS {
        recounts += 1;
    }
    for mut rival in rivals {
        for (_, party) in rival.users.each_mut() {
            party.end(&course, books);
        }
        parties.put_back(rival.class, rival.users);
    }
    books.sets.parties = parties;
    pure_shares(books, classes);
    for home in homes(books, classes) {
        subtract(books, tables, classes, home);
    }
}

/// One class of a group.
struct Rival {
    class: usize,
    users: Users,
    /// Where their names stand, in the order in which they are given something, and how they
    /// stand themselves.
    line: Vec<(usize, Standing)>,
}

impl Rival {
    /// Users are sorted by what they want in all, then by name [C-9].
    fn line_up(&mut self, books: &Books) {
        let standings = deficit::of_users(books, self.class);
        let totals = self.users.by_name().map(|party| party.total);
        let mut turns: Vec<(u64, usize)> = totals.zip(0..).collect();
        turns.sort_unstable();
        let line = turns.into_iter().map(|(_, user)| (user, standings[user]));
        self.line = line.collect();
    }
}

/// Takes up what work asks for now, and begins a count.
fn gather(books: &Books, parties: &mut Parties, course: &Course, classes: &[usize]) -> Vec<Rival> {
    let users = books.register.users();
    let stirred = stirred(books, classes);
    let rival = |class: &usize| Rival {
        class: *class,
        users: parties.take(books, *class),
        line: Vec::new(),
    };
    let mut rivals: Vec<Rival> = classes.iter().map(rival).collect();
    let mut begin: Vec<(&mut Party, &[(usize, usize)])> = Vec::new();
    for rival in &mut rivals {
        let by_name = books.classes[rival.class].users.values();
        let work = LazyCell::new(|| by_name.collect::<Vec<_>>());
        for ((user, place), party) in rival.users.each_mut() {
            party.learn(books, || work[place], &mut parties.seats);
            let whose = rival.class * users + user;
            let from = stirred.partition_point(|(other, _)| *other < whose);
            let own = stirred[from..].partition_point(|(other, _)| *other == whose);
            begin.push((party, &stirred[from..from + own]));
        }
    }
    for (at, seat) in begin_all(books, &parties.seats, course, begin) {
        parties.seats[at] = seat;
    }
    #[cfg(test)]
    for rival in &rivals {
        let work = books.classes[rival.class].users.values();
        for (party, work) in rival.users.by_name().zip(work) {
            party.assert_known(books, work, &parties.seats);
        }
    }
    rivals
}

/// Work of these classes of which something may be otherwise, by its class and user.
fn stirred(books: &Books, classes: &[usize]) -> Vec<(usize, usize)> {
    let users = books.register.users();
    // Read anew, all parties learn everything.
    let some = books.requests.stirred().filter(|_| !books.register.anew);
    let whose = |at: usize| {
        let class = books.requests[at]
            .class
            .filter(|class| classes.contains(class))?;
        Some((class * users + books.demand(at).user_at, at))
    };
    let mut stirred: Vec<(usize, usize)> = some.filter_map(whose).collect();
    stirred.sort_unstable_by_key(|(whose, _)| *whose);
    stirred
}

/// What one user's work asks for is nothing to another's, so half of them goes beside the rest.
/// Returns the seats of stirred work.
fn begin_all(
    books: &Books,
    seats: &Seats,
    course: &Course,
    mut parties: Vec<(&mut Party, &[(usize, usize)])>,
) -> Vec<(usize, Seat)> {
    let work = parties
        .iter()
        .map(|(party, stirred)| party.to_begin() + stirred.len());
    let work = work.sum();
    let beside = parties.split_off(parties.len() / 2);
    let begin = |parties: Vec<(&mut Party, &[(usize, usize)])>| {
        let all = parties.iter().flat_map(|(_, stirred)| numbers(stirred));
        fetch(books, seats, all);
        let mut moved = Vec::new();
        for (party, stirred) in parties {
            moved.extend(party.renew(books, numbers(stirred), seats));
            party.begin(course);
        }
        moved
    };
    let (mut here, beside) = both(work, || begin(parties), || begin(beside));
    here.extend(beside);
    here
}

fn numbers(stirred: &[(usize, usize)]) -> impl ExactSizeIterator<Item = usize> {
    stirred.iter().map(|(_, at)| *at)
}

/// True when somebody wants something else from now on.
fn count_under(books: &mut Books, tables: &Tables, course: &Course, rivals: &mut [Rival]) -> bool {
    let wants: Vec<Amounts> = rivals.iter().map(all).collect();
    let given = class_level(books, tables, rivals, &wants);
    let whole = undivided(books, tables, rivals);
    let mut steps: Vec<(&mut Party, Option<Amounts>)> = Vec::new();
    let mut claims = Claims::default();
    for ((rival, given), wants) in rivals.iter_mut().zip(given).zip(wants) {
        let holes = whole.clone().unwrap_or_else(|| given.as_holes());
        let users = &rival.users;
        let mut of_users = if holes.are(wants.iter()) {
            // There is a hole of its size for every process of all users.
            #[cfg(test)]
            {
                let given = user_level(&mut claims, course, holes, rival);
                assert!(users.by_name().map(Party::wants).eq(given.iter().flatten()));
            }
            vec![None; rival.line.len()]
        } else {
            user_level(&mut claims, course, holes, rival)
        };
        let each = || {
            let each = users.by_name().zip(&of_users);
            each.map(|(party, given)| given.as_ref().unwrap_or_else(|| party.wants()))
        };
        let class = &mut books.classes[rival.class];
        class.user_due = each().map(Amounts::quanta).collect();
        class.given = match &whole {
            Some(_) => sum(each()),
            None => given,
        };
        let each = rival.users.each_mut();
        steps.extend(each.map(|((_, place), party)| (party, of_users[place].take())));
    }
    take_steps(course, steps)
}

/// What one user's work is given is nothing to another's, so half of them goes beside the rest.
fn take_steps(course: &Course, mut steps: Vec<(&mut Party, Option<Amounts>)>) -> bool {
    let stretches = steps.iter().map(|(party, _)| party.stretches()).sum();
    let beside = steps.split_off(steps.len() / 2);
    let take = |steps: Vec<(&mut Party, Option<Amounts>)>| {
        let moved = |moved, (party, given): (&mut Party, _)| party.step(course, given) | moved;
        steps.into_iter().fold(false, moved)
    };
    let (here, beside) = both(stretches, || take(steps), || take(beside));
    here || beside
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
    course: &[Rival],
    wants: &[Amounts],
) -> Vec<Amounts> {
    let classes: Vec<usize> = course.iter().map(|rival| rival.class).collect();
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
            if let Some(own) = own {
                claims.want_all(&wants[own]);
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
fn all(rival: &Rival) -> Amounts {
    sum(rival.users.by_name().map(Party::wants))
}

fn sum<'a>(amounts: impl Iterator<Item = &'a Amounts>) -> Amounts {
    let mut all = Amounts::default();
    amounts.for_each(|amounts| all.merge(amounts));
    all
}

/// The holes that a class without rivals has to itself. Counted for itself it would be given holes
/// of its largest processes first, whosever they are, and who wants smaller ones could not fill
/// them.
fn undivided(books: &Books, tables: &Tables, course: &[Rival]) -> Option<Holes> {
    let [rival] = course else { return None };
    let home = books.classes[rival.class].pool;
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

/// What each user of a class is given, by the name of the user.
fn user_level(
    claims: &mut Claims,
    course: &Course,
    holes: Holes,
    rival: &Rival,
) -> Vec<Option<Amounts>> {
    claims.clear();
    for (user, standing) in &rival.line {
        claims.enter(1, *standing);
        claims.want_all(rival.users.at(*user).wants());
    }
    claims.apportion(holes, course.manner);
    let mut of_users = vec![None; rival.line.len()];
    for ((user, _), given) in rival.line.iter().zip(claims.given()) {
        of_users[*user] = Some(given);
    }
    of_users
}

/// later groups see the rest, at every depth of the tree [C-14]. All classes at home in one
/// pool are one: a small process of one must not break the hole that was counted for a large one of
/// another. Pools below go first, as they are apportioned and placed first.
fn subtract(books: &Books, tables: &mut Tables, classes: &[usize], home: usize) {
    let mut granted = Amounts::default();
    let at_home = |class: &&usize| books.classes[**class].pool == Some(home);
    for class in classes.iter().filter(at_home) {
        granted.merge(&books.classes[*class].given);
    }
    for (order, mut left) in granted.iter().rev() {
        for pool in books.forest.subtree(home) {
            left = tables.of_mut(*pool).count_out(left, order);
        }
    }
}
