//! Converts decisions of the planner to published entries. The text of a verdict may end with a
//! note that a process of the work waits for its lost node.

use hayward_rm_scheduler_api::{VacateReason, VerdictEntry};
use hayward_rm_scheduler_domain::plan;
use hayward_vocabulary::{Timestamp, WorkId};

pub fn vacate_reason(reason: plan::VacateReason) -> VacateReason {
    match reason {
        plan::VacateReason::Preempted | plan::VacateReason::Misplaced => VacateReason::Preempted,
        plan::VacateReason::Blocked => VacateReason::Blocked,
        plan::VacateReason::NodeLost => VacateReason::NodeLost,
        plan::VacateReason::NodeOffline => VacateReason::NodeOffline,
        plan::VacateReason::OwnLimit | plan::VacateReason::WorkGone => VacateReason::WorkGone,
    }
}

/// Separator between the text of the planner and a note.
const NOTE_SEPARATOR: &str = "; and ";

pub fn with_note(detail: String, note: Option<&str>) -> String {
    match note {
        Some(note) => format!("{detail}{NOTE_SEPARATOR}{note}"),
        None => detail,
    }
}

/// Returns the note at the end of a detail.
pub fn note(detail: &str) -> Option<&str> {
    detail.split_once(NOTE_SEPARATOR).map(|(_, note)| note)
}

/// Returns the entry of a verdict, without its time and receipts.
pub fn verdict(work: &WorkId, verdict: &plan::Verdict) -> VerdictEntry {
    VerdictEntry {
        work: work.clone(),
        reason: verdict.reason,
        refused: verdict.refused,
        class: verdict.class.as_deref().map(str::to_owned),
        detail: verdict.detail.clone(),
        numbers: verdict.numbers.by_name(),
        also: verdict.also.clone(),
        unblock: verdict.unblock.clone(),
        receipts: Vec::new(),
        since: Timestamp::default(),
    }
}
