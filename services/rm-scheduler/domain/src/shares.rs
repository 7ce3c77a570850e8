//! The arithmetic from capacity to each piece of work, read off the books once everything is
//! decided. What adds up to what is said, and tested, with the types.

mod idle;
mod pools;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{UserName, WorkId};

use crate::{
    books::Books,
    plan::{ClassShare, PriorityShare, ShareNews, Shares, Tally, Turn, UserShare, WorkShare},
    snapshot::Policy,
};

pub(crate) use pools::Pools;

/// Everything.
pub(crate) fn of(books: &Books, pools: &mut Pools) -> Shares {
    let of_user = |work: &[usize]| {
        let shares = work.iter().map(|at| {
            let share = of_work(books, *at);
            (books.id(*at).clone(), share)
        });
        // Built at once, a map takes half the room of one that grew.
        let work: BTreeMap<_, _> = shares.collect();
        UserShare {
            tally: Tally::sum(work.values().map(|share| &share.tally)),
            work,
            ..UserShare::default()
        }
    };
    counted(books, pools, of_user, |_, _| true)
}

/// What all work of one user in one class comes to: as it was, but for what is said anew.
struct Sums {
    users: usize,
    /// By class, then user.
    rows: Vec<Tally>,
    /// What is said anew, by row.
    shown: BTreeMap<usize, BTreeMap<WorkId, WorkShare>>,
}

/// Work in its class.
type Named<'a> = (usize, &'a UserName, &'a WorkId);

impl Sums {
    fn of(books: &Books, before: &Shares, changed: &[usize]) -> Self {
        let register = books.register;
        let users = register.users();
        let mut sums = Self {
            users,
            rows: vec![Tally::default(); users * books.classes.len()],
            shown: BTreeMap::new(),
        };
        for (name, class) in &before.classes {
            for (user, share) in &class.users {
                let class = register.class(name);
                if let (Some(class), Some(user)) = (class, register.number_of_user(user)) {
                    sums.rows[class * users + user] = share.tally;
                }
            }
        }
        let departed = register.departed.iter();
        // Work can leave its class, join it again and leave once more.
        let departed: BTreeSet<Named> = departed.map(|it| (it.class, &it.user, &it.work)).collect();
        for work in &departed {
            sums.forget(books, before, *work);
        }
        for at in changed.iter().copied() {
            let request = &books.requests[at];
            let Some(class) = request.class else { continue };
            let asked = books.demand(at);
            let named = (class, &asked.user, &asked.id);
            if !departed.contains(&named) {
                sums.forget(books, before, named);
            }
            let share = of_work(books, at);
            let row = class * users + asked.user_at;
            sums.rows[row].add(&share.tally);
            let shown = sums.shown.entry(row).or_default();
            shown.insert(asked.id.clone(), share);
        }
        sums
    }

    fn forget(&mut self, books: &Books, before: &Shares, (class, user, work): Named) {
        let known = before.classes.get(books.classes[class].name);
        let known = known.and_then(|class| class.users.get(user)?.work.get(work));
        if let (Some(share), Some(user)) = (known, books.register.number_of_user(user)) {
            self.rows[class * self.users + user].remove(&share.tally);
        }
    }

    /// What the user of this work has in its class.
    fn user(&mut self, books: &Books, at: usize) -> Option<UserShare> {
        let row = books.requests[at].class? * self.users + books.demand(at).user_at;
        Some(UserShare {
            tally: self.rows[row],
            work: self.shown.remove(&row).unwrap_or_default(),
            ..UserShare::default()
        })
    }
}

/// The same as [`of`], of which only what may differ is named: the fleet and its classes by their
/// sums, users whose sums differ, and of work what is `changed`.
pub(crate) fn news(
    books: &Books,
    pools: &mut Pools,
    before: &Shares,
    changed: &[usize],
) -> ShareNews {
    let mut sums = Sums::of(books, before, changed);
    let of_user = |work: &[usize]| {
        let user = work.first().and_then(|at| sums.user(books, *at));
        user.unwrap_or_default()
    };
    let differs = |(class, name): (&str, &UserName), user: &UserShare| {
        let old = before.classes.get(class);
        let old = old.and_then(|class| class.users.get(name));
        !user.work.is_empty() || old.is_none_or(|old| old.sums() != user.sums())
    };
    let shares = counted(books, pools, of_user, differs);
    let gone = books.register.departed.iter().map(|it| {
        let class = books.classes[it.class].name.to_owned();
        (class, it.user.clone(), it.work.clone())
    });
    ShareNews {
        gone: gone.collect(),
        shares,
    }
}

/// `of_user` says what the work of one user comes to, `keep` whether it is to be told.
fn counted(
    books: &Books,
    pools: &mut Pools,
    mut of_user: impl FnMut(&[usize]) -> UserShare,
    keep: impl Fn((&str, &UserName), &UserShare) -> bool,
) -> Shares {
    let mut shares = Shares::default();
    pools.tell(books, &mut shares);
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
        let fair = book.class.policy == Policy::FairShare;
        let mut handed_on = 0;
        for (place, (name, work)) in book.users.iter().enumerate() {
            let mut user = of_user(work);
            let due = book.user_due.get(place).copied().unwrap_or(0);
            user.given = if fair { due } else { user.tally.divided };
            user.left = user.given.saturating_sub(user.tally.divided);
            class.tally.add(&user.tally);
            handed_on += user.given;
            if keep((book.name, name), &user) {
                class.users.insert(name.clone(), user);
            }
        }
        class.given = if fair {
            crate::apportion::quanta(&book.given)
        } else {
            handed_on
        };
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
    if request.leaving != asked.leaving {
        // Something was told to leave in this round.
        return held(books, asked.held.iter().copied());
    }
    Tally {
        held: asked.held_quanta,
        staying: asked.held_quanta - asked.leaving_quanta,
        vacating: asked.leaving_quanta,
        closed: asked.closed_quanta,
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
