//! Verdicts of work in externally planned pools. If work lacks processes, its verdict contains the
//! note of the external planner.

use hayward_rm_scheduler_domain::{
    Reason, Verdict, Verdicts, plan::Numbers, snapshot::external_planners::ResponseResult,
};
use hayward_vocabulary::{WorkId, plural::processes};

use crate::pool_view::{PoolView, WorkItem};

/// The last response of a planner, as far as verdicts contain it.
#[derive(Clone, Copy)]
pub(crate) struct PlannerState<'a> {
    /// Reason why the planner did not respond. `None` after a response.
    pub no_response_reason: Option<&'a str>,
    /// Notes of the planner, and its refused steps. `None` before its first response.
    pub notes: Option<&'a ResponseResult>,
}

pub(crate) fn pool_verdicts(view: &PoolView, planner: PlannerState) -> Verdicts {
    let work = view.work.iter();
    let verdicts = work.map(|(work, item)| {
        (
            (*work).clone(),
            Box::new(work_verdict(view, work, item, planner)),
        )
    });
    verdicts.collect()
}

fn work_verdict(view: &PoolView, work: &WorkId, item: &WorkItem, planner: PlannerState) -> Verdict {
    let (current, wanted) = (item.current, item.wanted());
    let (reason, refused, detail) = if !item.may_use_its_class() {
        let (user, class) = (&item.demand.user, item.class_name);
        let detail = format!("user {user} may not use class {class:?}");
        (Reason::NotAuthorised, true, detail)
    } else if item.demand.max_processes == 0 {
        let detail = "wants no process now".to_owned();
        (Reason::Satisfied, false, detail)
    } else if current >= wanted {
        let detail = format!("has all it can use: {}", processes(current));
        (Reason::Satisfied, false, detail)
    } else {
        let detail = explain_missing(view.top, work, planner);
        (Reason::ExternalPlanner, false, detail)
    };
    Verdict {
        reason,
        waits: reason != Reason::Satisfied && current == 0,
        refused,
        class: Some(item.class_name.into()),
        detail,
        numbers: Numbers {
            counted_processes: current,
            current_processes: current,
            leaving_processes: item.leaving,
            quanta: item.quanta,
            wanted_processes: wanted,
            ..Numbers::default()
        },
        also: Vec::new(),
        unblock: None,
    }
}

fn explain_missing(pool: &str, work: &WorkId, planner: PlannerState) -> String {
    if let Some(reason) = planner.no_response_reason {
        return format!("external planner of pool {pool} did not answer: {reason}");
    }
    let Some(notes) = planner.notes else {
        return format!("external planner of pool {pool} has not answered yet");
    };
    match (notes.refused.get(work), notes.notes.get(work)) {
        (Some(refused), _) => {
            format!("a step of the external planner of pool {pool} is refused: {refused}")
        }
        (None, Some(note)) => {
            format!("external planner of pool {pool} did not place it: {note}")
        }
        (None, None) => {
            format!("external planner of pool {pool} did not place it and gave no reason")
        }
    }
}
