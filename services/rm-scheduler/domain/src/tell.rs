//! What a round says: of work that waits always anew, of the rest only what became different.

use std::collections::{BTreeMap, btree_map::Entry};

use hayward_vocabulary::WorkId;

use crate::{
    books::Books,
    marks::Marks,
    plan::{ShareNews, Shares, Verdict},
    shares, verdict,
};

/// Below this much work a second thread costs more than it saves.
const WORTH_A_THREAD: usize = 10_000;

/// What was said last.
pub(crate) struct Known<'k> {
    /// By the number of the work.
    pub said: &'k mut Vec<Option<verdict::Basis>>,
    /// Work of which something is said in every round, by id.
    pub unsettled: &'k mut Vec<usize>,
    pub pools: &'k mut shares::Pools,
    pub verdicts: &'k mut BTreeMap<WorkId, Verdict>,
    pub shares: &'k mut Shares,
}

impl Known<'_> {
    /// The verdicts that differ, and how shares do. Where nothing was known, all is new and nothing
    /// differs.
    pub fn tell(mut self, books: &Books) -> (BTreeMap<WorkId, Verdict>, Option<ShareNews>) {
        let register = books.register;
        if register.anew {
            self.tell_all(books);
            return (BTreeMap::new(), None);
        }
        self.said.resize(books.requests.len(), None);
        for at in register.touched.iter().chain(&register.refreshed) {
            self.said[*at] = None;
        }
        for id in &register.withdrawn {
            self.verdicts.remove(id);
        }
        let moved = self.moved(books);
        let mut changed = Vec::new();
        for (at, verdict) in moved.iter().zip(verdict::on(books, moved.iter().copied())) {
            let id = books.id(*at).clone();
            match self.verdicts.entry(id.clone()) {
                Entry::Occupied(known) if *known.get() == verdict => continue,
                Entry::Occupied(mut known) => drop(known.insert(verdict.clone())),
                Entry::Vacant(place) => {
                    place.insert(verdict.clone());
                }
            }
            changed.push((id, verdict));
        }
        let news = shares::news(books, self.pools, self.shares, &moved);
        self.shares.absorb(news.clone());
        *self.unsettled = moved;
        self.unsettled.retain(|at| self.said[*at].is_none());
        (changed.into_iter().collect(), Some(news))
    }

    /// Live work of which something else is to be said, by id: who waits, and who is stirred and
    /// rests on something else than before.
    fn moved(&mut self, books: &Books) -> Vec<usize> {
        let mut known = Marks::default();
        known.extend(books.register.touched.iter().copied());
        self.unsettled.retain(|at| !known.contains(*at));
        known.clear();
        for at in self.unsettled.iter().copied() {
            known.insert(at);
            self.said[at] = verdict::basis(books, at);
        }
        let mut fresh = Vec::new();
        let stirred = books.requests.stirred();
        for at in stirred.filter(|at| !known.contains(*at) && books.register.is_live(*at)) {
            let now = verdict::basis(books, at);
            if now.is_none() || now != self.said[at] {
                self.said[at] = now;
                fresh.push(at);
            }
        }
        fresh.sort_unstable_by(|a, b| books.id(*a).cmp(books.id(*b)));
        let mut all = Vec::with_capacity(self.unsettled.len() + fresh.len());
        let mut rest = self.unsettled.drain(..).peekable();
        for at in fresh {
            while let Some(before) = rest.next_if(|other| books.id(*other) < books.id(at)) {
                all.push(before);
            }
            all.push(at);
        }
        all.extend(rest);
        all
    }

    /// Verdicts and shares are read off the same books and know nothing of each other, so each has
    /// a thread of its own.
    fn tell_all(self, books: &Books) {
        // Read anew, work is numbered by id.
        let all = 0..books.requests.len();
        let verdicts = || {
            let ids = all.clone().map(|at| books.id(at).clone());
            ids.zip(verdict::on(books, all.clone())).collect()
        };
        let pools = self.pools;
        let mut tell_shares = || {
            let said = all.clone().map(|at| verdict::basis(books, at));
            (said.collect(), shares::of(books, pools))
        };
        if all.len() < WORTH_A_THREAD {
            *self.verdicts = verdicts();
            (*self.said, *self.shares) = tell_shares();
        } else {
            std::thread::scope(|threads| {
                let beside = threads.spawn(tell_shares);
                *self.verdicts = verdicts();
                match beside.join() {
                    Ok(told) => (*self.said, *self.shares) = told,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            });
        }
        let unsettled = all.filter(|at| self.said[*at].is_none());
        *self.unsettled = unsettled.collect();
    }
}
