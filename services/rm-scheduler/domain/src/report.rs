//! Step 9: reports what changed since the last round.
//!
//! Input: the state after all decisions, and the rows of the last report. Output: changed verdicts
//! and changed shares. Waiting work is checked in each round in which its tree is planned (an idle
//! tree is not). Other work is checked if its row is dirty, which means written since the last
//! round. After a rebuild of the index, all work is reported, without a difference to the last
//! report.
//!
//! The retained rows and sums equal those of a report of all work. Names and sentences are built
//! only when a report is read.
//!
//! This step decides nothing.

mod row;
mod unsettled;

use std::collections::BTreeMap;

use hayward_vocabulary::WorkId;

use crate::{
    explanation::{
        shares::{self, UserTotals, UserWork},
        verdict::VerdictBuilder,
    },
    ids::{TypedVec, WorkIx},
    index::FleetIndex,
    output::plan::{ChangedVerdicts, Reason, ShareDelta, Shares, Verdict, Verdicts, WorkShare},
    state::RoundState,
};

use row::Row;
use unsettled::Unsettled;

/// Last reported verdict and share of each piece of work.
#[derive(Default)]
pub(crate) struct LastReport {
    rows: TypedVec<WorkIx, Row>,
    unsettled: Unsettled,
    user_totals: UserTotals,
    pools: shares::Pools,
    /// Shares of the fleet, its classes and its users, without those of work.
    pub sums: Shares,
}

/// Work whose report may have changed, with the reason why it waits.
#[derive(Clone, Copy)]
struct ChangedWork {
    work: WorkIx,
    wait: Option<Reason>,
}

impl LastReport {
    /// Returns the changed verdicts and the changed shares. After a rebuild all work is new, and no
    /// difference of the shares is returned.
    pub fn report(&mut self, state: &RoundState) -> (ChangedVerdicts, Option<ShareDelta>) {
        if state.index.rebuilt {
            self.report_all(state);
            return (Vec::new(), None);
        }
        self.drop_removed(state);
        let mut builder = VerdictBuilder::default();
        let changed_work = self.changed_work(state, &mut builder);
        let (changed, delta) = self.report_changed(state, changed_work, builder);
        (changed, Some(delta))
    }

    /// Removes work that left its class from the sums, and drops the rows of removed work.
    fn drop_removed(&mut self, state: &RoundState) {
        let index = state.index;
        self.rows.resize_with(state.work.len(), Row::default);
        for departed in &index.departed {
            self.rows[departed.work].remove_from_sums(&mut self.user_totals);
        }
        for work in &index.freed_work {
            self.rows[*work].remove_from_sums(&mut self.user_totals);
            self.rows[*work] = Row::default();
        }
    }

    /// Returns the work whose report may have changed: waiting work in trees that are not idle, and
    /// dirty work that still exists.
    fn changed_work(
        &mut self,
        state: &RoundState,
        builder: &mut VerdictBuilder,
    ) -> Vec<ChangedWork> {
        let mut changed = self.unsettled.take_changed(state, builder);
        let dirty: Vec<WorkIx> = state.work.dirty().collect();
        let unsettled = changed.iter().map(|item| &item.work);
        row::prefetch(state, &self.rows, unsettled.chain(&dirty).copied());
        self.pools.count_demand(state, dirty.iter().copied());
        changed.reserve(dirty.len());
        let live = dirty.into_iter().filter(|work| state.index.is_live(*work));
        changed.extend(live.map(|work| ChangedWork {
            work,
            wait: state.wait_reason(work),
        }));
        changed
    }

    /// Updates the rows of this work and all sums. Returns what changed.
    fn report_changed<'a>(
        &mut self,
        state: &RoundState<'a>,
        mut reported: Vec<ChangedWork>,
        mut builder: VerdictBuilder<'a>,
    ) -> (ChangedVerdicts, ShareDelta) {
        let users = UserWork::group(state, &mut self.user_totals, &mut reported, |item| {
            item.work
        });
        let mut changed: Vec<WorkIx> = Vec::with_capacity(reported.len());
        for item in reported.iter().copied() {
            let ChangedWork { work, wait } = item;
            let row = &mut self.rows[work];
            if row.update(state, item, &mut self.user_totals, &mut builder) {
                changed.push(work);
            }
            self.unsettled.add(state, work, wait, &mut builder);
        }
        self.user_totals.drop_emptied();
        let classes = shares::update_sums(
            state,
            &mut self.pools,
            &mut self.user_totals,
            &mut self.sums,
        );
        let delta = ShareDelta {
            departed: shares::departed_work(state),
            shares: shares::changed_sums(&self.sums, classes),
            users: users.into_groups(state),
            work: self.counted_shares(state, &reported),
        };
        (self.verdicts_of(state, &changed), delta)
    }

    /// Returns the shares of this work that are part of the sums of a user.
    fn counted_shares(
        &self,
        state: &RoundState,
        reported: &[ChangedWork],
    ) -> Vec<(WorkId, WorkShare)> {
        let counted = reported.iter().filter_map(|item| {
            let share = self.rows[item.work].counted_share()?;
            Some((state.id(item.work).clone(), *share))
        });
        counted.collect()
    }

    /// Returns the verdicts on this work.
    fn verdicts_of(&self, state: &RoundState, changed: &[WorkIx]) -> ChangedVerdicts {
        let verdicts = changed.iter().filter_map(|work| {
            let verdict = self.rows[*work].verdict(state.index)?;
            Some((state.id(*work).clone(), verdict))
        });
        verdicts.collect()
    }

    /// Reports all work. All work is dirty in the next round, so the list of unsettled work stays
    /// empty.
    fn report_all(&mut self, state: &RoundState) {
        // Free the memory of the last report first.
        *self = Self::default();
        let len = state.work.len();
        self.rows.resize_with(len, Row::default);
        self.user_totals = row::fill_rows(state, &mut self.rows);
        let (pools, user_totals) = (&mut self.pools, &mut self.user_totals);
        pools.count_demand(state, state.work.indices());
        self.sums = shares::compute_sums(state, pools, user_totals);
    }

    pub fn verdict(&self, index: &FleetIndex, work: &WorkId) -> Option<Box<Verdict>> {
        let row = self.rows.get(index.find_work(work)?)?;
        row.verdict(index).map(Box::new)
    }

    pub fn verdicts(&self, index: &FleetIndex) -> Verdicts {
        let rows = self.rows.enumerate();
        let rows = rows.filter_map(|(work, row)| {
            let verdict = Box::new(row.verdict(index)?);
            Some((index.work[work].id.clone(), verdict))
        });
        rows.collect()
    }

    /// Returns the shares of the fleet, classes and users, with the shares of all work.
    pub fn shares(&self, index: &FleetIndex) -> Shares {
        let mut shares_with_work = self.sums.clone();
        for served in &index.classes {
            let Some(class) = shares_with_work.classes.get_mut(&*served.name) else {
                continue;
            };
            for (name, work) in served.users.iter() {
                let shares = work.iter().filter_map(|work| {
                    let share = self.rows.get(work)?.share()?;
                    Some((index.work[work].id.clone(), share))
                });
                // A map that is built at once needs less memory than one that grows.
                let shares: BTreeMap<_, _> = shares.collect();
                if let Some(user) = class.users.get_mut(name) {
                    user.work = shares;
                }
            }
        }
        shares_with_work
    }
}
