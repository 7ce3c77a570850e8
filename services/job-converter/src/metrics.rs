//! What job-converter tells a collector of work (T6).

use hayward_job_converter_domain::Ending;
use hayward_service::metrics::Reading;
use hayward_service::metrics::catalogue::{
    GANG_COUNT, GANG_STATE, KIND, TASK_OUTCOME, TASKS, WORK_OPEN, WORK_SUBMITTED,
};
use hayward_vocabulary::WorkKind;

use crate::ledger::Ledger;
use crate::work::kind_name;

const KINDS: [WorkKind; 3] = [WorkKind::Job, WorkKind::Service, WorkKind::Reservation];

pub(crate) fn accepted(kind: WorkKind) {
    WORK_SUBMITTED.add(1, &[KIND.is(kind_name(kind))]);
}

/// An attempt counted. What was interrupted says nothing of its task.
pub(crate) fn reported(ending: Ending) {
    let outcome = match ending {
        Ending::Succeeded => "succeeded",
        Ending::Failed => "failed",
        Ending::Interrupted => return,
    };
    TASKS.add(1, &[TASK_OUTCOME.is(outcome)]);
}

pub(crate) fn readings(ledger: &Ledger) -> Vec<Reading> {
    let mut readings: Vec<Reading> = KINDS
        .into_iter()
        .map(|kind| {
            let open = ledger.open(kind);
            WORK_OPEN.counts(open, vec![KIND.is(kind_name(kind))])
        })
        .collect();
    let gangs = ledger.applications.gang_counts();
    let states = ["waiting", "bound", "below_minimum"];
    for (state, count) in states.into_iter().zip(gangs) {
        readings.push(GANG_COUNT.counts(count, vec![GANG_STATE.is(state)]));
    }
    readings
}
