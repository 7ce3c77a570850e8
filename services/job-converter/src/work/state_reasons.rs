//! Explains in one sentence why work is in its state.

use hayward_rm_scheduler_api::{AllocationState, VerdictEntry, WaitReason};
use hayward_vocabulary::WhenUnreachable;

use crate::work::{Job, Process, Work, WorkSpec};

/// Describes unreachable processes and what happens to them (W7).
fn unreachable_reason(work: &Work) -> Option<String> {
    let unreachable = |process: &&Process| process.state == AllocationState::Unreachable;
    let processes = work.slots.iter().flat_map(|slot| slot.processes.values());
    let count = processes.filter(unreachable).count();
    let next = match work.when_unreachable() {
        WhenUnreachable::Replace => "it is replaced when its node is lost".to_owned(),
        WhenUnreachable::ReplaceAfter { ms } => {
            format!("it is replaced {ms} ms after its node was lost, unless it is back before")
        }
        WhenUnreachable::Wait => "it waits for its node".to_owned(),
        WhenUnreachable::Exclusive => "its node ends it, and it is replaced after that".to_owned(),
    };
    match count {
        0 => None,
        1 => Some(format!("a process is unreachable: {next}")),
        _ => Some(format!(
            "{count} processes are unreachable; for each: {next}"
        )),
    }
}

/// Explains why work waits.
pub fn waiting_reason(work: &Work, verdict: Option<&VerdictEntry>) -> String {
    if let Some(unreachable_reason) = unreachable_reason(work) {
        return unreachable_reason;
    }
    if work.slots.iter().any(|slot| slot.live_count() > 0) {
        return "a process is being started".to_owned();
    }
    let note = work.slots.iter().find_map(|slot| slot.hold_reason.clone());
    let note = note.or_else(|| delayed_reason(work.job()?));
    note.or_else(|| verdict.map(|verdict| verdict.detail.clone()))
        .unwrap_or_else(|| "the scheduler has not considered it yet".to_owned())
}

/// Describes a job with nothing to run before a next attempt is due.
fn delayed_reason(job: &Job) -> Option<String> {
    let (delayed, remaining) = (job.tasks.delayed(), job.tasks.remaining());
    let is_all = delayed > 0 && delayed == remaining;
    is_all.then(|| match delayed {
        1 => "1 task waits for the time of its next attempt".to_owned(),
        _ => format!("{delayed} tasks wait for the time of their next attempt"),
    })
}

/// Describes the progress of a rolling deployment.
fn rollout_progress(work: &Work) -> Option<String> {
    let (outdated, all) = (work.outdated_count(), work.slots.len());
    let note = work
        .slots
        .iter()
        .find_map(|slot| slot.hold_reason.as_deref());
    let summary = format!("{outdated} of {all} processes have an older deployment");
    (outdated > 0).then(|| note.map_or(summary.clone(), |note| format!("{summary}; {note}")))
}

/// Explains what is missing of work that runs. Returns `None` if nothing is.
pub fn running_reason(
    work: &Work,
    running: usize,
    verdict: Option<&VerdictEntry>,
) -> Option<String> {
    let instances = work.slots.len();
    if let Some(unreachable_reason) = unreachable_reason(work) {
        return Some(unreachable_reason);
    }
    if let Some(rollout_progress) = rollout_progress(work) {
        return Some(rollout_progress);
    }
    if running >= instances || !matches!(work.spec, WorkSpec::Service(_)) {
        return None;
    }
    // The note explains missing instances. It is the failure that holds a slot back, else the
    // verdict.
    let note = work
        .slots
        .iter()
        .find_map(|slot| slot.hold_reason.as_deref());
    let verdict = verdict.filter(|verdict| verdict.reason != WaitReason::Satisfied);
    let note = note.or(verdict.map(|verdict| verdict.detail.as_str()));
    let summary = match work
        .processors
        .as_ref()
        .filter(|it| it.settings().standbys > 0)
    {
        Some(_) => format!("{running} of {instances} processes run, including standbys"),
        None => format!("{running} of {instances} instances run"),
    };
    Some(note.map_or(summary.clone(), |note| format!("{summary}; {note}")))
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::WorkKind;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::work::prepared_work::Origin;

    fn service_of_four() -> Work {
        let submission = json!({ "command": ["/bin/true"], "instances": 4 });
        let service = serde_json::from_value(submission).unwrap();
        let origin = Origin::sample();
        let uuid = Uuid::from_u128(7);
        let id = hayward_vocabulary::WorkId::from_uuid(WorkKind::Service, uuid);
        Work::new(id, uuid, &origin, WorkSpec::Service(Box::new(service)))
    }

    fn verdict(reason: &str, detail: &str) -> VerdictEntry {
        let entry = json!({ "work": "svc_1", "reason": reason, "detail": detail,
                            "since": "2026-01-01T00:00:00Z" });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn a_satisfied_verdict_does_not_explain_missing_instances() {
        let service = service_of_four();
        let satisfied = verdict("satisfied", "has all it asked for");
        assert_eq!(
            running_reason(&service, 3, Some(&satisfied)).unwrap(),
            "3 of 4 instances run"
        );
    }

    #[test]
    fn the_verdict_explains_missing_instances() {
        let service = service_of_four();
        let short = verdict("insufficient_resources", "no node has 99 GiB");
        assert_eq!(
            running_reason(&service, 3, Some(&short)).unwrap(),
            "3 of 4 instances run; no node has 99 GiB"
        );
    }
}
