//! Whose turn it is: groups by priority; within a group children before their parents' pools;
//! within a pool the oldest first.
//!
//! Only some can take part: work that lacks something or has more than it may, and, where idle room
//! is lent, work that could use more. Each has lanes of its own; the others are left alone, so they
//! are not walked over.

mod queue;

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    collections::dense_set::Members,
    input::snapshot::Policy,
    state::{Books, ClassBook},
};

pub(crate) use queue::Lane;

/// Who can take part as it stood after counting, kept from round to round. Work of RESERVE classes
/// is not here: its orders may be those of nodes that were promised.
#[derive(Default)]
pub(crate) struct Queue {
    pub by_tree: BTreeMap<usize, Line>,
    /// By request: where it stands.
    pub filed: Vec<Filed>,
    /// Work that has more than it is counted for.
    excess: Members,
    /// Stirred work that is of no tree whose turns were renewed in this round.
    others: Vec<usize>,
    /// How many that are stirred were looked at in this round.
    seen: usize,
}

#[derive(Default)]
pub(crate) struct Line {
    lacking: Lane,
    /// Work that could use more of what is idle. Work of one shape finds the same room, so it
    /// stands in one lane; work that names machines has one for itself.
    pub borrowing: BTreeMap<Key, Lane>,
}

/// A shape, or [`ALONE`].
pub(crate) type Key = u32;
/// For work that names machines.
pub(crate) const ALONE: Key = Key::MAX;

/// Two of these share a line of memory.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filed {
    turn: Turn,
    tree: u32,
    pub borrows: Option<Key>,
    lacks: bool,
    /// It is among those that have more than they are counted for.
    exceeds: bool,
    /// Nothing was said of it since, so this is still its turn; and it is still the same work.
    is_current: bool,
}

impl Filed {
    /// In lanes both belong to, what is filed now stands where it stood.
    fn stays(&self, now: &Self) -> bool {
        self.is_current && (self.tree, self.turn) == (now.tree, now.turn)
    }
}

/// The class by its turn, then age. Larger orders come before smaller ones then, and ties end with
/// the id: what hardly ever decides is looked up.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    since: i64,
    rank: u32,
    at: u32,
}

impl Turn {
    pub fn at(self) -> usize {
        self.at as usize
    }

    /// The class and when it was submitted, in a number that is quick to compare.
    pub fn age(&self) -> i128 {
        (i128::from(self.rank) << 64) + i128::from(self.since)
    }
}

/// The turns of the classes in one tree: priority, policy and pool say them.
pub(crate) struct Ranks {
    pub keys: Vec<(i64, Policy, usize)>,
    of_class: Vec<Option<usize>>,
}

impl Ranks {
    pub fn of(books: &Books, tree: usize) -> Self {
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

    /// The rank of work of this tree.
    pub fn rank(&self, books: &Books, at: usize) -> Option<usize> {
        self.of_class[books.requests[at].class?]
    }

    pub fn turn(&self, books: &Books, at: usize) -> Option<Turn> {
        Some(Turn {
            rank: u32::try_from(self.rank(books, at)?).ok()?,
            since: books.demand(at).submitted_at.unix_ms(),
            at: u32::try_from(at).ok()?,
        })
    }

    pub fn named(&self, turn: Turn) -> (Policy, usize) {
        (self.keys[turn.rank as usize].1, turn.at())
    }
}

/// By numbers first: orders and ids lie far away, and hardly ever decide. Most of it comes in its
/// order, or as some that are.
pub(crate) fn sort(books: &Books, turns: &mut [Turn]) {
    turns.sort_by_key(Turn::age);
    for same in turns.chunk_by_mut(|one, other| one.age() == other.age()) {
        if same.len() > 1 {
            same.sort_unstable_by(|a, b| compare(books, a, b));
        }
    }
}

fn compare(books: &Books, a: &Turn, b: &Turn) -> std::cmp::Ordering {
    let rest = |turn: &Turn| (order(books, turn.at()), books.id(turn.at()));
    a.age().cmp(&b.age()).then_with(|| rest(a).cmp(&rest(b)))
}

/// The larger first. Of RESERVE it may be that of a node that was promised.
pub(crate) fn order(books: &Books, at: usize) -> Reverse<u64> {
    Reverse(match books.policy(at) {
        Some(Policy::Reserve) => books.requests[at].order,
        _ => books.demand(at).order,
    })
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
fn lacks(books: &Books, at: usize, policy: Policy) -> bool {
    let request = &books.requests[at];
    let own = match policy {
        Policy::FairShare => request.cap.own,
        _ => request.counted,
    };
    let shrinks = !books.settings.evict_for_somebody && request.excess() > 0;
    request.has() == 0 || request.missing() > 0 || request.current > own || shrinks
}

/// Where it stands among those that could use more of what is idle.
pub(crate) fn borrows(books: &Books, at: usize, policy: Policy) -> Option<Key> {
    let request = &books.requests[at];
    let could = policy == Policy::FairShare && request.has() < request.cap.now;
    let key = could.then(|| u32::try_from(request.shape).ok());
    key.map(|key| key.filter(|_| !request.listed).unwrap_or(ALONE))
}

/// Brings the queue of a tree to what was counted.
pub(crate) fn renew(books: &mut Books, tree: usize) {
    let mut queue = std::mem::take(&mut books.sets.queue);
    let ranks = Ranks::of(books, tree);
    queue.by_tree.entry(tree).or_default();
    queue.filed.resize(books.requests.len(), Filed::default());
    // Once in a round: what the first tree files is filed for all.
    if books.forest.roots().first() == Some(&tree) {
        for at in &books.register.touched {
            queue.filed[*at].is_current = false;
        }
        queue.others.clear();
        queue.seen = 0;
    }
    queue.take_up(books, (tree, &ranks));
    if let Some(line) = queue.by_tree.get_mut(&tree) {
        line.lacking.settle(books);
        line.borrowing.retain(|_, lane| {
            lane.settle(books);
            !lane.turns.is_empty()
        });
        #[cfg(test)]
        {
            let anew = |at: usize| Filed::default().now(books, at, (tree, &ranks));
            line.assert_recounted(books, (0..books.requests.len()).filter_map(anew));
        }
    }
    books.sets.queue = queue;
}

impl Filed {
    /// What is to be filed of work of this tree that was filed like that.
    fn now(&self, books: &Books, at: usize, (tree, ranks): (usize, &Ranks)) -> Option<Self> {
        let (_, policy, _) = ranks.keys[ranks.rank(books, at)?];
        if policy == Policy::Reserve {
            return None;
        }
        let own = small(tree);
        let turn = if self.is_current && self.tree == own {
            self.turn
        } else {
            ranks.turn(books, at)?
        };
        let lends = books.settings.lend_idle;
        Some(Self {
            turn,
            tree: own,
            borrows: borrows(books, at, policy).filter(|_| lends),
            lacks: lacks(books, at, policy),
            exceeds: self.exceeds,
            is_current: true,
        })
    }
}

fn small(tree: usize) -> u32 {
    u32::try_from(tree).unwrap_or(u32::MAX)
}

#[cfg(test)]
impl Line {
    /// What is kept is what sorting all work of the tree anew gives.
    fn assert_recounted(&self, books: &Books, all: impl Iterator<Item = Filed>) {
        let (mut lacking, mut borrowing) = (Vec::new(), BTreeMap::<Key, Vec<Turn>>::new());
        for filed in all {
            lacking.extend(filed.lacks.then_some(filed.turn));
            if let Some(key) = filed.borrows {
                borrowing.entry(key).or_default().push(filed.turn);
            }
        }
        sort(books, &mut lacking);
        assert!(self.lacking.turns == lacking, "who lacks something");
        assert!(self.borrowing.keys().eq(borrowing.keys()), "lanes");
        for (key, mut turns) in borrowing {
            sort(books, &mut turns);
            assert!(self.borrowing[&key].turns == turns, "who could use more");
        }
    }
}

impl Queue {
    /// Files what is stirred, but for what is left to other trees: so most is looked at once.
    fn take_up(&mut self, books: &Books, tree: (usize, &Ranks)) {
        let others = std::mem::take(&mut self.others);
        let stirred = books.requests.stirred().skip(self.seen);
        for at in others.into_iter().chain(stirred) {
            self.renew(books, at, tree);
        }
        self.seen = books.requests.stirred().count();
    }

    fn renew(&mut self, books: &Books, at: usize, (tree, ranks): (usize, &Ranks)) {
        let before = &mut self.filed[at];
        let exceeds = books.requests[at].excess() > 0;
        if before.exceeds != exceeds {
            before.exceeds = exceeds;
            self.excess.set(at, exceeds);
        }
        let before = *before;
        let now = before.now(books, at, (tree, ranks));
        if now.is_none() {
            self.others.push(at);
            if before.tree != small(tree) {
                return;
            }
        }
        let none = Filed {
            exceeds,
            ..Filed::default()
        };
        let now = now.unwrap_or(none);
        if now != before {
            self.file(at, now);
        }
    }

    /// Notes what lanes have to do about stirred work: those it was in, which may be of another
    /// tree, and those it belongs to. Most of it stands where it stood.
    fn file(&mut self, at: usize, now: Filed) {
        let before = std::mem::replace(&mut self.filed[at], now);
        let stays = before.stays(&now);
        if let Some(line) = self.by_tree.get_mut(&(before.tree as usize)) {
            if before.lacks && !(stays && now.lacks) {
                line.lacking.gone.push(before.turn);
            }
            let key = before
                .borrows
                .filter(|_| !stays || before.borrows != now.borrows);
            if let Some(lane) = key.and_then(|key| line.borrowing.get_mut(&key)) {
                lane.gone.push(before.turn);
            }
        }
        let Some(line) = self.by_tree.get_mut(&(now.tree as usize)) else {
            return;
        };
        if now.lacks && !(stays && before.lacks) {
            line.lacking.fresh.push(now.turn);
        }
        let key = now
            .borrows
            .filter(|_| !stays || before.borrows != now.borrows);
        if let Some(key) = key {
            line.borrowing.entry(key).or_default().fresh.push(now.turn);
        }
    }
}

/// Work of one tree that lacks something or has more than it may, in the order in which it is
/// served, and all work of its RESERVE classes.
pub(crate) fn lacking_in_turn(books: &Books, tree: usize) -> Vec<(Policy, usize)> {
    let ranks = Ranks::of(books, tree);
    let Some(line) = books.sets.queue.by_tree.get(&tree) else {
        return Vec::new();
    };
    // Who came to lack something in this round.
    let filed = &books.sets.queue.filed;
    let late = books.requests.written().filter(|at| !filed[*at].lacks);
    let late = late.filter(|at| {
        let policy = ranks.rank(books, *at).map(|rank| ranks.keys[rank].1);
        policy.is_some_and(|policy| policy != Policy::Reserve && lacks(books, *at, policy))
    });
    let mut fresh: Vec<Turn> = late
        .chain(reserved(books))
        .filter_map(|at| ranks.turn(books, at))
        .collect();
    let here = &line.lacking.turns;
    if fresh.is_empty() {
        return here.iter().map(|turn| ranks.named(*turn)).collect();
    }
    sort(books, &mut fresh);
    let mut all = Vec::with_capacity(here.len() + fresh.len());
    merge(books, here.iter().copied(), &fresh, |turn| {
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
    /// All work that has more than it is counted for.
    pub fn exceeding(&self) -> impl Iterator<Item = usize> {
        let known = &self.sets.queue.excess;
        let written = self.requests.written();
        let all = known.iter();
        let all = all.chain(written.filter(|at| !known.contains(*at)));
        all.filter(|at| self.requests[*at].excess() > 0)
    }
}

/// Is work of one tree, of one priority and policy, in one pool alone? Then turns go by age there.
pub(crate) fn go_by_age(books: &Books, tree: usize) -> bool {
    let keys = Ranks::of(books, tree).keys;
    let mut neighbours = keys.iter().zip(keys.iter().skip(1));
    neighbours.all(|(one, other)| (one.0, one.1) != (other.0, other.1))
}

pub(crate) fn reserved<'b>(books: &'b Books) -> impl Iterator<Item = usize> + 'b {
    let reserve = books.classes.iter();
    let reserve = reserve.filter(|book| book.class.policy == Policy::Reserve);
    reserve.flat_map(ClassBook::requests)
}
