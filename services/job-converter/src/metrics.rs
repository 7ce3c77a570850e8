//! Metrics of job-converter (T6).

use hayward_job_converter_domain::RunResult;
use hayward_service::metrics::Reading;
use hayward_service::metrics::catalogue::{
    GANG_COUNT, GANG_STATE, KIND, TASK_OUTCOME, TASKS, WORK_OPEN, WORK_SUBMITTED,
};
use hayward_vocabulary::WorkKind;

use crate::work::kind_name;

pub(crate) const KINDS: [WorkKind; 3] = [WorkKind::Job, WorkKind::Service, WorkKind::Reservation];

/// Numbers of the working set at one moment.
pub(crate) struct Counts {
    /// Number of open pieces of work, by kind.
    pub open: [(WorkKind, usize); 3],
    pub gangs: GangCounts,
}

/// Numbers of gangs by state.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GangCounts {
    /// Gangs that wait for their first members.
    pub waiting: u64,
    pub complete: u64,
    /// Gangs that were complete and lost members.
    pub below_minimum: u64,
}

pub(crate) fn count_submission(kind: WorkKind) {
    WORK_SUBMITTED.add(1, &[KIND.with(kind_name(kind))]);
}

/// Counts an attempt. An interruption does not count as one.
pub(crate) fn count_attempt(result: RunResult) {
    let outcome = match result {
        RunResult::Succeeded => "succeeded",
        RunResult::Failed | RunResult::FailedForGood => "failed",
        RunResult::Interrupted => return,
    };
    TASKS.add(1, &[TASK_OUTCOME.with(outcome)]);
}

pub(crate) fn readings(counts: &Counts) -> Vec<Reading> {
    let mut readings: Vec<Reading> = Vec::with_capacity(6);
    for (kind, open) in counts.open {
        let open = u64::try_from(open).unwrap_or(u64::MAX);
        readings.push(WORK_OPEN.count_reading(open, vec![KIND.with(kind_name(kind))]));
    }
    let gangs = [
        ("waiting", counts.gangs.waiting),
        ("bound", counts.gangs.complete),
        ("below_minimum", counts.gangs.below_minimum),
    ];
    for (state, count) in gangs {
        readings.push(GANG_COUNT.count_reading(count, vec![GANG_STATE.with(state)]));
    }
    readings
}
