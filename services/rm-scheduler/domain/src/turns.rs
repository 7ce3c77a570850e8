//! Whose turn it is: groups by priority; within a group children before their parents' pools;
//! within a pool the oldest first.
//!
//! Only who is restless can take part: work that lacks something, could use more, or has more than
//! it may. The others are left alone, so they are not walked over.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{books::Books, marks::Flags, snapshot::Policy};

/// Restless work as it stood after counting, kept from round to round. Work of RESERVE classes is
/// not here: its orders may be those of nodes that were promised.
#[derive(Default)]
pub(crate) struct Queue {
    by_tree: BTreeMap<usize, Line>,
}

#[derive(Default)]
struct Line {
    turns: Vec<Turn>,
    is_here: Flags,
}

/// The class by its turn, then age; ties end with the id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rank: usize,
    since: i64,
    order: Reverse<u64>,
    at: usize,
}

/// By class: its turn in this tree. Priority, policy and pool say it.
type Ranks = Vec<Option<usize>>;

fn ranks(books: &Books, tree: usize) -> Ranks {
    let key = |class: usize| {
        let book = &books.classes[class];
        let pool = book.pool.filter(|pool| books.forest.root(*pool) == tree)?;
        let class = book.class;
        Some((class.priority, class.policy, books.forest.turn(pool)))
    };
    let mut keys: Vec<_> = (0..books.classes.len()).filter_map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    let rank = |class| keys.binary_search(&key(class)?).ok();
    (0..books.classes.len()).map(rank).collect()
}

fn turn(books: &Books, ranks: &Ranks, at: usize) -> Option<Turn> {
    let request = &books.requests[at];
    let rank = ranks[request.class?]?;
    let asked = books.demand(at);
    let (since, order) = match books.policy(at) {
        Some(Policy::Reserve) => (asked.submitted_at.unix_ms(), Reverse(request.order)),
        _ => asked.seniority(),
    };
    Some(Turn {
        rank,
        since,
        order,
        at,
    })
}

fn sort(books: &Books, turns: &mut [Turn]) {
    turns.sort_unstable_by(|a, b| compare(books, a, b));
}

fn compare(books: &Books, a: &Turn, b: &Turn) -> std::cmp::Ordering {
    let key = |turn: &Turn| (turn.rank, turn.since, turn.order);
    let by_id = || books.id(a.at).cmp(books.id(b.at));
    key(a).cmp(&key(b)).then_with(by_id)
}

fn merged(books: &Books, old: &[Turn], fresh: &[Turn]) -> Vec<Turn> {
    let mut all = Vec::with_capacity(old.len() + fresh.len());
    let mut from = 0;
    for turn in fresh {
        let is_before = |other: &Turn| compare(books, other, turn).is_lt();
        let until = from + old[from..].partition_point(is_before);
        all.extend_from_slice(&old[from..until]);
        all.push(*turn);
        from = until;
    }
    all.extend_from_slice(&old[from..]);
    all
}

/// Can anything be done for it, or be taken from it?
fn is_restless(books: &Books, at: usize) -> bool {
    let request = &books.requests[at];
    let has = request.has();
    let own = match books.policy(at) {
        Some(Policy::FairShare) => request.cap.own,
        _ => request.counted,
    };
    let cap = request.cap.base.max(request.cap.own).max(request.cap.now);
    let shrinks = !books.settings.evict_for_somebody && request.excess() > 0;
    has == 0 || has < cap || request.missing() > 0 || request.current > own || shrinks
}

fn is_reserve(books: &Books, at: usize) -> bool {
    books.policy(at) == Some(Policy::Reserve)
}

/// Brings the queue of a tree to what was counted.
pub(crate) fn renew(books: &mut Books, tree: usize) {
    let mut queue = std::mem::take(&mut books.queue);
    let ranks = ranks(books, tree);
    let Line { turns, is_here } = queue.by_tree.entry(tree).or_default();
    let wanted = |at: usize| {
        let own = turn(books, &ranks, at)?;
        (!is_reserve(books, at) && is_restless(books, at)).then_some(own)
    };
    turns.retain(|turn| {
        let stays = !books.requests.is_stirred(turn.at) || wanted(turn.at) == Some(*turn);
        if !stays {
            is_here.set(turn.at, false);
        }
        stays
    });
    let mut fresh: Vec<Turn> = if books.register.anew {
        (0..books.requests.len()).filter_map(wanted).collect()
    } else {
        let stirred = books.requests.stirred();
        let absent = stirred.filter(|at| !is_here.contains(*at));
        absent.filter_map(wanted).collect()
    };
    for turn in &fresh {
        is_here.set(turn.at, true);
    }
    sort(books, &mut fresh);
    *turns = if turns.is_empty() {
        fresh
    } else {
        merged(books, turns, &fresh)
    };
    books.queue = queue;
}

/// Restless work of one tree in the order in which it is served, and all of its RESERVE classes.
pub(crate) fn in_turn(books: &Books, tree: usize) -> Vec<(Policy, usize)> {
    let ranks = ranks(books, tree);
    let line = books.queue.by_tree.get(&tree);
    let is_here = |at: usize| line.is_some_and(|line| line.is_here.contains(at));
    // Who came to be restless in this round.
    let written = books.requests.written();
    let late = written.filter(|at| !is_here(*at));
    let late = late.filter(|at| !is_reserve(books, *at) && is_restless(books, *at));
    let mut fresh: Vec<Turn> = late
        .chain(reserved(books))
        .filter_map(|at| turn(books, &ranks, at))
        .collect();
    sort(books, &mut fresh);
    let queued = line.map_or(&[][..], |line| &line.turns);
    named(books, &merged(books, queued, &fresh))
}

/// All work of one tree.
pub(crate) fn all_in_turn(books: &Books, tree: usize) -> Vec<(Policy, usize)> {
    let ranks = ranks(books, tree);
    let all = 0..books.requests.len();
    let mut turns: Vec<Turn> = all.filter_map(|at| turn(books, &ranks, at)).collect();
    sort(books, &mut turns);
    named(books, &turns)
}

impl Books<'_> {
    /// All work that can lack anything or could use more.
    pub fn restless(&self) -> impl Iterator<Item = usize> {
        let lines = || self.queue.by_tree.values();
        let queued = lines().flat_map(|line| &line.turns).map(|turn| turn.at);
        let is_here = move |at: usize| lines().any(|line| line.is_here.contains(at));
        let late = self.requests.written().filter(move |at| !is_here(*at));
        queued.chain(late).chain(reserved(self))
    }
}

fn reserved<'b>(books: &'b Books) -> impl Iterator<Item = usize> + 'b {
    let reserve = books.classes.iter();
    let reserve = reserve.filter(|book| book.class.policy == Policy::Reserve);
    reserve.flat_map(|book| book.requests())
}

fn named(books: &Books, turns: &[Turn]) -> Vec<(Policy, usize)> {
    let named = turns
        .iter()
        .filter_map(|turn| Some((books.policy(turn.at)?, turn.at)));
    named.collect()
}
