//! Work that could use idle space. There is one queue for each shape, and the queues are merged in
//! serve order. The queue of a shape that fits no node is dropped at once, however long it is.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use hayward_vocabulary::WorkId;

use crate::ids::{PoolIx, WorkIx};
use crate::state::{
    RoundState,
    serve_order::{
        ClassRanks, QueueKey, ServeKey, ServeOrder, ServeQueue, lending_queue_key, quanta_rank,
        sort,
    },
};

/// Lending queues of one tree, for one pass. During the pass, `state.derived.serve_order` is empty.
pub(crate) struct LendingCandidates<'a> {
    serve_order: ServeOrder,
    tree: PoolIx,
    /// Work that became able to use more space within this round, by queue, in serve order.
    late: BTreeMap<QueueKey, Vec<ServeKey>>,
    /// The next work of each queue.
    heads: BinaryHeap<Reverse<Head<'a>>>,
}

/// Position of one piece of work in the queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    queue: QueueKey,
    /// True if the queue is in [`LendingCandidates::late`].
    is_late: bool,
    index: usize,
}

impl Position {
    fn first(queue: QueueKey, is_late: bool) -> Self {
        Self {
            queue,
            is_late,
            index: 0,
        }
    }
}

/// Work at the head of a queue. The first three fields are its serve order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head<'a> {
    rank_and_time: i128,
    quanta_rank: Reverse<u64>,
    id: &'a WorkId,
    position: Position,
    work: WorkIx,
}

/// Takes the lending queues of a tree out of the state. [`LendingCandidates::close`] puts them
/// back.
pub(crate) fn collect_candidates<'a>(
    state: &mut RoundState<'a>,
    tree: PoolIx,
) -> LendingCandidates<'a> {
    let serve_order = std::mem::take(&mut state.derived.serve_order);
    let ranks = ClassRanks::new(state, tree);
    let is_queued = |work: WorkIx| serve_order.entries[work].lending_queue.is_some();
    let mut late: BTreeMap<QueueKey, Vec<ServeKey>> = BTreeMap::new();
    for work in state.work.touched().filter(|work| !is_queued(*work)) {
        let key = |rank: usize| lending_queue_key(state, work, ranks.keys[rank].policy);
        if let Some(key) = ranks.rank(state, work).and_then(key) {
            late.entry(key).or_default().extend(ranks.key(state, work));
        }
    }
    for queue in late.values_mut() {
        sort(state, queue);
    }
    let mut candidates = LendingCandidates {
        serve_order,
        tree,
        late,
        heads: BinaryHeap::new(),
    };
    let keys: Vec<QueueKey> = candidates.queues().keys().copied().collect();
    let late: Vec<QueueKey> = candidates.late.keys().copied().collect();
    for queue in keys {
        candidates.push_head(state, Position::first(queue, false));
    }
    for queue in late {
        candidates.push_head(state, Position::first(queue, true));
    }
    candidates
}

impl<'a> LendingCandidates<'a> {
    fn queues(&self) -> &BTreeMap<QueueKey, ServeQueue> {
        static EMPTY: BTreeMap<QueueKey, ServeQueue> = BTreeMap::new();
        let queues = self.serve_order.by_tree.get(&self.tree);
        queues.map_or(&EMPTY, |queues| &queues.by_shape)
    }

    fn head(&self, state: &RoundState<'a>, position: Position) -> Option<Head<'a>> {
        let queue = if position.is_late {
            self.late.get(&position.queue)
        } else {
            let queue = self.queues().get(&position.queue);
            queue.map(|queue| &queue.keys)
        };
        let serve_key = *queue?.get(position.index)?;
        let work = serve_key.work();
        Some(Head {
            rank_and_time: serve_key.rank_and_time(),
            quanta_rank: quanta_rank(state, work),
            id: state.id(work),
            position,
            work,
        })
    }

    fn push_head(&mut self, state: &RoundState<'a>, position: Position) {
        let head = self.head(state, position);
        self.heads.extend(head.map(Reverse));
    }

    /// Returns the next work in serve order. If `is_exhausted` holds for the head of a queue, the
    /// whole queue is dropped.
    pub fn next(
        &mut self,
        state: &RoundState<'a>,
        is_exhausted: impl Fn(WorkIx) -> bool,
    ) -> Option<WorkIx> {
        loop {
            let Reverse(Head { position, work, .. }) = *self.heads.peek()?;
            if position.queue != QueueKey::NodeList && is_exhausted(work) {
                self.heads.pop();
                continue;
            }
            // The next work of this queue replaces its head.
            let next_position = Position {
                index: position.index + 1,
                ..position
            };
            match self.head(state, next_position) {
                Some(next) => *self.heads.peek_mut()? = Reverse(next),
                None => {
                    self.heads.pop();
                }
            }
            return Some(work);
        }
    }

    /// Puts the serve order back into the state.
    pub fn close(self, state: &mut RoundState<'a>) {
        state.derived.serve_order = self.serve_order;
    }
}
