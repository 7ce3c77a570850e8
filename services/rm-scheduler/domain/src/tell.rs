//! What a round says: of work that waits always anew, of the rest only what became different.

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;

use crate::{
    books::Books,
    plan::{ShareNews, Shares, Verdict},
    shares, verdict,
};

/// What was said last.
pub(crate) struct Known<'k> {
    /// By the number of the work.
    pub said: &'k mut Vec<Option<verdict::Said>>,
    pub verdicts: &'k mut BTreeMap<WorkId, Verdict>,
    pub shares: &'k mut Shares,
}

impl Known<'_> {
    /// The verdicts that differ, and how shares do. Where nothing was known, all is new and nothing
    /// differs.
    pub fn tell(self, books: &Books) -> (BTreeMap<WorkId, Verdict>, Option<ShareNews>) {
        let register = books.register;
        if register.anew {
            let all = &register.by_id;
            let verdicts = verdict::on(books, all);
            let ids = all.iter().map(|at| books.requests[*at].id.clone());
            *self.verdicts = ids.zip(verdicts).collect();
            *self.shares = shares::of(books);
            *self.said = (0..books.requests.len())
                .map(|at| verdict::said(books, at))
                .collect();
            return (BTreeMap::new(), None);
        }
        self.said.resize(books.requests.len(), None);
        for at in &register.touched {
            self.said[*at] = None;
        }
        for id in &register.withdrawn {
            self.verdicts.remove(id);
        }
        let mut moved = Vec::new();
        for at in register.by_id.iter().copied() {
            let now = verdict::said(books, at);
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
}
