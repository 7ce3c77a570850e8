//! Work that could use idle room, lane by lane in one order. A lane that finds no room any more is
//! left, however long it is.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use hayward_vocabulary::WorkId;

use crate::{
    placement::serve_order::{ALONE, Key, Lane, Queue, Ranks, Turn, borrows, order, sort},
    state::Books,
};

/// Opened for one walk; while it lasts the books have no queue.
pub(crate) struct Borrowing<'a> {
    queue: Queue,
    tree: usize,
    /// Who came to be able to use more in this round, by lane and in order.
    late: BTreeMap<Key, Vec<Turn>>,
    /// The next of each lane.
    heads: BinaryHeap<Reverse<Head<'a>>>,
}

/// A turn, where it stands, and whose it is. It stands in a lane, among the late or not.
type Head<'a> = ((i128, Reverse<u64>, &'a WorkId), (Key, bool, usize), usize);

pub(crate) fn borrowing<'a>(books: &mut Books<'a>, tree: usize) -> Borrowing<'a> {
    let queue = std::mem::take(&mut books.sets.queue);
    let ranks = Ranks::of(books, tree);
    let is_here = |at: usize| queue.filed[at].borrows.is_some();
    let mut late: BTreeMap<Key, Vec<Turn>> = BTreeMap::new();
    for at in books.requests.written().filter(|at| !is_here(*at)) {
        let key = |rank: usize| borrows(books, at, ranks.keys[rank].1);
        if let Some(key) = ranks.rank(books, at).and_then(key) {
            late.entry(key).or_default().extend(ranks.turn(books, at));
        }
    }
    for lane in late.values_mut() {
        sort(books, lane);
    }
    let mut borrowing = Borrowing {
        queue,
        tree,
        late,
        heads: BinaryHeap::new(),
    };
    let keys: Vec<Key> = borrowing.lanes().keys().copied().collect();
    let late: Vec<Key> = borrowing.late.keys().copied().collect();
    for key in keys {
        borrowing.enter(books, (key, false, 0));
    }
    for key in late {
        borrowing.enter(books, (key, true, 0));
    }
    borrowing
}

impl<'a> Borrowing<'a> {
    fn lanes(&self) -> &BTreeMap<Key, Lane> {
        static NONE: BTreeMap<Key, Lane> = BTreeMap::new();
        let line = self.queue.by_tree.get(&self.tree);
        line.map_or(&NONE, |line| &line.borrowing)
    }

    fn head(&self, books: &Books<'a>, place: (Key, bool, usize)) -> Option<Head<'a>> {
        let (key, is_late, at) = place;
        let turns = if is_late {
            self.late.get(&key)
        } else {
            self.lanes().get(&key).map(|lane| &lane.turns)
        };
        let turn = *turns?.get(at)?;
        let key = (turn.age(), order(books, turn.at()), books.id(turn.at()));
        Some((key, place, turn.at()))
    }

    fn enter(&mut self, books: &Books<'a>, place: (Key, bool, usize)) {
        let head = self.head(books, place);
        self.heads.extend(head.map(Reverse));
    }

    /// The next in turn. Where `is_in_vain` says that one of its lane finds nothing, none of that
    /// lane comes any more.
    pub fn next(&mut self, books: &Books<'a>, is_in_vain: impl Fn(usize) -> bool) -> Option<usize> {
        loop {
            let Reverse((_, (key, is_late, place), at)) = *self.heads.peek()?;
            if key != ALONE && is_in_vain(at) {
                self.heads.pop();
                continue;
            }
            // The next of a lane takes the place of the one before it.
            match self.head(books, (key, is_late, place + 1)) {
                Some(next) => *self.heads.peek_mut()? = Reverse(next),
                None => {
                    self.heads.pop();
                }
            }
            return Some(at);
        }
    }

    pub fn close(self, books: &mut Books<'a>) {
        books.sets.queue = self.queue;
    }
}
