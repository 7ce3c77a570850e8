//! What a round says: of work that waits always anew, of the rest only what became different.

mod row;
mod unsettled;

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;

use crate::{
    explanation::{
        shares::{self, OfUsers, Told},
        verdict::Finder,
    },
    incremental::{join::both, prefetch::fetch_rows},
    index::Register,
    output::{
        packed_share::PackedShare,
        plan::{Reason, ShareNews, Shares, Verdict, VerdictNews, Verdicts},
    },
    state::Books,
};

use row::Row;
use unsettled::Unsettled;

/// What was said last, by the number of the work. Names and sentences are made when it is read.
#[derive(Default)]
pub(crate) struct Known {
    rows: Vec<Row>,
    unsettled: Unsettled,
    told: Told,
    pools: shares::Pools,
    /// Of the fleet, its classes and users, without work.
    pub sums: Shares,
}

/// Work of which something else may be to be said, and what it waits for.
type Moved = (usize, Option<Reason>);

impl Known {
    /// The verdicts that differ, and how shares do. Where nothing was known, all is new and nothing
    /// differs; then what else is read off the books is read beside it.
    pub fn tell<T: Send>(
        &mut self,
        books: &Books,
        else_read: impl FnOnce() -> T + Send,
    ) -> (VerdictNews, Option<ShareNews>, T) {
        if books.register.anew {
            let read = self.tell_all(books, else_read);
            return (Vec::new(), None, read);
        }
        self.forget(books);
        let mut finder = Finder::default();
        let moved = self.moved(books, &mut finder);
        let (changed, news) = self.tell_moved(books, moved, finder);
        (changed, Some(news), else_read())
    }

    /// Work that left its class is in no sum, and of work that went nothing is known.
    fn forget(&mut self, books: &Books) {
        let register = books.register;
        self.rows.resize_with(books.requests.len(), Row::default);
        let departed = register.departed.iter().map(|it| &self.rows[it.at]);
        fetch_rows(departed.map(Row::anything));
        for departed in &register.departed {
            self.rows[departed.at].leave(&mut self.told);
        }
        for at in &register.vacated {
            self.rows[*at].leave(&mut self.told);
            self.rows[*at] = Row::default();
        }
    }

    /// Live work of which something else may be to be said: who waits where it does not rest, and
    /// who is stirred.
    fn moved(&mut self, books: &Books, finder: &mut Finder) -> Vec<Moved> {
        let mut all = self.unsettled.moved(books, finder);
        let stirred: Vec<usize> = books.requests.stirred().collect();
        let still = all.iter().map(|(at, _)| at);
        row::fetch(books, &self.rows, still.chain(&stirred).copied());
        self.pools.listen(books, stirred.iter().copied());
        all.reserve(stirred.len());
        let live = stirred.into_iter().filter(|at| books.register.is_live(*at));
        all.extend(live.map(|at| (at, books.wait_of(at))));
        all
    }

    fn tell_moved<'a>(
        &mut self,
        books: &Books<'a>,
        mut moved: Vec<Moved>,
        mut finder: Finder<'a>,
    ) -> (VerdictNews, ShareNews) {
        let users = OfUsers::sort(books, &mut self.told, &mut moved);
        let mut changed: Vec<usize> = Vec::with_capacity(moved.len());
        for &(at, wait) in &moved {
            let of_work = (at, wait);
            let share = shares::of_work(books, at);
            let row = &mut self.rows[at];
            if row.renew(books, (of_work, &share), &mut self.told, &mut finder) {
                changed.push(at);
            }
            self.unsettled.note(books, of_work, &mut finder);
        }
        self.told.drop_emptied();
        let said = (users.said(books), self.counted(books, &moved));
        let news = shares::renew(
            books,
            (&mut self.told, &mut self.pools),
            &mut self.sums,
            said,
        );
        (self.verdicts_of(books, &changed), news)
    }

    /// The shares that are in the sums of somebody. To take a name up is to wait until everything
    /// is written, so nothing is written between one and the next.
    fn counted(&self, books: &Books, moved: &[Moved]) -> Vec<(WorkId, PackedShare)> {
        let rows = moved.iter().map(|(at, _)| (*at, &self.rows[*at]));
        let shares = rows.filter_map(|(at, row)| Some((at, row.counted()?)));
        let shares: Vec<_> = shares.collect();
        let names: Vec<WorkId> = shares.iter().map(|(at, _)| books.id(*at).clone()).collect();
        let shares = shares.into_iter().map(|(_, share)| share.clone());
        names.into_iter().zip(shares).collect()
    }

    /// Names are taken up first here as well.
    fn verdicts_of(&self, books: &Books, work: &[usize]) -> VerdictNews {
        let names: Vec<WorkId> = work.iter().map(|at| books.id(*at).clone()).collect();
        let mut told = Vec::with_capacity(work.len());
        told.extend(names.into_iter().zip(work).filter_map(|(name, at)| {
            let verdict = self.rows[*at].verdict(books.register)?;
            Some((name, verdict))
        }));
        told
    }

    /// Each half of the work has a thread of its own. In the next round all is stirred, so nobody
    /// has to be looked at beside.
    fn tell_all<T: Send>(&mut self, books: &Books, else_read: impl FnOnce() -> T + Send) -> T {
        // What was said before is in the way of what is said now.
        *self = Self::default();
        let len = books.requests.len();
        self.rows.resize_with(len, Row::default);
        // Read anew, work is numbered by id.
        let (low, high) = self.rows.split_at_mut(len / 2);
        let (here, beside) = both(
            len,
            || row::fill(books, (low, 0)),
            || row::fill(books, (high, len / 2)),
        );
        self.told = here;
        self.told.add(&beside);
        let (pools, told) = (&mut self.pools, &mut self.told);
        pools.listen(books, 0..len);
        let (sums, read) = both(len, || shares::sums(books, pools, told), else_read);
        self.sums = sums;
        read
    }

    pub fn verdict(&self, register: &Register, work: &WorkId) -> Option<Box<Verdict>> {
        let row = self.rows.get(register.request(work)?)?;
        row.verdict(register).map(Box::new)
    }

    pub fn verdicts(&self, register: &Register) -> Verdicts {
        let said = self.rows.iter().enumerate();
        let said = said.filter_map(|(at, row)| {
            let verdict = Box::new(row.verdict(register)?);
            Some((register.requests[at].id.clone(), verdict))
        });
        said.collect()
    }

    /// The sums with all work under its user.
    pub fn shares(&self, register: &Register) -> Shares {
        let mut whole = self.sums.clone();
        for served in &register.classes {
            let Some(class) = whole.classes.get_mut(&*served.name) else {
                continue;
            };
            for (name, work) in served.users.iter() {
                let shares = work.iter().filter_map(|at| {
                    let share = self.rows.get(at)?.share()?;
                    Some((register.requests[at].id.clone(), share))
                });
                // Built at once, a map takes half the room of one that grew.
                let shares: BTreeMap<_, _> = shares.collect();
                if let Some(user) = class.users.get_mut(name) {
                    user.work = shares;
                }
            }
        }
        whole
    }
}
