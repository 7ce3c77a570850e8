//! Order in which work is served: by priority, then policy, then child pools before their parents,
//! then the oldest first.
//!
//! Only work that a round can change is queued: it misses processes, holds too many, or could
//! borrow idle space beyond its entitlement. The queues are retained between rounds.

mod queue;

use std::{cmp::Reverse, collections::BTreeMap};

use super::{ClassState, RoundState};
use crate::{
    collections::bit_set::BitSet,
    ids::{ClassIx, PoolIx, ShapeIx, TypedVec, WorkIx},
    input::snapshot::Policy,
};

pub(crate) use queue::ServeQueue;

/// Queues of all trees after the entitlement step. RESERVE work is not queued, because its quanta
/// may be those of the node that is cleared for it.
#[derive(Default)]
pub(crate) struct ServeOrder {
    pub by_tree: BTreeMap<PoolIx, TreeQueues>,
    /// Position of each piece of work in the queues.
    pub entries: TypedVec<WorkIx, QueueEntry>,
    /// Work that holds more than its entitlement.
    excess: BitSet<WorkIx>,
    /// Dirty work that no tree has queued in this round.
    unqueued: Vec<WorkIx>,
    /// Number of dirty rows already read in this round.
    read_count: usize,
}

/// Queues of one tree.
#[derive(Default)]
pub(crate) struct TreeQueues {
    /// Work that misses processes or holds too many.
    to_serve: ServeQueue,
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
    /// True if the work is in [`TreeQueues::to_serve`].
    needs_serving: bool,
    /// True if the work is in [`ServeOrder::excess`].
    exceeds: bool,
    /// True if the work is unchanged, so that `key` is still valid.
    is_current: bool,
}

impl QueueEntry {
    /// Returns true if the work keeps its position in each queue that still contains it.
    fn keeps_position(&self, now: &Self) -> bool {
        self.is_current && (self.tree, self.key) == (now.tree, now.key)
    }
}

/// Sort key: rank of the class, then age. Ties are broken by quanta, larger first, then by id. Both
/// are read from the work, because ties are rare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServeKey {
    /// Time of submission in milliseconds since the epoch.
    submitted_ms: i64,
    class_rank: u32,
    work: WorkIx,
}

impl ServeKey {
    pub fn work(self) -> WorkIx {
        self.work
    }

    /// Returns the rank of the class and the time of submission as one number.
    pub fn rank_and_time(&self) -> i128 {
        (i128::from(self.class_rank) << 64) + i128::from(self.submitted_ms)
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
            submitted_ms: state.work_record(work).submitted_at.unix_ms(),
            work,
        })
    }

    pub fn to_queued_work(&self, key: ServeKey) -> QueuedWork {
        QueuedWork {
            policy: self.keys[key.class_rank as usize].policy,
            work: key.work(),
        }
    }
}

/// Sorts by rank and age, then breaks ties. A stable sort is fast, because the keys come in sorted
/// runs.
pub(crate) fn sort(state: &RoundState, queue: &mut [ServeKey]) {
    queue.sort_by_key(ServeKey::rank_and_time);
    for same in queue.chunk_by_mut(|one, other| one.rank_and_time() == other.rank_and_time()) {
        if same.len() > 1 {
            same.sort_unstable_by(|a, b| compare(state, a, b));
        }
    }
}

/// Compares two keys by serve order.
fn compare(state: &RoundState, a: &ServeKey, b: &ServeKey) -> std::cmp::Ordering {
    let tie_breaker = |key: &ServeKey| (quanta_rank(state, key.work()), state.id(key.work()));
    a.rank_and_time()
        .cmp(&b.rank_and_time())
        .then_with(|| tie_breaker(a).cmp(&tie_breaker(b)))
}

/// Returns the quanta of one process as a sort key, larger first. RESERVE work has the quanta of
/// the node cleared for it.
pub(crate) fn quanta_rank(state: &RoundState, work: WorkIx) -> Reverse<u64> {
    Reverse(match state.policy(work) {
        Some(Policy::Reserve) => state.work[work].process_quanta,
        _ => state.work_record(work).process_quanta,
    })
}

/// Merges two sorted sequences. Calls `emit` with each key in order.
fn merge(
    state: &RoundState,
    old: impl Iterator<Item = ServeKey>,
    added: &[ServeKey],
    mut emit: impl FnMut(ServeKey),
) {
    let mut old = old.peekable();
    for key in added {
        let is_before = |other: &ServeKey| compare(state, other, key).is_lt();
        while let Some(before) = old.next_if(is_before) {
            emit(before);
        }
        emit(*key);
    }
    old.for_each(emit);
}

/// Returns true if the work misses processes, holds more than it may, or has no process.
fn needs_serving(state: &RoundState, work: WorkIx, policy: Policy) -> bool {
    let work_state = &state.work[work];
    let limit = match policy {
        Policy::FairShare => work_state.cap.before_space,
        _ => work_state.entitlement,
    };
    let shrinks = !state.settings.evict_for_somebody && work_state.excess() > 0;
    work_state.process_count() == 0
        || work_state.missing() > 0
        || work_state.current > limit
        || shrinks
}

/// Returns the lending queue of the work, or `None` if it can use no more processes.
pub(crate) fn lending_queue_key(
    state: &RoundState,
    work: WorkIx,
    policy: Policy,
) -> Option<QueueKey> {
    let work_state = &state.work[work];
    let can_borrow =
        policy == Policy::FairShare && work_state.process_count() < work_state.cap.lent;
    can_borrow.then_some(if work_state.has_node_list {
        QueueKey::NodeList
    } else {
        QueueKey::Shape(work_state.shape)
    })
}

/// Updates the queues of a tree after the entitlement step.
pub(crate) fn refresh_queues(state: &mut RoundState, tree: PoolIx) {
    let mut serve_order = std::mem::take(&mut state.derived.serve_order);
    let ranks = ClassRanks::new(state, tree);
    serve_order.by_tree.entry(tree).or_default();
    serve_order
        .entries
        .resize(state.work.len(), QueueEntry::default());
    // The first tree of a round does this once for all trees.
    if state.forest.roots().first() == Some(&tree) {
        for work in &state.index.touched {
            serve_order.entries[*work].is_current = false;
        }
        serve_order.unqueued.clear();
        serve_order.read_count = 0;
    }
    serve_order.queue_dirty_work(state, &ranks);
    if let Some(queues) = serve_order.by_tree.get_mut(&tree) {
        queues.to_serve.apply_changes(state);
        queues.by_shape.retain(|_, queue| {
            queue.apply_changes(state);
            !queue.keys.is_empty()
        });
        #[cfg(test)]
        {
            let rebuilt = |work: WorkIx| QueueEntry::default().updated(state, work, &ranks);
            queues.assert_matches_rebuild(state, state.work.indices().filter_map(rebuilt));
        }
    }
    state.derived.serve_order = serve_order;
}

impl QueueEntry {
    /// Returns the new entry of a piece of work, or `None` if it belongs to another tree or a
    /// RESERVE class.
    fn updated(&self, state: &RoundState, work: WorkIx, ranks: &ClassRanks) -> Option<Self> {
        let policy = ranks.keys[ranks.rank(state, work)?].policy;
        if policy == Policy::Reserve {
            return None;
        }
        let key = if self.is_current && self.tree == Some(ranks.tree) {
            self.key
        } else {
            Some(ranks.key(state, work)?)
        };
        let lends_idle = state.settings.lend_idle;
        Some(Self {
            key,
            tree: Some(ranks.tree),
            lending_queue: lending_queue_key(state, work, policy).filter(|_| lends_idle),
            needs_serving: needs_serving(state, work, policy),
            exceeds: self.exceeds,
            is_current: true,
        })
    }
}

#[cfg(test)]
impl TreeQueues {
    /// Asserts that the queues equal those built from scratch.
    fn assert_matches_rebuild(&self, state: &RoundState, all: impl Iterator<Item = QueueEntry>) {
        let (mut to_serve, mut borrowing) =
            (Vec::new(), BTreeMap::<QueueKey, Vec<ServeKey>>::new());
        for entry in all {
            to_serve.extend(entry.key.filter(|_| entry.needs_serving));
            if let Some(key) = entry.lending_queue {
                borrowing.entry(key).or_default().extend(entry.key);
            }
        }
        sort(state, &mut to_serve);
        assert!(self.to_serve.keys == to_serve, "work that misses processes");
        assert!(self.by_shape.keys().eq(borrowing.keys()), "shapes");
        for (key, mut queue) in borrowing {
            sort(state, &mut queue);
            assert!(self.by_shape[&key].keys == queue, "work that could borrow");
        }
    }
}

impl ServeOrder {
    /// Queues the dirty work of this tree. Other dirty work stays in `unqueued` for the other
    /// trees.
    fn queue_dirty_work(&mut self, state: &RoundState, ranks: &ClassRanks) {
        let unqueued = std::mem::take(&mut self.unqueued);
        let dirty = state.work.dirty().skip(self.read_count);
        for work in unqueued.into_iter().chain(dirty) {
            self.refresh_entry(state, work, ranks);
        }
        self.read_count = state.work.dirty().count();
    }

    /// Updates the entry of a piece of work, and its queues if the entry changed.
    fn refresh_entry(&mut self, state: &RoundState, work: WorkIx, ranks: &ClassRanks) {
        let before = &mut self.entries[work];
        let exceeds = state.work[work].excess() > 0;
        if before.exceeds != exceeds {
            before.exceeds = exceeds;
            self.excess.set(work, exceeds);
        }
        let before = *before;
        let now = before.updated(state, work, ranks);
        if now.is_none() {
            self.unqueued.push(work);
            if before.tree != Some(ranks.tree) {
                return;
            }
        }
        let in_no_queue = QueueEntry {
            exceeds,
            ..QueueEntry::default()
        };
        let now = now.unwrap_or(in_no_queue);
        if now != before {
            self.update_queues(work, now);
        }
    }

    /// Records the removals and insertions for a piece of work whose entry changed. Its old queues
    /// may belong to another tree.
    fn update_queues(&mut self, work: WorkIx, now: QueueEntry) {
        let before = std::mem::replace(&mut self.entries[work], now);
        let keeps_position = before.keeps_position(&now);
        let queues_before = before.tree.and_then(|tree| self.by_tree.get_mut(&tree));
        if let Some(queues) = queues_before {
            if before.needs_serving && !(keeps_position && now.needs_serving) {
                queues.to_serve.removed.extend(before.key);
            }
            let key = before
                .lending_queue
                .filter(|_| !keeps_position || before.lending_queue != now.lending_queue);
            if let Some(queue) = key.and_then(|key| queues.by_shape.get_mut(&key)) {
                queue.removed.extend(before.key);
            }
        }
        let Some(queues) = now.tree.and_then(|tree| self.by_tree.get_mut(&tree)) else {
            return;
        };
        if now.needs_serving && !(keeps_position && before.needs_serving) {
            queues.to_serve.added.extend(now.key);
        }
        let key = now
            .lending_queue
            .filter(|_| !keeps_position || before.lending_queue != now.lending_queue);
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

/// Returns, in serve order, the work of one tree that misses processes or holds too many, and all
/// work of its RESERVE classes.
pub(crate) fn to_serve_in_order(state: &RoundState, tree: PoolIx) -> Vec<QueuedWork> {
    let ranks = ClassRanks::new(state, tree);
    let Some(queues) = state.derived.serve_order.by_tree.get(&tree) else {
        return Vec::new();
    };
    // Work that began to miss processes within this round.
    let entries = &state.derived.serve_order.entries;
    let newly_unserved = state
        .work
        .touched()
        .filter(|work| !entries[*work].needs_serving);
    let newly_unserved = newly_unserved.filter(|work| {
        let policy = ranks.rank(state, *work).map(|rank| ranks.keys[rank].policy);
        policy
            .is_some_and(|policy| policy != Policy::Reserve && needs_serving(state, *work, policy))
    });
    let mut added: Vec<ServeKey> = newly_unserved
        .chain(reserve_work(state))
        .filter_map(|work| ranks.key(state, work))
        .collect();
    let queued_keys = &queues.to_serve.keys;
    if added.is_empty() {
        return queued_keys
            .iter()
            .map(|key| ranks.to_queued_work(*key))
            .collect();
    }
    sort(state, &mut added);
    let mut all = Vec::with_capacity(queued_keys.len() + added.len());
    merge(state, queued_keys.iter().copied(), &added, |key| {
        all.push(ranks.to_queued_work(key));
    });
    all
}

/// Returns all work of one tree, in serve order.
pub(crate) fn all_in_order(state: &RoundState, tree: PoolIx) -> Vec<QueuedWork> {
    let ranks = ClassRanks::new(state, tree);
    let all = state.work.indices();
    let mut queue: Vec<ServeKey> = all.filter_map(|work| ranks.key(state, work)).collect();
    sort(state, &mut queue);
    queue
        .into_iter()
        .map(|key| ranks.to_queued_work(key))
        .collect()
}

impl RoundState<'_> {
    /// Returns all work that holds more than its entitlement.
    pub fn work_in_excess(&self) -> impl Iterator<Item = WorkIx> {
        let recorded = &self.derived.serve_order.excess;
        let written = self.work.touched();
        let unrecorded = written.filter(|work| !recorded.contains(*work));
        let candidates = recorded.iter().chain(unrecorded);
        candidates.filter(|work| self.work[*work].excess() > 0)
    }
}

/// Returns true if each pair of priority and policy occurs in one pool only. Within each pair,
/// serve order is then by age.
pub(crate) fn is_ordered_by_age(state: &RoundState, tree: PoolIx) -> bool {
    let keys = ClassRanks::new(state, tree).keys;
    let mut adjacent_keys = keys.iter().zip(keys.iter().skip(1));
    adjacent_keys.all(|(one, other)| (one.priority, one.policy) != (other.priority, other.policy))
}

/// Returns the work of all RESERVE classes.
pub(crate) fn reserve_work<'b>(state: &'b RoundState) -> impl Iterator<Item = WorkIx> + 'b {
    let classes = state.classes.iter();
    let classes = classes.filter(|class_state| class_state.class.policy == Policy::Reserve);
    classes.flat_map(ClassState::work)
}
