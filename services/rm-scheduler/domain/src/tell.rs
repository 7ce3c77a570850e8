//! What a round says: of work that waits always anew, of the rest only what became different.

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;

use crate::{
    books::Books,
    plan::{ShareNews, Shares, Verdict},
    shares, verdict,
};

/// Below this much work a second thread costs more than it saves.
const WORTH_A_THREAD: usize = 10_000;

/// What was said last.
pub(crate) struct Known<'k> {
    /// By the number of the work.
    pub said: &'k mut Vec<Option<verdict::Basis>>,
    pub verdicts: &'k mut BTreeMap<WorkId, Verdict>,
    pub shares: &'k mut Shares,
}

impl Known<'_> {
    /// The verdicts that differ, and how shares do. Where nothing was known, all is new and nothing
    /// differs.
    pub fn tell(self, books: &Books) -> (BTreeMap<WorkId, Verdict>, Option<ShareNews>) {
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
        let mut moved = Vec::new();
        for at in register.by_id.iter().copied() {
            let now = verdict::basis(books, at);
            if now.is_none() || now != self.said[at] {
                self.said[at] = now;
                moved.push(at);
            }
        }
        let mut changed = BTreeMap::new();
        for (at, verdict) in moved.iter().zip(verdict::on(books, &moved)) {
            let id = books.requests[*at].id;
            if self.verdicts.get(id) != Some(&verdict) {
                self.verdicts.insert(id.clone(), verdict.clone());
                changed.insert(id.clone(), verdict);
            }
        }
        let news = shares::news(books, self.shares, &moved);
        self.shares.absorb(news.clone());
        (changed, Some(news))
    }

    /// Verdicts and shares are read off the same books and know nothing of each other, so each has
    /// a thread of its own.
    fn tell_all(self, books: &Books) {
        let all = &books.register.by_id;
        let verdicts = || {
            let ids = all.iter().map(|at| books.requests[*at].id.clone());
            ids.zip(verdict::on(books, all)).collect()
        };
        let tell_shares = || {
            let said = (0..books.requests.len()).map(|at| verdict::basis(books, at));
            (said.collect(), shares::of(books))
        };
        if all.len() < WORTH_A_THREAD {
            *self.verdicts = verdicts();
            (*self.said, *self.shares) = tell_shares();
            return;
        }
        std::thread::scope(|threads| {
            let beside = threads.spawn(tell_shares);
            *self.verdicts = verdicts();
            match beside.join() {
                Ok(told) => (*self.said, *self.shares) = told,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
    }
}
