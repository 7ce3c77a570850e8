//! What each leaf is guaranteed, type by type: its own guarantee; or, where it has none, an equal
//! part of what is left of the nearest one above it, among the leaves that use it or ask for it
//! (10.6). So siblings below one guarantee that have none of their own can never take from each
//! other in turns for ever: who has less than its part is no victim, who has more does not ask.

use std::collections::BTreeMap;

use super::Wish;
use crate::{
    resource_vec::{Sparse, Vector},
    round_state::Books,
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
    /// than its part. What others leave for counts as if it were held.
    pub fn is_short(&self, books: &Books, leaf: usize, ask: &Vector) -> bool {
        let cleared = books.cleared_at(leaf);
        let asked = (1..ask.len()).filter(|dim| ask[*dim] > 0);
        let parts = asked.filter_map(|dim| Some((dim, self.part[leaf][dim]?)));
        let mut parts = parts.peekable();
        let with = |dim: usize| net(books, leaf, dim) + ask[dim] + cleared[dim];
        parts.peek().is_some() && parts.all(|(dim, part)| with(dim) <= part)
    }

    /// With it this queue has more than it is guaranteed, of which the leaf has a part: what the
    /// leaf is due is held by others below the same queue.
    pub fn is_used_up(&self, books: &Books, (leaf, at): (usize, usize), ask: &Vector) -> bool {
        let cleared = books.cleared_at(at);
        let mut shared = (1..ask.len())
            .filter(|dim| leaf != at && ask[*dim] > 0 && self.source[leaf][*dim] == Some(at));
        shared.any(|dim| {
            let most = books.tree.spots[at].guaranteed[dim].unwrap_or(0);
            net(books, at, dim) + ask[dim] + cleared[dim] > most
        })
    }

    /// Law 5: it has more of something that is asked for than this wish has to leave it.
    pub fn may_lose(&self, books: &Books, leaf: usize, wish: &Wish) -> bool {
        let mut asked = (1..wish.vector.len()).filter(|dim| wish.vector[*dim] > 0);
        asked.any(|dim| {
            let least = self.least(books, leaf, (wish, dim)).unwrap_or(0);
            net(books, leaf, dim) > least && !self.is_sheltered(leaf, (wish, dim))
        })
    }

    /// 10.6: both live off one guarantee above them, and it is asked for.
    fn is_sheltered(&self, leaf: usize, (wish, dim): (&Wish, usize)) -> bool {
        let from = self.source[leaf][dim].filter(|from| *from != leaf);
        from.is_some() && from == self.source[wish.leaf][dim] && wish.vector[dim] > 0
    }

    /// What this wish has to leave it. A part of what is guaranteed above both does not count where
    /// the wish is due a guarantee that is nearer to it (10.6).
    fn least(&self, books: &Books, leaf: usize, (wish, dim): (&Wish, usize)) -> Option<u64> {
        let from = self.source[leaf][dim]?;
        let nearer = self.source[wish.leaf][dim].filter(|own| *own != from);
        let gives_way = from != leaf && nearer.is_some_and(|own| books.tree.is_below(own, from));
        self.part[leaf][dim].filter(|_| !gives_way)
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
        let sheltered = |dim: usize| victim[dim] > 0 && self.is_sheltered(leaf, (wish, dim));
        let own = books.tree.path(leaf);
        let mut own = own.take_while(|at| !books.tree.is_below(wish.leaf, *at));
        let dims = 1..victim.len();
        dims.clone()
            .all(|dim| !sheltered(dim) && stays(leaf, dim, self.least(books, leaf, (wish, dim))))
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
