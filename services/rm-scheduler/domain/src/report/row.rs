//! The last report of one piece of work.

use std::hint::black_box;

use super::ChangedWork;
use crate::{
    explanation::{
        shares::{self, UserTotals},
        verdict::{Finding, VerdictBuilder},
    },
    ids::{TypedVec, WorkIx},
    index::FleetIndex,
    output::{
        plan::{Verdict, WorkShare},
        shares::Counts,
    },
    state::RoundState,
};

/// Marks a row without a class, or one that is in the sums of no user.
const NONE: u32 = u32::MAX;

pub(super) struct Row {
    class: u32,
    user_at: u32,
    share: Option<WorkShare>,
    /// Quanta of one process as requested. A whole node may have more.
    process_quanta: u64,
    finding: Option<Finding>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            class: NONE,
            user_at: NONE,
            share: None,
            process_quanta: 0,
            finding: None,
        }
    }
}

impl Row {
    /// Writes the present verdict and share. Returns true if the verdict changed.
    pub fn renew<'a>(
        &mut self,
        state: &RoundState<'a>,
        ((work, wait), share): (ChangedWork, &WorkShare),
        user_totals: &mut UserTotals,
        builder: &mut VerdictBuilder<'a>,
    ) -> bool {
        let work_state = &state.work[work];
        let (class, user_at) = match work_state.class {
            Some(class) => (small(class), small(state.work_record(work).user)),
            None => (NONE, NONE),
        };
        let finding = Some(builder.find(state, work, wait));
        self.leave(user_totals);
        if class != NONE {
            user_totals.count(class, user_at, &share.tally);
        }
        let counts_before = self.counts();
        let is_other_finding = self.class != class || self.finding != finding;
        *self = Self {
            class,
            user_at,
            share: Some(*share),
            process_quanta: work_state.process_quanta,
            finding,
        };
        is_other_finding || counts_before != self.counts()
    }

    /// Returns the counts that the verdict names.
    fn counts(&self) -> Option<Counts> {
        let share = self.share?;
        Some(Counts {
            counted: share.counted,
            current: share.current,
            leaving: share.leaving,
            order: self.process_quanta,
            wanted: share.wanted,
        })
    }

    /// Removes the work from the sums of its user.
    pub fn leave(&mut self, user_totals: &mut UserTotals) {
        if let Some(share) = &self.share
            && self.user_at != NONE
        {
            user_totals.forget(self.class, self.user_at, &share.tally);
            self.user_at = NONE;
        }
    }

    pub fn verdict(&self, index: &FleetIndex) -> Option<Verdict> {
        let class = index.classes.get(self.class as usize);
        let counts = self.counts()?;
        Some(self.finding.as_ref()?.verdict(class, &counts))
    }

    pub fn share(&self) -> Option<WorkShare> {
        self.share
    }

    /// Returns the share, if it is in the sums of a user.
    pub fn counted(&self) -> Option<&WorkShare> {
        self.share.as_ref().filter(|_| self.user_at != NONE)
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(NONE)
}

/// Fills the rows of all work, and returns their sums.
pub(super) fn fill(state: &RoundState, rows: &mut TypedVec<WorkIx, Row>) -> UserTotals {
    let mut user_totals = UserTotals::new(state);
    let mut builder = VerdictBuilder::default();
    for work in state.work.indices() {
        let row = &mut rows[work];
        let (of_work, share) = (
            (work, state.wait_reason(work)),
            shares::work_share(state, work),
        );
        row.renew(state, (of_work, &share), &mut user_totals, &mut builder);
    }
    user_totals
}

/// Reads one field of each row that the report of this work needs, so that cache misses overlap.
/// Saves 0.5 ms of a round of 4.8 ms with 1 % of changes at 100,000 pieces of work.
pub(super) fn prefetch(
    state: &RoundState,
    rows: &TypedVec<WorkIx, Row>,
    items: impl Iterator<Item = WorkIx>,
) {
    for work in items {
        let (work_state, record, row) = (&state.work[work], state.work_record(work), &rows[work]);
        black_box((
            work_state.process_quanta,
            work_state.granted_quanta,
            record.max_processes,
            record.usage.mean_start_ms,
            record.id.as_str().as_bytes().first().copied(),
            row.class,
            row.finding.is_some(),
        ));
    }
}
