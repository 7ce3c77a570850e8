//! Whose turn it is: groups by priority; within a group children before their parents' pools;
//! within a pool the oldest first.
//!
//! Only some can take part: work that lacks something or has more than it may, and, where idle room
//! is lent, work that could use more. Each has lanes of its own; the others are left alone, so they
//! are not walked over.

mod queue;

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    collections::dense_set::MemberSet,
    input::snapshot::Policy,
    state::{ClassState, RoundState},
};

pub(crate) use queue::ServeQueue;

/// Who can take part as it stood after counting, kept from round to round. Work of RESERVE classes
/// is not here: its orders may be those of nodes that were promised.
#[derive(Default)]
pub(crate) struct ServeOrder {
    pub by_tree: BTreeMap<usize, TreeQueues>,
    /// By request: where it stands.
    pub entries: Vec<QueueEntry>,
    /// Work that has more than it is counted for.
    excess: MemberSet,
    /// Stirred work that is of no tree whose turns were renewed in this round.
    unfiled: Vec<usize>,
    /// How many that are stirred were looked at in this round.
    seen: usize,
}

#[derive(Default)]
pub(crate) struct TreeQueues {
    lacking: ServeQueue,
    /// Work that could use more of what is idle. Work of one shape finds the same room, so it
    /// stands in one lane; work that names machines has one for itself.
    pub by_shape: BTreeMap<QueueKey, ServeQueue>,
}

/// A shape, or [`ALONE`].
pub(crate) type QueueKey = u32;
/// For work that names machines.
pub(crate) const ALONE: QueueKey = QueueKey::MAX;

/// Two of these share a line of memory.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueEntry {
    key: ServeKey,
    tree: u32,
    pub lending_queue: Option<QueueKey>,
    lacks: bool,
    /// It is among those that have more than they are counted for.
    exceeds: bool,
    /// Nothing was said of it since, so this is still its turn; and it is still the same work.
    is_current: bool,
}

impl QueueEntry {
    /// In lanes both belong to, what is filed now stands where it stood.
    fn stays(&self, now: &Self) -> bool {
        self.is_current && (self.tree, self.key) == (now.tree, now.key)
    }
}

/// The class by its turn, then age. Larger orders come before smaller ones then, and ties end with
/// the id: what hardly ever decides is looked up.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServeKey {
    since: i64,
    class_rank: u32,
    work: u32,
}

impl ServeKey {
    pub fn work(self) -> usize {
        self.work as usize
    }

    /// The class and when it was submitted, in a number that is quick to compare.
    pub fn age(&self) -> i128 {
        (i128::from(self.class_rank) << 64) + i128::from(self.since)
    }
}

/// The turns of the classes in one tree: priority, policy and pool say them.
pub(crate) struct ClassRanks {
    pub keys: Vec<(i64, Policy, usize)>,
    of_class: Vec<Option<usize>>,
}

impl ClassRanks {
    pub fn of(state: &RoundState, tree: usize) -> Self {
        let key = |class: usize| {
            let class_state = &state.classes[class];
            let pool = class_state
                .pool
                .filter(|pool| state.forest.root(*pool) == tree)?;
            let class = class_state.class;
            Some((class.priority, class.policy, state.forest.rank(pool)))
        };
        let mut keys: Vec<_> = (0..state.classes.len()).filter_map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        let rank = |class| keys.binary_search(&key(class)?).ok();
        let of_class = (0..state.classes.len()).map(rank).collect();
        Self { keys, of_class }
    }

    /// The rank of work of this tree.
    pub fn rank(&self, state: &RoundState, at: usize) -> Option<usize> {
        self.of_class[state.work[at].class?]
    }

    pub fn key(&self, state: &RoundState, at: usize) -> Option<ServeKey> {
        Some(ServeKey {
            class_rank: u32::try_from(self.rank(state, at)?).ok()?,
            since: state.work_record(at).submitted_at.unix_ms(),
            work: u32::try_from(at).ok()?,
        })
    }

    pub fn named(&self, key: ServeKey) -> (Policy, usize) {
        (self.keys[key.class_rank as usize].1, key.work())
    }
}

/// By numbers first: orders and ids lie far away, and hardly ever decide. Most of it comes in its
/// order, or as some that are.
pub(crate) fn sort(state: &RoundState, queue: &mut [ServeKey]) {
    queue.sort_by_key(ServeKey::age);
    for same in queue.chunk_by_mut(|one, other| one.age() == other.age()) {
        if same.len() > 1 {
            same.sort_unstable_by(|a, b| compare(state, a, b));
        }
    }
}

fn compare(state: &RoundState, a: &ServeKey, b: &ServeKey) -> std::cmp::Ordering {
    let rest = |key: &ServeKey| (order(state, key.work()), state.id(key.work()));
    a.age().cmp(&b.age()).then_with(|| rest(a).cmp(&rest(b)))
}

/// The larger first. Of RESERVE it may be that of a node that was promised.
pub(crate) fn order(state: &RoundState, at: usize) -> Reverse<u64> {
    Reverse(match state.policy(at) {
        Some(Policy::Reserve) => state.work[at].process_quanta,
        _ => state.work_record(at).process_quanta,
    })
}

/// Both are sorted.
fn merge(
    state: &RoundState,
    old: impl Iterator<Item = ServeKey>,
    fresh: &[ServeKey],
    mut each: impl FnMut(ServeKey),
) {
    let mut old = old.peekable();
    for key in fresh {
        let is_before = |other: &ServeKey| compare(state, other, key).is_lt();
        while let Some(before) = old.next_if(is_before) {
            each(before);
        }
        each(*key);
    }
    old.for_each(each);
}

/// Does it lack something, or have more than it may?
fn lacks(state: &RoundState, at: usize, policy: Policy) -> bool {
    let work = &state.work[at];
    let own = match policy {
        Policy::FairShare => work.cap.own,
        _ => work.counted,
    };
    let shrinks = !state.settings.evict_for_somebody && work.excess() > 0;
    work.has() == 0 || work.missing() > 0 || work.current > own || shrinks
}

/// Where it stands among those that could use more of what is idle.
pub(crate) fn borrows(state: &RoundState, at: usize, policy: Policy) -> Option<QueueKey> {
    let work = &state.work[at];
    let could = policy == Policy::FairShare && work.has() < work.cap.now;
    let key = could.then(|| u32::try_from(work.shape).ok());
    key.map(|key| key.filter(|_| !work.has_node_list).unwrap_or(ALONE))
}

/// Brings the queue of a tree to what was counted.
pub(crate) fn renew(state: &mut RoundState, tree: usize) {
    let mut queue = std::mem::take(&mut state.derived.serve_order);
    let ranks = ClassRanks::of(state, tree);
    queue.by_tree.entry(tree).or_default();
    queue
        .entries
        .resize(state.work.len(), QueueEntry::default());
    // Once in a round: what the first tree files is filed for all.
    if state.forest.roots().first() == Some(&tree) {
        for at in &state.index.touched {
            queue.entries[*at].is_current = false;
        }
        queue.unfiled.clear();
        queue.seen = 0;
    }
    queue.take_up(state, (tree, &ranks));
    if let Some(queues) = queue.by_tree.get_mut(&tree) {
        queues.lacking.settle(state);
        queues.by_shape.retain(|_, lane| {
            lane.settle(state);
            !lane.keys.is_empty()
        });
        #[cfg(test)]
        {
            let rebuilt = |at: usize| QueueEntry::default().now(state, at, (tree, &ranks));
            queues.assert_recounted(state, (0..state.work.len()).filter_map(rebuilt));
        }
    }
    state.derived.serve_order = queue;
}

impl QueueEntry {
    /// What is to be filed of work of this tree that was filed like that.
    fn now(
        &self,
        state: &RoundState,
        at: usize,
        (tree, ranks): (usize, &ClassRanks),
    ) -> Option<Self> {
        let (_, policy, _) = ranks.keys[ranks.rank(state, at)?];
        if policy == Policy::Reserve {
            return None;
        }
        let own = small(tree);
        let key = if self.is_current && self.tree == own {
            self.key
        } else {
            ranks.key(state, at)?
        };
        let lends = state.settings.lend_idle;
        Some(Self {
            key,
            tree: own,
            lending_queue: borrows(state, at, policy).filter(|_| lends),
            lacks: lacks(state, at, policy),
            exceeds: self.exceeds,
            is_current: true,
        })
    }
}

fn small(tree: usize) -> u32 {
    u32::try_from(tree).unwrap_or(u32::MAX)
}

#[cfg(test)]
impl TreeQueues {
    /// What is kept is what sorting all work of the tree anew gives.
    fn assert_recounted(&self, state: &RoundState, all: impl Iterator<Item = QueueEntry>) {
        let (mut lacking, mut borrowing) = (Vec::new(), BTreeMap::<QueueKey, Vec<ServeKey>>::new());
        for filed in all {
            lacking.extend(filed.lacks.then_some(filed.key));
            if let Some(key) = filed.lending_queue {
                borrowing.entry(key).or_default().push(filed.key);
            }
        }
        sort(state, &mut lacking);
        assert!(self.lacking.keys == lacking, "who lacks something");
        assert!(self.by_shape.keys().eq(borrowing.keys()), "lanes");
        for (key, mut queue) in borrowing {
            sort(state, &mut queue);
            assert!(self.by_shape[&key].keys == queue, "who could use more");
        }
    }
}

impl ServeOrder {
    /// Files what is stirred, but for what is left to other trees: so most is looked at once.
    fn take_up(&mut self, state: &RoundState, tree: (usize, &ClassRanks)) {
        let others = std::mem::take(&mut self.unfiled);
        let dirty = state.work.dirty().skip(self.seen);
        for at in others.into_iter().chain(dirty) {
            self.renew(state, at, tree);
        }
        self.seen = state.work.dirty().count();
    }

    fn renew(&mut self, state: &RoundState, at: usize, (tree, ranks): (usize, &ClassRanks)) {
        let before = &mut self.entries[at];
        let exceeds = state.work[at].excess() > 0;
        if before.exceeds != exceeds {
            before.exceeds = exceeds;
            self.excess.set(at, exceeds);
        }
        let before = *before;
        let now = before.now(state, at, (tree, ranks));
        if now.is_none() {
            self.unfiled.push(at);
            if before.tree != small(tree) {
                return;
            }
        }
        let none = QueueEntry {
            exceeds,
            ..QueueEntry::default()
        };
        let now = now.unwrap_or(none);
        if now != before {
            self.file(at, now);
        }
    }

    /// Notes what lanes have to do about stirred work: those it was in, which may be of another
    /// tree, and those it belongs to. Most of it stands where it stood.
    fn file(&mut self, at: usize, now: QueueEntry) {
        let before = std::mem::replace(&mut self.entries[at], now);
        let stays = before.stays(&now);
        if let Some(queues) = self.by_tree.get_mut(&(before.tree as usize)) {
            if before.lacks && !(stays && now.lacks) {
                queues.lacking.removed.push(before.key);
            }
            let key = before
                .lending_queue
                .filter(|_| !stays || before.lending_queue != now.lending_queue);
            if let Some(queue) = key.and_then(|key| queues.by_shape.get_mut(&key)) {
                queue.removed.push(before.key);
            }
        }
        let Some(queues) = self.by_tree.get_mut(&(now.tree as usize)) else {
            return;
        };
        if now.lacks && !(stays && before.lacks) {
            queues.lacking.added.push(now.key);
        }
        let key = now
            .lending_queue
            .filter(|_| !stays || before.lending_queue != now.lending_queue);
        if let Some(key) = key {
            queues.by_shape.entry(key).or_default().added.push(now.key);
        }
    }
}

/// Work of one tree that lacks something or has more than it may, in the order in which it is
/// served, and all work of its RESERVE classes.
pub(crate) fn lacking_in_order(state: &RoundState, tree: usize) -> Vec<(Policy, usize)> {
    let ranks = ClassRanks::of(state, tree);
    let Some(queues) = state.derived.serve_order.by_tree.get(&tree) else {
        return Vec::new();
    };
    // Who came to lack something in this round.
    let filed = &state.derived.serve_order.entries;
    let late = state.work.touched().filter(|at| !filed[*at].lacks);
    let late = late.filter(|at| {
        let policy = ranks.rank(state, *at).map(|rank| ranks.keys[rank].1);
        policy.is_some_and(|policy| policy != Policy::Reserve && lacks(state, *at, policy))
    });
    let mut fresh: Vec<ServeKey> = late
        .chain(reserve_work(state))
        .filter_map(|at| ranks.key(state, at))
        .collect();
    let here = &queues.lacking.keys;
    if fresh.is_empty() {
        return here.iter().map(|key| ranks.named(*key)).collect();
    }
    sort(state, &mut fresh);
    let mut all = Vec::with_capacity(here.len() + fresh.len());
    merge(state, here.iter().copied(), &fresh, |key| {
        all.push(ranks.named(key));
    });
    all
}

/// All work of one tree.
pub(crate) fn all_in_order(state: &RoundState, tree: usize) -> Vec<(Policy, usize)> {
    let ranks = ClassRanks::of(state, tree);
    let all = 0..state.work.len();
    let mut queue: Vec<ServeKey> = all.filter_map(|at| ranks.key(state, at)).collect();
    sort(state, &mut queue);
    queue.into_iter().map(|key| ranks.named(key)).collect()
}

impl RoundState<'_> {
    /// All work that has more than it is counted for.
    pub fn work_in_excess(&self) -> impl Iterator<Item = usize> {
        let known = &self.derived.serve_order.excess;
        let written = self.work.touched();
        let all = known.iter();
        let all = all.chain(written.filter(|at| !known.contains(*at)));
        all.filter(|at| self.work[*at].excess() > 0)
    }
}

/// Is work of one tree, of one priority and policy, in one pool alone? Then turns go by age there.
pub(crate) fn is_by_age(state: &RoundState, tree: usize) -> bool {
    let keys = ClassRanks::of(state, tree).keys;
    let mut neighbours = keys.iter().zip(keys.iter().skip(1));
    neighbours.all(|(one, other)| (one.0, one.1) != (other.0, other.1))
}

pub(crate) fn reserve_work<'b>(state: &'b RoundState) -> impl Iterator<Item = usize> + 'b {
    let reserve = state.classes.iter();
    let reserve = reserve.filter(|class_state| class_state.class.policy == Policy::Reserve);
    reserve.flat_map(ClassState::requests)
}
