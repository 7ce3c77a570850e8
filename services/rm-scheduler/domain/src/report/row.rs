//! The last report of one piece of work, in two adjacent cache lines.

use std::hint::black_box;

use super::ChangedWork;
use crate::{
    explanation::{
        shares::{self, UserTotals},
        verdict::{Finding, VerdictBuilder},
    },
    ids::{Ix, TypedVec, WorkIx},
    index::FleetIndex,
    output::{
        packed_share::PackedShare,
        plan::{Verdict, WorkShare},
    },
    state::RoundState,
};

/// No class, or in the sums of no user.
const NONE: u32 = u32::MAX;

#[repr(C, align(64))]
pub(super) struct Row {
    class: u32,
    user_at: u32,
    share: Option<PackedShare>,
    finding: Option<Finding>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            class: NONE,
            user_at: NONE,
            share: None,
            finding: None,
        }
    }
}

impl Row {
    /// Writes the present verdict and share. True if the verdict changed.
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
        let packed = Some(PackedShare::of(share, work_state.process_quanta));
        let finding = Some(builder.find(state, work, wait));
        self.leave(user_totals);
        if class != NONE {
            user_totals.count(class, user_at, &share.tally);
        }
        let counts = |share: &Option<PackedShare>| share.as_ref().map(PackedShare::counts);
        let is_other = self.class != class
            || self.finding != finding
            || counts(&self.share) != counts(&packed);
        (self.class, self.user_at) = (class, user_at);
        (self.share, self.finding) = (packed, finding);
        is_other
    }

    /// Removes the work from the sums of its user.
    pub fn leave(&mut self, user_totals: &mut UserTotals) {
        if let Some(share) = &self.share
            && self.user_at != NONE
        {
            user_totals.forget(self.class, self.user_at, &share.tally());
            self.user_at = NONE;
        }
    }

    pub fn verdict(&self, index: &FleetIndex) -> Option<Verdict> {
        let class = index.classes.get(self.class as usize);
        let counts = self.share.as_ref()?.counts();
        Some(self.finding.as_ref()?.verdict(class, &counts))
    }

    pub fn share(&self) -> Option<WorkShare> {
        Some(self.share.as_ref()?.share())
    }

    /// A value that reads both cache lines.
    pub fn anything(&self) -> usize {
        self.class as usize ^ usize::from(self.finding.is_some())
    }

    /// Its share, if it is in the sums of a user.
    pub fn counted(&self) -> Option<&PackedShare> {
        self.share.as_ref().filter(|_| self.user_at != NONE)
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(NONE)
}

/// Fills the rows of all work from number `first` on, and returns their sums.
pub(super) fn fill(state: &RoundState, rows: &mut [Row], first: usize) -> UserTotals {
    let mut user_totals = UserTotals::of(state);
    let mut builder = VerdictBuilder::default();
    for (row, work) in rows.iter_mut().zip((first..).map(WorkIx::new)) {
        let (of_work, share) = (
            (work, state.wait_reason(work)),
            shares::of_work(state, work),
        );
        row.renew(state, (of_work, &share), &mut user_totals, &mut builder);
    }
    user_totals
}

/// Prefetches all memory that the report of this work reads, so that the reads overlap.
pub(super) fn fetch(
    state: &RoundState,
    rows: &TypedVec<WorkIx, Row>,
    work: impl Iterator<Item = WorkIx>,
) {
    let all = work.fold(0, |all, work| {
        let (request, work_record, row) = (&state.work[work], state.work_record(work), &rows[work]);
        let of_request = request.process_quanta ^ request.cap.now ^ request.granted_quanta;
        let holding = &work_record.usage;
        let of_cap = u64::from(holding.cap.starting);
        let of_record = work_record.max_processes ^ holding.mean_start_ms ^ of_cap;
        let letter = work_record.id.as_str().as_bytes().first();
        let of_row = row.anything() as u64;
        all ^ of_request ^ of_record ^ of_row ^ letter.map_or(0, |letter| u64::from(*letter))
    });
    black_box(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_two_cache_lines() {
        assert_eq!(size_of::<Row>(), 128);
    }
}
