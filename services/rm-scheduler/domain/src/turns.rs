//! Whose turn it is: groups by priority; within a group children before their parents' pools;
//! within a pool the oldest first.
//!
//! Only who is restless can take part: work that lacks something, could use more, or has more than
//! it may. The others are left alone, so they are not walked over.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    books::{Books, ClassBook},
    marks::Flags,
    snapshot::Policy,
};

/// Restless work as it stood after counting, kept from round to round. Work of RESERVE classes is
/// not here: its orders may be those of nodes that were promised.
#[derive(Default)]
pub(crate) struct Queue {
    by_tree: BTreeMap<usize, Line>,
    /// Work that has more than it is counted for.
    excess: BTreeSet<usize>,
}

#[derive(Default)]
struct Line {
    turns: Vec<Turn>,
    is_here: Flags,
    /// Of those that are here: they could do more than grow.
    is_lacking: Flags,
}

/// The class by its turn, then age; ties end with the id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rank: usize,
    since: i64,
    order: Reverse<u64>,
    at: usize,
}

/// The turns of the classes in one tree: priority, policy and pool say them.
struct Ranks {
    keys: Vec<(i64, Policy, usize)>,
    of_class: Vec<Option<usize>>,
}

impl Ranks {
    fn of(books: &Books, tree: usize) -> Self {
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
        let of_class = (0..books.classes.len()).map(rank).collect();
        Self { keys, of_class }
    }

    fn turn(&self, books: &Books, at: usize) -> Option<Turn> {
        let request = &books.requests[at];
        let rank = self.of_class[request.class?]?;
        let asked = books.demand(at);
        let (since, order) = match self.keys[rank].1 {
            Policy::Reserve => (asked.submitted_at.unix_ms(), Reverse(request.order)),
            _ => asked.seniority(),
        };
        Some(Turn {
            rank,
            since,
            order,
            at,
        })
    }

    fn named(&self, turn: Turn) -> (Policy, usize) {
        (self.keys[turn.rank].1, turn.at)
    }
}

fn sort(books: &Books, turns: &mut [Turn]) {
    turns.sort_unstable_by(|a, b| compare(books, a, b));
}

fn compare(books: &Books, a: &Turn, b: &Turn) -> std::cmp::Ordering {
    let key = |turn: &Turn| (turn.rank, turn.since, turn.order);
    let by_id = || books.id(a.at).cmp(books.id(b.at));
    key(a).cmp(&key(b)).then_with(by_id)
}

/// Both are sorted.
fn merge(
    books: &Books,
    old: impl Iterator<Item = Turn>,
    fresh: &[Turn],
    mut each: impl FnMut(Turn),
) {
    let mut old = old.peekable();
    for turn in fresh {
        let is_before = |other: &Turn| compare(books, other, turn).is_lt();
        while let Some(before) = old.next_if(is_before) {
            each(before);
        }
        each(*turn);
    }
    old.for_each(each);
}

/// Does it lack something, or have more than it may?
fn lacks(books: &Books, at: usize) -> bool {
    let request = &books.requests[at];
    let own = match books.policy(at) {
        Some(Policy::FairShare) => request.cap.own,
        _ => request.counted,
    };
    let shrinks = !books.settings.evict_for_somebody && request.excess() > 0;
    request.has() == 0 || request.missing() > 0 || request.current > own || shrinks
}

/// Could it use more?
fn grows(books: &Books, at: usize) -> bool {
    let request = &books.requests[at];
    let cap = request.cap.base.max(request.cap.own).max(request.cap.now);
    request.has() < cap
}

fn is_reserve(books: &Books, at: usize) -> bool {
    books.policy(at) == Some(Policy::Reserve)
}

/// Brings the queue of a tree to what was counted.
pub(crate) fn renew(books: &mut Books, tree: usize) {
    let mut queue = std::mem::take(&mut books.sets.queue);
    queue.note_excess(books);
    let ranks = Ranks::of(books, tree);
    let line = queue.by_tree.entry(tree).or_default();
    let wanted = |at: usize| {
        let turn = ranks.turn(books, at)?;
        let is_restless = lacks(books, at) || grows(books, at);
        (is_restless && !is_reserve(books, at)).then_some(turn)
    };
    let Line {
        turns,
        is_here,
        is_lacking,
    } = line;
    turns.retain(|turn| {
        if !books.requests.is_stirred(turn.at) {
            return true;
        }
        let stays = wanted(turn.at) == Some(*turn);
        is_here.set(turn.at, stays);
        is_lacking.set(turn.at, stays && lacks(books, turn.at));
        stays
    });
    let mut fresh = Vec::new();
    if books.register.anew {
        fresh.reserve_exact(books.requests.len());
        fresh.extend((0..books.requests.len()).filter_map(wanted));
        fresh.shrink_to_fit();
    } else {
        let absent = books.requests.stirred().filter(|at| !is_here.contains(*at));
        fresh.extend(absent.filter_map(wanted));
    }
    for turn in &fresh {
        is_here.set(turn.at, true);
        is_lacking.set(turn.at, lacks(books, turn.at));
    }
    sort(books, &mut fresh);
    *turns = if turns.is_empty() {
        fresh
    } else {
        let mut all = Vec::with_capacity(turns.len() + fresh.len());
        merge(books, turns.iter().copied(), &fresh, |turn| {
            all.push(turn);
        });
        all
    };
    books.sets.queue = queue;
}

impl Queue {
    fn note_excess(&mut self, books: &Books) {
        let note = |at: usize| {
            if books.requests[at].excess() > 0 {
                self.excess.insert(at);
            } else {
                self.excess.remove(&at);
            }
        };
        if books.register.anew {
            (0..books.requests.len()).for_each(note);
        } else {
            books.requests.stirred().for_each(note);
        }
    }
}

/// Restless work of one tree in the order in which it is served, and all of its RESERVE classes.
pub(crate) fn in_turn(books: &Books, tree: usize) -> Vec<(Policy, usize)> {
    queued(books, tree, false)
}

/// Of these, those that lack something or have more than they may.
pub(crate) fn lacking_in_turn(books: &Books, tree: usize) -> Vec<(Policy, usize)> {
    queued(books, tree, true)
}

fn queued(books: &Books, tree: usize, lacking: bool) -> Vec<(Policy, usize)> {
    let ranks = Ranks::of(books, tree);
    let Some(line) = books.sets.queue.by_tree.get(&tree) else {
        return Vec::new();
    };
    let is_here = |at| line.is_here.contains(at) && (!lacking || line.is_lacking.contains(at));
    // Who came to be restless in this round.
    let late = books.requests.written().filter(|at| !is_here(*at));
    let late = late.filter(|at| lacks(books, *at) || !lacking && grows(books, *at));
    let late = late.filter(|at| !is_reserve(books, *at));
    let mut fresh: Vec<Turn> = late
        .chain(reserved(books))
        .filter_map(|at| ranks.turn(books, at))
        .collect();
    sort(books, &mut fresh);
    let here = line.turns.iter();
    let here = here.filter(|turn| !lacking || line.is_lacking.contains(turn.at));
    let mut all = Vec::with_capacity(line.turns.len() + fresh.len());
    merge(books, here.copied(), &fresh, |turn| {
        all.push(ranks.named(turn));
    });
    all
}

/// All work of one tree.
pub(crate) fn all_in_turn(books: &Books, tree: usize) -> Vec<(Policy, usize)> {
    let ranks = Ranks::of(books, tree);
    let all = 0..books.requests.len();
    let mut turns: Vec<Turn> = all.filter_map(|at| ranks.turn(books, at)).collect();
    sort(books, &mut turns);
    turns.into_iter().map(|turn| ranks.named(turn)).collect()
}

impl Books<'_> {
    /// All work that can lack anything or could use more.
    pub fn restless(&self) -> impl Iterator<Item = usize> {
        let lines = || self.sets.queue.by_tree.values();
        let queued = lines().flat_map(|line| &line.turns).map(|turn| turn.at);
        let is_here = move |at: usize| lines().any(|line| line.is_here.contains(at));
        let late = self.requests.written().filter(move |at| !is_here(*at));
        queued.chain(late).chain(reserved(self))
    }

    /// All work that has more than it is counted for.
    pub fn exceeding(&self) -> impl Iterator<Item = usize> {
        let known = &self.sets.queue.excess;
        let written = self.requests.written();
        let all = known.iter().copied();
        let all = all.chain(written.filter(|at| !known.contains(at)));
        all.filter(|at| self.requests[*at].excess() > 0)
    }
}

fn reserved<'b>(books: &'b Books) -> impl Iterator<Item = usize> + 'b {
    let reserve = books.classes.iter();
    let reserve = reserve.filter(|book| book.class.policy == Policy::Reserve);
    reserve.flat_map(ClassBook::requests)
}
