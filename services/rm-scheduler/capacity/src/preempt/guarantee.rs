//! What each leaf is guaranteed, type by type: its own guarantee; or, where it has none, an equal
//! part of what is left of the nearest one above it, among the leaves that use it or ask for it
//! (10.6). So siblings below one guarantee that have none of their own can never take from each
//! other in turns for ever: who has less than its part is no victim, who has more does not ask.

use std::collections::BTreeMap;

use super::Wish;
use crate::{
    books::Books,
    dims::{Sparse, Vector},
};

pub(super) struct Guarantees {
    /// By queue: of leaves only.
    part: Vec<Sparse>,
    /// The queue the part is a part of, type by type.
    source: Vec<Vec<Option<usize>>>,
}

impl Guarantees {
    pub fn of(books: &Books) -> Self {
        let count = books.tree.spots.len();
        let none = vec![None; books.dims.len()];
        let mut all = Self {
            part: vec![none; count],
            source: vec![vec![None; books.dims.len()]; count],
        };
        let active = active(books);
        for dim in 1..books.dims.len() {
            all.divide(books, dim, &active);
        }
        all
    }

    fn divide(&mut self, books: &Books, dim: usize, active: &[bool]) {
        let spots = &books.tree.spots;
        let source = |from: usize| {
            let mut path = books.tree.path(from);
            path.find(|at| spots[*at].guaranteed[dim].is_some())
        };
        // What is left of each guarantee, and how many leaves share it.
        let mut left: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (at, spot) in spots.iter().enumerate() {
            if let Some(own) = spot.guaranteed[dim] {
                left.entry(at).or_default().0 += own;
                if let Some(above) = spot.parent.and_then(source) {
                    let rest = &mut left.entry(above).or_default().0;
                    *rest = rest.saturating_sub(own);
                }
            }
        }
        for leaf in books.tree.leaves().filter(|leaf| active[*leaf]) {
            if let Some(from) = source(leaf) {
                left.entry(from).or_default().1 += 1;
            }
        }
        for leaf in books.tree.leaves() {
            let Some(from) = source(leaf) else { continue };
            let (rest, sharing) = left[&from];
            self.source[leaf][dim] = Some(from);
            self.part[leaf][dim] = Some(if from == leaf {
                spots[leaf].guaranteed[dim].unwrap_or(0)
            } else {
                rest / sharing.max(1)
            });
        }
    }

    /// Laws 4 and 10.2: something is guaranteed for what is asked, and with it the leaf has no more
    /// than its part, nor the queue it is a part of more than is guaranteed.
    pub fn is_short(&self, books: &Books, leaf: usize, (ask, more): (&Vector, &Vector)) -> bool {
        let mut some = false;
        for dim in (1..ask.len()).filter(|dim| ask[*dim] > 0) {
            let (Some(part), Some(from)) = (self.part[leaf][dim], self.source[leaf][dim]) else {
                continue;
            };
            some = true;
            let with = |at: usize| net(books, at, dim) + ask[dim] + more[dim];
            let most = books.tree.spots[from].guaranteed[dim].unwrap_or(0);
            if with(leaf) > part || with(from) > most {
                return false;
            }
        }
        some
    }

    /// Law 5: it has more than its part of something that is asked for.
    pub fn may_lose(&self, books: &Books, leaf: usize, wish: &Wish) -> bool {
        let asked = (1..wish.vector.len()).filter(|dim| wish.vector[*dim] > 0);
        let mut over = asked.filter(|dim| {
            let net = net(books, leaf, *dim);
            net > self.part[leaf][*dim].unwrap_or(0) && !self.is_sheltered(books, leaf, wish, *dim)
        });
        over.next().is_some()
    }

    /// 10.6: both live off one guarantee above them, and it is not used up.
    fn is_sheltered(&self, books: &Books, leaf: usize, wish: &Wish, dim: usize) -> bool {
        let own = books.tree.spots[wish.leaf].guaranteed[dim].is_some();
        let from = self.source[leaf][dim].filter(|from| *from != leaf && !own);
        from.is_some_and(|from| {
            let most = books.tree.spots[from].guaranteed[dim].unwrap_or(0);
            books.tree.is_below(wish.leaf, from) && net(books, from, dim) <= most
        })
    }

    /// Law 2: without this much more, no queue of the victim falls below what it is guaranteed. Of
    /// queues above both, one gains what the other loses.
    pub fn allows(
        &self,
        books: &Books,
        wish: &Wish,
        (leaf, victim): (usize, &[u64]),
        freed: &BTreeMap<usize, Vector>,
    ) -> bool {
        let stays = |at: usize, dim: usize, least: Option<u64>| {
            let before = freed.get(&at).map_or(0, |freed| freed[dim]);
            let left = net(books, at, dim).saturating_sub(before);
            left.saturating_sub(victim[dim]) >= least.unwrap_or(0)
                || victim[dim] == 0
                || least.is_none()
        };
        let own = books.tree.path(leaf);
        let mut own = own.take_while(|at| !books.tree.is_below(wish.leaf, *at));
        let dims = 1..victim.len();
        dims.clone()
            .all(|dim| stays(leaf, dim, self.part[leaf][dim]))
            && own.all(|at| {
                let least = &books.tree.spots[at].guaranteed;
                dims.clone().all(|dim| stays(at, dim, least[dim]))
            })
    }
}

/// Held, without what leaves.
pub(super) fn net(books: &Books, at: usize, dim: usize) -> u64 {
    let spot = &books.tree.spots[at];
    spot.used[dim].saturating_sub(spot.going[dim])
}

/// Leaves that hold something or ask for something.
fn active(books: &Books) -> Vec<bool> {
    let mut active: Vec<bool> = books.tree.spots.iter().map(|it| it.running > 0).collect();
    for (at, ask) in books.asks.iter().enumerate() {
        if let Some(queue) = books.queue_of(at).filter(|_| ask.wanted > 0) {
            active[queue] = true;
        }
    }
    active
}
