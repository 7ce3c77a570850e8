//! The arithmetic from capacity to each piece of work, read off the books once everything is
//! decided. What adds up to what is said, and tested, with the types.

mod idle;

use std::collections::BTreeMap;

use crate::{
    books::{Books, Machine},
    plan::{ClassShare, PoolShare, PriorityShare, Shares, Tally, Turn, UserShare, WorkShare},
    snapshot::Policy,
};

pub(crate) fn of(books: &Books) -> Shares {
    let mut shares = Shares::default();
    pools(books, &mut shares);
    let granted = granted(books);
    for book in &books.classes {
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
        for at in &book.requests {
            add_request(books, &mut class, *at, granted[*at]);
        }
        if book.class.policy == Policy::FairShare {
            for (user, given) in &book.user_due {
                class.users.entry((*user).clone()).or_default().given = *given;
            }
        }
        settle(&mut class, crate::apportion::quanta(&book.given));
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

/// Quanta placed in this round, by request.
fn granted(books: &Books) -> Vec<u64> {
    let mut granted = vec![0; books.requests.len()];
    for share in books.pending.iter().filter(|share| share.live) {
        granted[share.request] += share.order;
    }
    granted
}

fn pools(books: &Books, shares: &mut Shares) {
    for pool in 0..books.forest.len() {
        let share = PoolShare {
            tree: books.forest.name(books.forest.root(pool)).to_owned(),
            ..PoolShare::default()
        };
        shares
            .pools
            .insert(books.forest.name(pool).to_owned(), share);
    }
    let wishes = idle::Wishes::of(books);
    for at in 0..books.machines.len() {
        let machine = &books.machines[at];
        let held = held_on(books, machine);
        let Some(pool) = machine.pool else {
            shares.elsewhere += held;
            continue;
        };
        let Some(share) = shares.pools.get_mut(books.forest.name(pool)) else {
            continue;
        };
        share.total += machine.order;
        if !machine.is_schedulable() {
            *shut(share, machine) += machine.order;
            share.held_closed += held;
            continue;
        }
        share.usable += machine.order;
        share.held += held;
        share.fixed += machine.order - machine.room.order;
        share.over += held.saturating_sub(machine.order);
        share.free += machine.free.order;
        wishes.explain(books, at, &mut share.idle);
    }
    let lost = books.held.iter().filter(|share| share.machine.is_none());
    shares.elsewhere += lost.map(|share| share.allocation.order).sum::<u64>();
    shares.capacity = shares.pools.values().map(|pool| pool.usable).sum();
    shares.free = shares.pools.values().map(|pool| pool.free).sum();
}

fn held_on(books: &Books, machine: &Machine) -> u64 {
    let before = machine.held.iter();
    let before = before.map(|held| books.held[*held].allocation.order);
    let now = machine.pending.iter().map(|at| books.pending[*at].order);
    before.sum::<u64>() + now.sum::<u64>()
}

/// The first thing that keeps a node from taking work.
fn shut<'a>(share: &'a mut PoolShare, machine: &Machine) -> &'a mut u64 {
    match machine.node {
        node if node.lost => &mut share.lost,
        node if node.offline => &mut share.offline,
        node if node.block.is_some() => &mut share.blocked,
        node if !node.takes_work => &mut share.declined,
        _ => &mut share.withheld,
    }
}

fn add_request(books: &Books, class: &mut ClassShare, at: usize, granted: u64) {
    let request = &books.requests[at];
    // A reservation's order is that of its node, known only when it has one.
    let order = request
        .promised
        .first()
        .map(|machine| books.machines[*machine].order)
        .or_else(|| {
            let held = request.held.first()?;
            Some(books.held[*held].allocation.order)
        })
        .filter(|_| books.policy(at) == Some(Policy::Reserve))
        .unwrap_or(request.order);
    let counted = books.due(at);
    let mut tally = held_by(books, &request.held);
    tally.granted = granted;
    tally.held += granted;
    tally.due = counted * order;
    if class.policy == Policy::FairShare {
        let rests = books.settings.rest_on_closed;
        let resting = if rests { request.resting } else { 0 };
        tally.resting = resting.min(request.cap.now) * order;
        tally.lent = (counted - request.counted) * order;
    }
    tally.divided = tally.due - tally.resting - tally.lent;
    let share = WorkShare {
        kind: request.demand.kind,
        order,
        wanted: request.cap.now,
        cap: request.cap.parts,
        counted,
        current: request.has(),
        leaving: request.leaving,
        tally,
    };
    let user = class.users.entry(request.demand.user.clone()).or_default();
    user.work.insert(request.id.clone(), share);
}

fn held_by(books: &Books, held: &[usize]) -> Tally {
    let mut tally = Tally::default();
    for share in held.iter().map(|held| &books.held[*held]) {
        let order = share.allocation.order;
        tally.held += order;
        if share.leaving {
            tally.vacating += order;
        } else {
            tally.staying += order;
        }
        let machine = share.machine.map(|machine| &books.machines[machine]);
        if machine.is_none_or(|machine| !machine.is_schedulable()) {
            tally.closed += order;
        }
    }
    tally
}

/// Sums work into users and users into their class, and says what division could not hand on.
fn settle(class: &mut ClassShare, given: u64) {
    let divided = class.policy == Policy::FairShare;
    for user in class.users.values_mut() {
        settle_user(user, divided);
    }
    class.tally = Tally::sum(class.users.values().map(|user| &user.tally));
    let users: u64 = class.users.values().map(|user| user.given).sum();
    class.given = if divided { given } else { users };
    class.left = class.given.saturating_sub(users);
}

fn settle_user(user: &mut UserShare, divided: bool) {
    user.tally = Tally::sum(user.work.values().map(|work| &work.tally));
    if !divided {
        user.given = user.tally.divided;
    }
    user.left = user.given.saturating_sub(user.tally.divided);
}

fn unclassed(books: &Books) -> Tally {
    let has_class = |request: usize| books.requests[request].class.is_some();
    let held: Vec<usize> = (0..books.held.len())
        .filter(|at| !books.held[*at].request.is_some_and(has_class))
        .collect();
    held_by(books, &held)
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
