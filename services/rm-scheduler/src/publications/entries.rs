//! From decisions of the planner to published entries. Nothing is decided here.

use hayward_rm_scheduler_api::{VacateReason, VerdictEntry, WaitReason};
use hayward_rm_scheduler_domain::plan;
use hayward_vocabulary::{Timestamp, Unblock, WorkId};

pub fn vacate_reason(reason: plan::VacateReason) -> VacateReason {
    match reason {
        plan::VacateReason::Preempted | plan::VacateReason::Misplaced => VacateReason::Preempted,
        plan::VacateReason::Blocked => VacateReason::Blocked,
        plan::VacateReason::NodeLost => VacateReason::NodeLost,
        plan::VacateReason::NodeOffline => VacateReason::NodeOffline,
        plan::VacateReason::OwnLimit | plan::VacateReason::WorkGone => VacateReason::WorkGone,
    }
}

/// Separates a note from the text of the planner.
const NOTE: &str = "; and ";

pub fn with_note(detail: String, note: Option<&str>) -> String {
    match note {
        Some(note) => format!("{detail}{NOTE}{note}"),
        None => detail,
    }
}

/// The note in a detail.
pub fn note(detail: &str) -> Option<&str> {
    detail.split_once(NOTE).map(|(_, note)| note)
}

pub fn wait_reason(reason: plan::Reason) -> WaitReason {
    use plan::Reason as From;
    match reason {
        From::Satisfied => WaitReason::Satisfied,
        From::ZeroShare => WaitReason::ZeroShare,
        From::WaitingForPreemption => WaitReason::WaitingForPreemption,
        From::WaitingForDefragmentation => WaitReason::WaitingForDefragmentation,
        From::InsufficientResources => WaitReason::InsufficientResources,
        From::NoHostLargeEnough => WaitReason::NoHostLargeEnough,
        From::NoHostOfSize => WaitReason::NoHostOfSize,
        From::ResourcesExhausted => WaitReason::ResourcesExhausted,
        From::AllotmentExceeded => WaitReason::AllotmentExceeded,
        From::NoListedMachine => WaitReason::NoListedMachine,
        From::AllBlocked => WaitReason::AllBlocked,
        From::KeptApart => WaitReason::KeptApart,
        From::InitializationCap => WaitReason::InitializationCap,
        From::AtFairShare => WaitReason::AtFairShare,
        From::StaleInput => WaitReason::StaleInput,
        From::NoClass => WaitReason::NoClass,
        From::UnknownClass => WaitReason::UnknownClass,
        From::NotAuthorised => WaitReason::NotAuthorised,
        From::PolicyMismatch => WaitReason::PolicyMismatch,
        From::QueueQuota => WaitReason::QueueQuota,
        From::UserQuota => WaitReason::UserQuota,
        From::NotRunnable => WaitReason::NotRunnable,
        From::BackingOff => WaitReason::BackingOff,
        From::GangIncomplete => WaitReason::GangIncomplete,
        From::NodesReserved => WaitReason::NodesReserved,
        From::OutsidePlanner => WaitReason::OutsidePlanner,
    }
}

/// The entry without its time and receipts.
pub fn verdict(work: &WorkId, verdict: &plan::Verdict) -> VerdictEntry {
    VerdictEntry {
        work: work.clone(),
        reason: wait_reason(verdict.reason),
        refused: verdict.refused,
        class: verdict.class.as_deref().map(str::to_owned),
        detail: verdict.detail.to_string(),
        numbers: verdict.numbers.by_name(),
        also: verdict.also.iter().copied().map(wait_reason).collect(),
        unblock: verdict.unblock.as_ref().map(unblock),
        receipts: Vec::new(),
        since: Timestamp::default(),
    }
}

pub fn unblock(change: &plan::Unblock) -> Unblock {
    use plan::Unblock as From;
    match change.clone() {
        From::Wait { leaving_processes } => Unblock::Wait { leaving_processes },
        From::FreeRoom { node, quanta } => Unblock::FreeRoom { node, quanta },
        From::RaiseAllotment { bytes } => Unblock::RaiseAllotment { bytes },
        From::AskForLess { quanta } => Unblock::AskForLess { quanta },
        From::AddNode { quanta } => Unblock::AddNode { quanta },
        From::OfferResource { name } => Unblock::OfferResource { name },
        From::OpenNode { node } => Unblock::OpenNode { node },
        From::ListNode { node } => Unblock::ListNode { node },
        From::RaiseShare { quanta } => Unblock::RaiseShare { quanta },
        From::NameClass => Unblock::NameClass,
        From::RaisePreemptionBudget { user, percent } => {
            Unblock::RaisePreemptionBudget { user, percent }
        }
    }
}
