//! The arithmetic from capacity to each piece of work, read off the books once everything is
//! decided. What adds up to what is said, and tested, with the types.

mod idle;
mod pools;
mod small;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::UserName;

use crate::{
    books::Books,
    plan::{
        ClassShare, OfUser, PriorityShare, ShareNews, Shares, Tally, Turn, UserShare, WorkShare,
    },
    snapshot::Policy,
};

pub(crate) use pools::Pools;
pub(crate) use told::Told;

/// What differs between these sums and those before: the fleet and its classes as they are, users
/// whose sums differ or of whose work something is said, and of work what is `changed`.
pub(crate) fn news(
    books: &Books,
    told: &Told,
    (before, now): (&Shares, &Shares),
    changed: &[usize],
) -> ShareNews {
    let work = told_anew(books, told, changed);
    let mut shown: BTreeMap<&str, BTreeSet<&UserName>> = BTreeMap::new();
    for of_user in &work {
        let users = shown.entry(&of_user.class).or_default();
        users.insert(&of_user.user);
    }
    let mut shares = Shares {
        classes: BTreeMap::new(),
        pools: now.pools.clone(),
        priorities: now.priorities.clone(),
        ..*now
    };
    for (name, class) in &now.classes {
        let old = before.classes.get(name).map(|class| &class.users);
        let shown = shown.get(name.as_str());
        let mut fresh = BTreeMap::new();
        for (name, user) in &class.users {
            let old = old.and_then(|users| users.get(name));
            let is_shown = shown.is_some_and(|users| users.contains(name));
            if is_shown || old.is_none_or(|old| old.sums() != user.sums()) {
                fresh.insert(name.clone(), user.clone());
            }
        }
        shares.classes.insert(name.clone(), class.with(fresh));
    }
    let gone = books.register.departed.iter().map(|it| {
        let class = books.classes[it.class].name.to_owned();
        (class, it.user.clone(), it.work.clone())
    });
    ShareNews {
        gone: gone.collect(),
        shares,
        work,
    }
}

/// What is said anew of work, by user.
fn told_anew(books: &Books, told: &Told, changed: &[usize]) -> Vec<OfUser> {
    let whose = |at: usize| Some((books.requests[at].class?, books.demand(at).user_at, at));
    let mut all: Vec<_> = changed.iter().filter_map(|at| whose(*at)).collect();
    all.sort_unstable();
    let of_users = all.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1));
    let of_user = |work: &[(usize, usize, usize)]| {
        let (class, _, first) = work[0];
        let said = |(.., at): &(_, _, usize)| Some((books.id(*at).clone(), told.share(*at)?));
        OfUser {
            class: books.classes[class].name.to_owned(),
            user: books.demand(first).user.clone(),
            work: work.iter().filter_map(said).collect(),
        }
    };
    of_users.map(of_user).collect()
}

/// The sums of the fleet, its classes and users, of all that was told.
pub(crate) fn sums(books: &Books, pools: &mut Pools, told: &Told) -> Shares {
    let mut shares = Shares::default();
    pools.tell(books, &mut shares);
    for (at, book) in books.classes.iter().enumerate() {
        let mut class = ClassShare {
            tree: tree(books, book.pool),
            policy: book.class.policy,
            priority: book.class.priority,
            weight: book.class.weight,
            given: 0,
            left: 0,
            tally: Tally::default(),
            users: BTreeMap::new(),
        };
        let fair = book.class.policy == Policy::FairShare;
        let mut handed_on = 0;
        for (place, (name, work)) in book.users.iter().enumerate() {
            let mut user = UserShare {
                tally: told.sum(at, books.demand(work[0]).user_at),
                ..UserShare::default()
            };
            let due = book.user_due.get(place).copied().unwrap_or(0);
            user.given = if fair { due } else { user.tally.divided };
            user.left = user.given.saturating_sub(user.tally.divided);
            class.tally.add(&user.tally);
            handed_on += user.given;
            class.users.insert(name.clone(), user);
        }
        class.given = if fair { book.given.quanta() } else { handed_on };
        class.left = class.given.saturating_sub(handed_on);
        shares.classes.insert(book.name.to_owned(), class);
    }
    shares.unclassed = unclassed(books);
    priorities(books, &mut shares);
    let held = shares.classes.values().map(|class| class.tally.held);
    shares.held = held.sum::<u64>() + shares.unclassed.held;
    shares
}

fn tree(books: &Books, pool: Option<usize>) -> Option<String> {
    let root = books.forest.root(pool?);
    Some(books.forest.name(root).to_owned())
}

fn of_work(books: &Books, at: usize) -> WorkShare {
    let request = &books.requests[at];
    let policy = books.policy(at);
    // A reservation's order is that of its node, known only when it has one.
    let of_node = || {
        let promised = books.promised_to(at).first();
        let promised = promised.map(|machine| books.machines[*machine].order);
        promised.or_else(|| Some(books.held[*books.demand(at).held.first()?].order))
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
        return held(books, asked.held.iter().copied());
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
fn priorities(books: &Books, shares: &mut Shares) {
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
    let priorities = groups.into_iter().map(group).collect();
    shares.priorities = priorities;
}

#[cfg(test)]
mod tests;
