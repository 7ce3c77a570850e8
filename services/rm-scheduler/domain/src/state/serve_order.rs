//! Order in which work is served: by priority, then policy, then child pools before their parents,
//! then the oldest first.
//!
//! Only work that a round can change is queued. It misses processes, holds too many, or could
//! borrow more than its entitlement. The queues are kept between rounds.

mod queue;

use std::{cmp::Reverse, collections::BTreeMap};

use super::{ClassState, RoundState};
use crate::{
    collections::dense_set::SparseSet,
    ids::{ClassIx, PoolIx, ShapeIx, TypedVec, WorkIx},
    input::snapshot::Policy,
};

pub(crate) use queue::ServeQueue;

/// Queues of all trees at the end of counting. RESERVE work is not queued, because its quanta may
/// be those of the node that is cleared for it.
#[derive(Default)]
pub(crate) struct ServeOrder {
    pub by_tree: BTreeMap<PoolIx, TreeQueues>,
    /// Position of each piece of work in the queues.
    pub entries: TypedVec<WorkIx, QueueEntry>,
    /// Work that holds more than its entitlement.
    excess: SparseSet<WorkIx>,
    /// Dirty work that no tree has claimed in this round.
    unfiled: Vec<WorkIx>,
    /// Number of dirty rows already read in this round.
    seen: usize,
}

#[derive(Default)]
pub(crate) struct TreeQueues {
    lacking: ServeQueue,
    /// Queues of work that could borrow idle space. There is one queue per shape, because equal
    /// shapes find the same nodes. Work with a node list has a queue of its own.
    pub by_shape: BTreeMap<QueueKey, ServeQueue>,
}

/// Key of the lending queue of a tree that contains the work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueKey {
    Shape(ShapeIx),
    /// Work with a node list.
    NodeList,
}

/// Position of a piece of work in the queues.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueEntry {
    /// Sort key of the work. `None` if it is in no queue.
    key: Option<ServeKey>,
    /// Tree of the queues. `None` if it is in no queue.
    tree: Option<PoolIx>,
    pub lending_queue: Option<QueueKey>,
    lacks: bool,
    /// True if the work is in [`ServeOrder::excess`].
    exceeds: bool,
    /// True if the work did not change since, so `key` is still valid.
    is_current: bool,
}

impl QueueEntry {
    /// Returns whether the work keeps its position in queues that contain it before and after.
    fn stays(&self, now: &Self) -> bool {
        self.is_current && (self.tree, self.key) == (now.tree, now.key)
    }
}

/// Sort key: rank of the class, then age. Ties are broken by quanta, larger first, then by id. Both
/// are looked up, because they rarely decide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServeKey {
    since: i64,
    class_rank: u32,
    work: WorkIx,
}

impl ServeKey {
    pub fn work(self) -> WorkIx {
        self.work
    }

    /// Returns the rank of the class and the time of submission as one number.
    pub fn age(&self) -> i128 {
        (i128::from(self.class_rank) << 64) + i128::from(self.since)
    }
}

/// Work to serve, with the policy of its class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueuedWork {
    pub policy: Policy,
    pub work: WorkIx,
}

/// Ranks of the classes in one tree. Classes with equal keys have the same rank.
pub(crate) struct ClassRanks {
    tree: PoolIx,
    pub keys: Vec<ClassRankKey>,
    by_class: TypedVec<ClassIx, Option<usize>>,
}

/// Sort key of a class: priority, policy, then the serve position of its pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassRankKey {
    priority: i64,
    pub policy: Policy,
    pool_rank: usize,
}

impl ClassRanks {
    pub fn new(state: &RoundState, tree: PoolIx) -> Self {
        let key = |class: ClassIx| {
            let class_state = &state.classes[class];
            let pool = class_state
                .pool
                .filter(|pool| state.forest.root(*pool) == tree)?;
            let class = class_state.class;
            Some(ClassRankKey {
                priority: class.priority,
                policy: class.policy,
                pool_rank: state.forest.rank(pool),
            })
        };
        let mut keys: Vec<_> = state.classes.indices().filter_map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        let rank = |class| keys.binary_search(&key(class)?).ok();
        let by_class = state.classes.indices().map(rank).collect();
        Self {
            tree,
            keys,
            by_class,
        }
    }

    /// Returns the rank of a piece of work, or `None` if it belongs to another tree.
    pub fn rank(&self, state: &RoundState, work: WorkIx) -> Option<usize> {
        self.by_class[state.work[work].class?]
    }

    pub fn key(&self, state: &RoundState, work: WorkIx) -> Option<ServeKey> {
        Some(ServeKey {
            class_rank: u32::try_from(self.rank(state, work)?).ok()?,
            since: state.work_record(work).submitted_at.unix_ms(),
            work,
        })
    }

    pub fn queued(&self, key: ServeKey) -> QueuedWork {
        QueuedWork {
            policy: self.keys[key.class_rank as usize].policy,
            work: key.work(),
        }
    }
}

/// Sorts by rank and age, then breaks ties. The sort is stable, which is fast on sorted runs.
pub(crate) fn sort(state: &RoundState, queue: &mut [ServeKey]) {
    queue.sort_by_key(ServeKey::age);
    for same in queue.chunk_by_mut(|one, other| one.age() == other.age()) {
        if same.len() > 1 {
            same.sort_unstable_by(|a, b| compare(state, a, b));
        }
    }
}

fn compare(state: &RoundState, a: &ServeKey, b: &ServeKey) -> std::cmp::Ordering {
    let rest = |key: &ServeKey| (quanta_rank(state, key.work()), state.id(key.work()));
    a.age().cmp(&b.age()).then_with(|| rest(a).cmp(&rest(b)))
}

/// Returns the quanta of one process as a sort key, larger first. RESERVE work has the quanta of
/// the node cleared for it.
pub(crate) fn quanta_rank(state: &RoundState, work: WorkIx) -> Reverse<u64> {
    Reverse(match state.policy(work) {
        Some(Policy::Reserve) => state.work[work].process_quanta,
        _ => state.work_record(work).process_quanta,
    })
}

/// Merges two sorted sequences.
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

/// Returns whether the work misses processes, holds more than it may, or has none.
fn lacks(state: &RoundState, work: WorkIx, policy: Policy) -> bool {
    let work_state = &state.work[work];
    let own = match policy {
        Policy::FairShare => work_state.cap.before_space,
        _ => work_state.counted,
    };
    let shrinks = !state.settings.evict_for_somebody && work_state.excess() > 0;
    work_state.has() == 0 || work_state.missing() > 0 || work_state.current > own || shrinks
}

/// Returns the lending queue of the work, or `None` if it can use no more processes.
pub(crate) fn borrows(state: &RoundState, work: WorkIx, policy: Policy) -> Option<QueueKey> {
    let work_state = &state.work[work];
    let could = policy == Policy::FairShare && work_state.has() < work_state.cap.now;
    could.then_some(if work_state.has_node_list {
        QueueKey::NodeList
    } else {
        QueueKey::Shape(work_state.shape)
    })
}

/// Updates the queues of a tree after counting.
pub(crate) fn renew(state: &mut RoundState, tree: PoolIx) {
    let mut queue = std::mem::take(&mut state.derived.serve_order);
    let ranks = ClassRanks::new(state, tree);
    queue.by_tree.entry(tree).or_default();
    queue
        .entries
        .resize(state.work.len(), QueueEntry::default());
    // The first tree of a round does this once for all trees.
    if state.forest.roots().first() == Some(&tree) {
        for work in &state.index.touched {
            queue.entries[*work].is_current = false;
        }
        queue.unfiled.clear();
        queue.seen = 0;
    }
    queue.queue_dirty_work(state, &ranks);
    if let Some(queues) = queue.by_tree.get_mut(&tree) {
        queues.lacking.settle(state);
        queues.by_shape.retain(|_, queue| {
            queue.settle(state);
            !queue.keys.is_empty()
        });
        #[cfg(test)]
        {
            let rebuilt = |work: WorkIx| QueueEntry::default().now(state, work, &ranks);
            queues.assert_recounted(state, state.work.indices().filter_map(rebuilt));
        }
    }
    state.derived.serve_order = queue;
}

impl QueueEntry {
    /// Returns the new entry of a piece of work, or `None` if it belongs to another tree or a
    /// RESERVE class.
    fn now(&self, state: &RoundState, work: WorkIx, ranks: &ClassRanks) -> Option<Self> {
        let policy = ranks.keys[ranks.rank(state, work)?].policy;
        if policy == Policy::Reserve {
            return None;
        }
        let key = if self.is_current && self.tree == Some(ranks.tree) {
            self.key
        } else {
            Some(ranks.key(state, work)?)
        };
        let lends = state.settings.lend_idle;
        Some(Self {
            key,
            tree: Some(ranks.tree),
            lending_queue: borrows(state, work, policy).filter(|_| lends),
            lacks: lacks(state, work, policy),
            exceeds: self.exceeds,
            is_current: true,
        })
    }
}

#[cfg(test)]
impl TreeQueues {
    /// Asserts that the queues equal those built from scratch.
    fn assert_recounted(&self, state: &RoundState, all: impl Iterator<Item = QueueEntry>) {
        let (mut lacking, mut borrowing) = (Vec::new(), BTreeMap::<QueueKey, Vec<ServeKey>>::new());
        for filed in all {
            lacking.extend(filed.key.filter(|_| filed.lacks));
            if let Some(key) = filed.lending_queue {
                borrowing.entry(key).or_default().extend(filed.key);
            }
        }
        sort(state, &mut lacking);
        assert!(self.lacking.keys == lacking, "work that misses processes");
        assert!(self.by_shape.keys().eq(borrowing.keys()), "shapes");
        for (key, mut queue) in borrowing {
            sort(state, &mut queue);
            assert!(self.by_shape[&key].keys == queue, "work that could borrow");
        }
    }
}

impl ServeOrder {
    /// Queues the dirty work of this tree. Other dirty work stays in `unfiled` for the other trees.
    fn queue_dirty_work(&mut self, state: &RoundState, ranks: &ClassRanks) {
        let others = std::mem::take(&mut self.unfiled);
        let dirty = state.work.dirty().skip(self.seen);
        for work in others.into_iter().chain(dirty) {
            self.renew(state, work, ranks);
        }
        self.seen = state.work.dirty().count();
    }

    fn renew(&mut self, state: &RoundState, work: WorkIx, ranks: &ClassRanks) {
        let before = &mut self.entries[work];
        let exceeds = state.work[work].excess() > 0;
        if before.exceeds != exceeds {
            before.exceeds = exceeds;
            self.excess.set(work, exceeds);
        }
        let before = *before;
        let now = before.now(state, work, ranks);
        if now.is_none() {
            self.unfiled.push(work);
            if before.tree != Some(ranks.tree) {
                return;
            }
        }
        let none = QueueEntry {
            exceeds,
            ..QueueEntry::default()
        };
        let now = now.unwrap_or(none);
        if now != before {
            self.file(work, now);
        }
    }

    /// Records the removals and insertions for a piece of work whose entry changed. Its old queues
    /// may belong to another tree.
    fn file(&mut self, work: WorkIx, now: QueueEntry) {
        let before = std::mem::replace(&mut self.entries[work], now);
        let stays = before.stays(&now);
        let queues_before = before.tree.and_then(|tree| self.by_tree.get_mut(&tree));
        if let Some(queues) = queues_before {
            if before.lacks && !(stays && now.lacks) {
                queues.lacking.removed.extend(before.key);
            }
            let key = before
                .lending_queue
                .filter(|_| !stays || before.lending_queue != now.lending_queue);
            if let Some(queue) = key.and_then(|key| queues.by_shape.get_mut(&key)) {
                queue.removed.extend(before.key);
            }
        }
        let Some(queues) = now.tree.and_then(|tree| self.by_tree.get_mut(&tree)) else {
            return;
        };
        if now.lacks && !(stays && before.lacks) {
            queues.lacking.added.extend(now.key);
        }
        let key = now
            .lending_queue
            .filter(|_| !stays || before.lending_queue != now.lending_queue);
        if let Some(key) = key {
            queues
                .by_shape
                .entry(key)
                .or_default()
                .added
                .extend(now.key);
        }
    }
}

/// Returns the work of one tree that misses processes or holds too many, and all work of its
/// RESERVE classes. It is in serve order.
pub(crate) fn lacking_in_order(state: &RoundState, tree: PoolIx) -> Vec<QueuedWork> {
    let ranks = ClassRanks::new(state, tree);
    let Some(queues) = state.derived.serve_order.by_tree.get(&tree) else {
        return Vec::new();
    };
    // Work that began to miss processes within this round.
    let filed = &state.derived.serve_order.entries;
    let late = state.work.touched().filter(|work| !filed[*work].lacks);
    let late = late.filter(|work| {
        let policy = ranks.rank(state, *work).map(|rank| ranks.keys[rank].policy);
        policy.is_some_and(|policy| policy != Policy::Reserve && lacks(state, *work, policy))
    });
    let mut fresh: Vec<ServeKey> = late
        .chain(reserve_work(state))
        .filter_map(|work| ranks.key(state, work))
        .collect();
    let here = &queues.lacking.keys;
    if fresh.is_empty() {
        return here.iter().map(|key| ranks.queued(*key)).collect();
    }
    sort(state, &mut fresh);
    let mut all = Vec::with_capacity(here.len() + fresh.len());
    merge(state, here.iter().copied(), &fresh, |key| {
        all.push(ranks.queued(key));
    });
    all
}

/// Returns all work of one tree, in serve order.
pub(crate) fn all_in_order(state: &RoundState, tree: PoolIx) -> Vec<QueuedWork> {
    let ranks = ClassRanks::new(state, tree);
    let all = state.work.indices();
    let mut queue: Vec<ServeKey> = all.filter_map(|work| ranks.key(state, work)).collect();
    sort(state, &mut queue);
    queue.into_iter().map(|key| ranks.queued(key)).collect()
}

impl RoundState<'_> {
    /// Returns all work that holds more than its entitlement.
    pub fn work_in_excess(&self) -> impl Iterator<Item = WorkIx> {
        let known = &self.derived.serve_order.excess;
        let written = self.work.touched();
        let all = known.iter();
        let all = all.chain(written.filter(|work| !known.contains(*work)));
        all.filter(|work| self.work[*work].excess() > 0)
    }
}

/// Returns whether each priority and policy of a tree occurs in one pool only. Within each of them,
/// serve order is then by age.
pub(crate) fn is_by_age(state: &RoundState, tree: PoolIx) -> bool {
    let keys = ClassRanks::new(state, tree).keys;
    let mut neighbours = keys.iter().zip(keys.iter().skip(1));
    neighbours.all(|(one, other)| (one.priority, one.policy) != (other.priority, other.policy))
}

pub(crate) fn reserve_work<'b>(state: &'b RoundState) -> impl Iterator<Item = WorkIx> + 'b {
    let reserve = state.classes.iter();
    let reserve = reserve.filter(|class_state| class_state.class.policy == Policy::Reserve);
    reserve.flat_map(ClassState::requests)
}
