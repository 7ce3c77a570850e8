//! Work that could use idle room, lane by lane in one order. A lane that finds no room any more is
//! left, however long it is.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use hayward_vocabulary::WorkId;

use crate::{
    placement::serve_order::{
        ALONE, ClassRanks, QueueKey, ServeKey, ServeOrder, ServeQueue, borrows, order, sort,
    },
    state::RoundState,
};

/// Opened for one walk; while it lasts the books have no queue.
pub(crate) struct LendingCandidates<'a> {
    queue: ServeOrder,
    tree: usize,
    /// Who came to be able to use more in this round, by lane and in order.
    late: BTreeMap<QueueKey, Vec<ServeKey>>,
    /// The next of each lane.
    heads: BinaryHeap<Reverse<Head<'a>>>,
}

/// A turn, where it stands, and whose it is. It stands in a lane, among the late or not.
type Head<'a> = (
    (i128, Reverse<u64>, &'a WorkId),
    (QueueKey, bool, usize),
    usize,
);

pub(crate) fn borrowing<'a>(state: &mut RoundState<'a>, tree: usize) -> LendingCandidates<'a> {
    let queue = std::mem::take(&mut state.derived.serve_order);
    let ranks = ClassRanks::of(state, tree);
    let is_here = |at: usize| queue.entries[at].lending_queue.is_some();
    let mut late: BTreeMap<QueueKey, Vec<ServeKey>> = BTreeMap::new();
    for at in state.work.touched_rows().filter(|at| !is_here(*at)) {
        let key = |rank: usize| borrows(state, at, ranks.keys[rank].1);
        if let Some(key) = ranks.rank(state, at).and_then(key) {
            late.entry(key).or_default().extend(ranks.key(state, at));
        }
    }
    for lane in late.values_mut() {
        sort(state, lane);
    }
    let mut borrowing = LendingCandidates {
        queue,
        tree,
        late,
        heads: BinaryHeap::new(),
    };
    let keys: Vec<QueueKey> = borrowing.lanes().keys().copied().collect();
    let late: Vec<QueueKey> = borrowing.late.keys().copied().collect();
    for key in keys {
        borrowing.enter(state, (key, false, 0));
    }
    for key in late {
        borrowing.enter(state, (key, true, 0));
    }
    borrowing
}

impl<'a> LendingCandidates<'a> {
    fn lanes(&self) -> &BTreeMap<QueueKey, ServeQueue> {
        static NONE: BTreeMap<QueueKey, ServeQueue> = BTreeMap::new();
        let queues = self.queue.by_tree.get(&self.tree);
        queues.map_or(&NONE, |queues| &queues.by_shape)
    }

    fn head(&self, state: &RoundState<'a>, place: (QueueKey, bool, usize)) -> Option<Head<'a>> {
        let (key, is_late, at) = place;
        let queue = if is_late {
            self.late.get(&key)
        } else {
            self.lanes().get(&key).map(|lane| &lane.keys)
        };
        let turn = *queue?.get(at)?;
        let key = (turn.age(), order(state, turn.work()), state.id(turn.work()));
        Some((key, place, turn.work()))
    }

    fn enter(&mut self, state: &RoundState<'a>, place: (QueueKey, bool, usize)) {
        let head = self.head(state, place);
        self.heads.extend(head.map(Reverse));
    }

    /// The next in turn. Where `is_in_vain` says that one of its lane finds nothing, none of that
    /// lane comes any more.
    pub fn next(
        &mut self,
        state: &RoundState<'a>,
        is_in_vain: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        loop {
            let Reverse((_, (key, is_late, place), at)) = *self.heads.peek()?;
            if key != ALONE && is_in_vain(at) {
                self.heads.pop();
                continue;
            }
            // The next of a lane takes the place of the one before it.
            match self.head(state, (key, is_late, place + 1)) {
                Some(next) => *self.heads.peek_mut()? = Reverse(next),
                None => {
                    self.heads.pop();
                }
            }
            return Some(at);
        }
    }

    pub fn close(self, state: &mut RoundState<'a>) {
        state.derived.serve_order = self.queue;
    }
}
