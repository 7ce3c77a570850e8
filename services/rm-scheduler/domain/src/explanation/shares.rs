//! The arithmetic from capacity to each piece of work, read off the books once everything is
//! decided. What adds up to what is said, and tested, with the types.

mod idle;
mod pools;
mod user_totals;
mod user_work;

use std::{collections::BTreeMap, sync::Arc};

use hayward_vocabulary::{UserName, WorkId};

use crate::{
    input::snapshot::Policy,
    output::{
        packed_share::PackedShare,
        plan::{
            ClassShare, OfUser, PriorityShare, ShareNews, Shares, Tally, Turn, UserShare, WorkShare,
        },
    },
    state::{Books, ClassBook},
};

pub(crate) use pools::Pools;
use user_totals::OfClass;
pub(crate) use user_totals::Told;
pub(crate) use user_work::OfUsers;

/// Brings the sums up to date with what is said of work. Says how they differ: the fleet and its
/// classes as they are, users whose sums differ or of whose work something is said, and that work.
pub(crate) fn renew(
    books: &Books,
    (told, pools): (&mut Told, &mut Pools),
    sums: &mut Shares,
    (users, work): (Vec<OfUser>, Vec<(WorkId, PackedShare)>),
) -> ShareNews {
    let classes = renew_sums(books, pools, told, sums);
    let gone = books.register.departed.iter().map(|it| {
        let class = Arc::clone(&books.register.classes[it.class].name);
        (class, it.user.clone(), it.work.clone())
    });
    let shares = Shares {
        classes,
        pools: sums.pools.clone(),
        priorities: sums.priorities.clone(),
        ..*sums
    };
    ShareNews {
        gone: gone.collect(),
        shares,
        users,
        work,
    }
}

/// The sums of the fleet, its classes and users, of all that was told.
pub(crate) fn sums(books: &Books, pools: &mut Pools, told: &mut Told) -> Shares {
    let mut sums = Shares::default();
    renew_sums(books, pools, told, &mut sums);
    sums
}

/// The classes as they are, with the users that are not as they were.
fn renew_sums(
    books: &Books,
    pools: &mut Pools,
    told: &mut Told,
    sums: &mut Shares,
) -> BTreeMap<String, ClassShare> {
    pools.tell(books, sums);
    let mut anew = BTreeMap::new();
    for (at, book) in books.classes.iter().enumerate() {
        if !sums.classes.contains_key(book.name) {
            let class = class_of(books, book);
            sums.classes.insert(book.name.to_owned(), class);
        }
        let Some(class) = sums.classes.get_mut(book.name) else {
            continue;
        };
        let users = renew_users(book, told.class(at), class);
        anew.insert(book.name.to_owned(), class.with(users));
    }
    sums.unclassed = unclassed(books);
    sums.priorities = priorities(books, sums);
    let held = sums.classes.values().map(|class| class.tally.held);
    sums.held = held.sum::<u64>() + sums.unclassed.held;
    anew
}

/// A class as the policy has it, without anybody in it.
fn class_of(books: &Books, book: &ClassBook) -> ClassShare {
    ClassShare {
        tree: tree(books, book.pool),
        policy: book.class.policy,
        priority: book.class.priority,
        weight: book.class.weight,
        given: 0,
        left: 0,
        tally: Tally::default(),
        users: BTreeMap::new(),
    }
}

/// The users that are not as they were, or of whose work something is said.
fn renew_users(
    book: &ClassBook,
    told: &mut OfClass,
    class: &mut ClassShare,
) -> BTreeMap<UserName, UserShare> {
    if std::mem::take(&mut told.is_other) {
        told.places = book.users.numbers().collect();
        class.users.retain(|name, _| book.users.contains_key(name));
        for name in book.users.keys() {
            class.users.entry(name.clone()).or_default();
        }
    }
    let fair = book.class.policy == Policy::FairShare;
    let mut anew = Vec::with_capacity(class.users.len());
    let mut handed_on = 0;
    class.tally = Tally::default();
    for (place, (name, user)) in class.users.iter_mut().enumerate() {
        let sum = &mut told.users[told.places[place]];
        let due = book.user_due.get(place).copied().unwrap_or(0);
        let given = if fair { due } else { sum.tally.divided };
        let left = given.saturating_sub(sum.tally.divided);
        class.tally.add(&sum.tally);
        handed_on += given;
        let now = (given, left, sum.tally);
        if sum.said_at.take().is_some() || user.sums() != now {
            (user.given, user.left, user.tally) = now;
            anew.push((name.clone(), user.clone()));
        }
    }
    class.given = if fair { book.given.quanta() } else { handed_on };
    class.left = class.given.saturating_sub(handed_on);
    anew.into_iter().collect()
}

fn tree(books: &Books, pool: Option<usize>) -> Option<String> {
    let root = books.forest.root(pool?);
    Some(books.forest.name(root).to_owned())
}

pub(crate) fn of_work(books: &Books, at: usize) -> WorkShare {
    let request = &books.requests[at];
    let policy = books.policy(at);
    // A reservation's order is that of its node, known only when it has one.
    let of_node = || {
        let promised = books.promised_to(at).first();
        let promised = promised.map(|machine| books.machines[*machine].order);
        promised.or_else(|| Some(books.held[books.demand(at).held.first()?].order))
    };
    let whole = policy == Some(Policy::Reserve);
    let order = whole.then(of_node).flatten().unwrap_or(request.order);
    let counted = books.due(at);
    let mut tally = held_by(books, at);
    tally.granted = request.granted;
    tally.held += request.granted;
    tally.due = counted * order;
    if policy == Some(Policy::FairShare) {
        let rests = books.settings.rest_on_closed;
        let resting = if rests { request.resting } else { 0 };
        tally.resting = resting.min(request.cap.now) * order;
        tally.lent = (counted - request.counted) * order;
    }
    tally.divided = tally.due - tally.resting - tally.lent;
    WorkShare {
        kind: books.demand(at).kind,
        order,
        wanted: request.cap.now,
        cap: books.cap_parts(at),
        counted,
        current: request.has(),
        leaving: request.leaving,
        tally,
    }
}

fn held_by(books: &Books, request: usize) -> Tally {
    let (request, asked) = (&books.requests[request], books.demand(request));
    if request.leaving != asked.holding.leaving {
        // Something was told to leave in this round.
        return held(books, asked.held.iter());
    }
    Tally {
        held: asked.holding.quanta,
        staying: asked.holding.quanta - asked.holding.leaving_quanta,
        vacating: asked.holding.leaving_quanta,
        closed: asked.holding.closed_quanta,
        ..Tally::default()
    }
}

fn held(books: &Books, shares: impl Iterator<Item = usize>) -> Tally {
    let mut tally = Tally::default();
    for at in shares {
        let share = &books.held[at];
        tally.held += share.order;
        if books.leaving[at] {
            tally.vacating += share.order;
        } else {
            tally.staying += share.order;
        }
        let machine = share.machine.map(|machine| &books.machines[machine]);
        if machine.is_none_or(|machine| !machine.is_schedulable()) {
            tally.closed += share.order;
        }
    }
    tally
}

fn unclassed(books: &Books) -> Tally {
    held(books, books.register.unclassed.iter().copied())
}

/// A tree after the other, each in the order of its turns.
fn priorities(books: &Books, shares: &Shares) -> Vec<PriorityShare> {
    let mut groups: BTreeMap<_, Vec<&String>> = BTreeMap::new();
    for (name, class) in &shares.classes {
        let key = (&class.tree, class.priority, class.policy);
        groups.entry(key).or_default().push(name);
    }
    let turns: BTreeMap<&str, Turn> = books
        .turns
        .iter()
        .map(|(class, turn)| (books.classes[*class].name, *turn))
        .collect();
    let group = |((tree, priority, policy), classes): ((&Option<String>, _, _), Vec<&String>)| {
        let tallies = classes.iter().map(|name| &shares.classes[*name].tally);
        PriorityShare {
            tree: tree.clone(),
            priority,
            policy,
            turn: classes
                .iter()
                .find_map(|name| turns.get(name.as_str()).copied()),
            tally: Tally::sum(tallies),
            classes: classes.into_iter().cloned().collect(),
        }
    };
    groups.into_iter().map(group).collect()
}

#[cfg(test)]
mod tests;
