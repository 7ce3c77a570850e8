//! Step 9: reports what became different since the last round.
//!
//! In: the state after all decisions, and the rows of the last report. Out: changed verdicts and
//! changed shares. Work that waits is checked each round; other work is checked if its row is
//! dirty.
//!
//! Never: decides anything.

mod row;
mod unsettled;

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;

use crate::{
    explanation::{
        shares::{self, UserTotals, UserWork},
        verdict::VerdictBuilder,
    },
    incremental::{join::join, prefetch::fetch_rows},
    index::FleetIndex,
    output::{
        packed_share::PackedShare,
        plan::{ChangedVerdicts, Reason, ShareDelta, Shares, Verdict, Verdicts},
    },
    state::RoundState,
};

use row::Row;
use unsettled::Unsettled;

/// What was said last, by the number of the work. Names and sentences are made when it is read.
#[derive(Default)]
pub(crate) struct LastReport {
    rows: Vec<Row>,
    unsettled: Unsettled,
    user_totals: UserTotals,
    pools: shares::Pools,
    /// Of the fleet, its classes and users, without work.
    pub sums: Shares,
}

/// Work of which something else may be to be said, and what it waits for.
type ChangedWork = (usize, Option<Reason>);

impl LastReport {
    /// The verdicts that differ, and how shares do. Where nothing was known, all is new and nothing
    /// differs; then what else is read off the books is read beside it.
    pub fn report<T: Send>(
        &mut self,
        state: &RoundState,
        else_read: impl FnOnce() -> T + Send,
    ) -> (ChangedVerdicts, Option<ShareDelta>, T) {
        if state.index.rebuilt {
            let read = self.report_all(state, else_read);
            return (Vec::new(), None, read);
        }
        self.forget_removed(state);
        let mut builder = VerdictBuilder::default();
        let moved = self.changed_work(state, &mut builder);
        let (changed, delta) = self.report_changed(state, moved, builder);
        (changed, Some(delta), else_read())
    }

    /// Work that left its class is in no sum, and of work that went nothing is known.
    fn forget_removed(&mut self, state: &RoundState) {
        let index = state.index;
        self.rows.resize_with(state.work.len(), Row::default);
        let departed = index.departed.iter().map(|it| &self.rows[it.work]);
        fetch_rows(departed.map(Row::anything));
        for departed in &index.departed {
            self.rows[departed.work].leave(&mut self.user_totals);
        }
        for at in &index.freed_work {
            self.rows[*at].leave(&mut self.user_totals);
            self.rows[*at] = Row::default();
        }
    }

    /// Live work of which something else may be to be said: who waits where it does not rest, and
    /// who is stirred.
    fn changed_work(
        &mut self,
        state: &RoundState,
        builder: &mut VerdictBuilder,
    ) -> Vec<ChangedWork> {
        let mut all = self.unsettled.moved(state, builder);
        let dirty: Vec<usize> = state.work.dirty().collect();
        let still = all.iter().map(|(at, _)| at);
        row::fetch(state, &self.rows, still.chain(&dirty).copied());
        self.pools.listen(state, dirty.iter().copied());
        all.reserve(dirty.len());
        let live = dirty.into_iter().filter(|at| state.index.is_live(*at));
        all.extend(live.map(|at| (at, state.wait_reason(at))));
        all
    }

    fn report_changed<'a>(
        &mut self,
        state: &RoundState<'a>,
        mut moved: Vec<ChangedWork>,
        mut builder: VerdictBuilder<'a>,
    ) -> (ChangedVerdicts, ShareDelta) {
        let users = UserWork::sort(state, &mut self.user_totals, &mut moved);
        let mut changed: Vec<usize> = Vec::with_capacity(moved.len());
        for &(at, wait) in &moved {
            let of_work = (at, wait);
            let share = shares::of_work(state, at);
            let row = &mut self.rows[at];
            if row.renew(
                state,
                (of_work, &share),
                &mut self.user_totals,
                &mut builder,
            ) {
                changed.push(at);
            }
            self.unsettled.note(state, of_work, &mut builder);
        }
        self.user_totals.drop_emptied();
        let said = (users.said(state), self.counted(state, &moved));
        let delta = shares::renew(
            state,
            (&mut self.user_totals, &mut self.pools),
            &mut self.sums,
            said,
        );
        (self.verdicts_of(state, &changed), delta)
    }

    /// The shares that are in the sums of somebody. To take a name up is to wait until everything
    /// is written, so nothing is written between one and the next.
    fn counted(&self, state: &RoundState, moved: &[ChangedWork]) -> Vec<(WorkId, PackedShare)> {
        let rows = moved.iter().map(|(at, _)| (*at, &self.rows[*at]));
        let shares = rows.filter_map(|(at, row)| Some((at, row.counted()?)));
        let shares: Vec<_> = shares.collect();
        let names: Vec<WorkId> = shares.iter().map(|(at, _)| state.id(*at).clone()).collect();
        let shares = shares.into_iter().map(|(_, share)| share.clone());
        names.into_iter().zip(shares).collect()
    }

    /// Names are taken up first here as well.
    fn verdicts_of(&self, state: &RoundState, work: &[usize]) -> ChangedVerdicts {
        let names: Vec<WorkId> = work.iter().map(|at| state.id(*at).clone()).collect();
        let mut user_totals = Vec::with_capacity(work.len());
        user_totals.extend(names.into_iter().zip(work).filter_map(|(name, at)| {
            let verdict = self.rows[*at].verdict(state.index)?;
            Some((name, verdict))
        }));
        user_totals
    }

    /// Each half of the work has a thread of its own. In the next round all is stirred, so nobody
    /// has to be looked at beside.
    fn report_all<T: Send>(
        &mut self,
        state: &RoundState,
        else_read: impl FnOnce() -> T + Send,
    ) -> T {
        // What was said before is in the way of what is said now.
        *self = Self::default();
        let len = state.work.len();
        self.rows.resize_with(len, Row::default);
        // Read anew, work is numbered by id.
        let (low, high) = self.rows.split_at_mut(len / 2);
        let (here, in_parallel) = join(
            len,
            || row::fill(state, (low, 0)),
            || row::fill(state, (high, len / 2)),
        );
        self.user_totals = here;
        self.user_totals.add(&in_parallel);
        let (pools, user_totals) = (&mut self.pools, &mut self.user_totals);
        pools.listen(state, 0..len);
        let (sums, read) = join(len, || shares::sums(state, pools, user_totals), else_read);
        self.sums = sums;
        read
    }

    pub fn verdict(&self, index: &FleetIndex, work: &WorkId) -> Option<Box<Verdict>> {
        let row = self.rows.get(index.find_work(work)?)?;
        row.verdict(index).map(Box::new)
    }

    pub fn verdicts(&self, index: &FleetIndex) -> Verdicts {
        let said = self.rows.iter().enumerate();
        let said = said.filter_map(|(at, row)| {
            let verdict = Box::new(row.verdict(index)?);
            Some((index.work[at].id.clone(), verdict))
        });
        said.collect()
    }

    /// The sums with all work under its user.
    pub fn shares(&self, index: &FleetIndex) -> Shares {
        let mut whole = self.sums.clone();
        for served in &index.classes {
            let Some(class) = whole.classes.get_mut(&*served.name) else {
                continue;
            };
            for (name, work) in served.users.iter() {
                let shares = work.iter().filter_map(|at| {
                    let share = self.rows.get(at)?.share()?;
                    Some((index.work[at].id.clone(), share))
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
