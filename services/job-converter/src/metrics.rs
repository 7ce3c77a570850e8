//! Metrics of job-converter (T6).

use hayward_job_converter_domain::Ending;
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
    /// Number of gangs that wait for their first members, that are complete, and that lost members.
    pub gangs: [u64; 3],
}

pub(crate) fn count_submission(kind: WorkKind) {
    WORK_SUBMITTED.add(1, &[KIND.with(kind_name(kind))]);
}

/// Counts an attempt. An interruption does not count as one.
pub(crate) fn count_attempt(ending: Ending) {
    let outcome = match ending {
        Ending::Succeeded => "succeeded",
        Ending::Failed => "failed",
        Ending::Interrupted => return,
    };
    TASKS.add(1, &[TASK_OUTCOME.with(outcome)]);
}

pub(crate) fn readings(counts: &Counts) -> Vec<Reading> {
    let mut readings: Vec<Reading> = Vec::with_capacity(6);
    for (kind, open) in counts.open {
        let open = u64::try_from(open).unwrap_or(u64::MAX);
        readings.push(WORK_OPEN.count_reading(open, vec![KIND.with(kind_name(kind))]));
    }
    let states = ["waiting", "bound", "below_minimum"];
    for (state, count) in states.into_iter().zip(counts.gangs) {
        readings.push(GANG_COUNT.count_reading(count, vec![GANG_STATE.with(state)]));
    }
    readings
}
