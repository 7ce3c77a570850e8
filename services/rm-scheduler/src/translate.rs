//! From the words that travel to the words the planner thinks in, and back. No decisions.

mod shares;

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind};
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::{Health, NodeEntry};
use hayward_publication::Followed;
use hayward_rm_scheduler_api::{AllocationState, VacateReason, VerdictEntry, WaitReason};
use hayward_rm_scheduler_domain::{plan, snapshot};
use hayward_rm_scheduler_policy::{Identity, Rules};
use hayward_vocabulary::{Timestamp, Unblock, WorkId};

use crate::ledger::Held;

pub use shares::{share_policy, shares};

pub fn empty_snapshot() -> snapshot::Snapshot {
    snapshot::Snapshot::empty()
}

/// The address of a node, where its agent says one.
const ADDRESS: &str = "address";

/// How a node is known to the rules.
fn identity(entry: &NodeEntry) -> Identity<'_> {
    Identity {
        name: entry.node.as_str(),
        address: entry.labels.get(ADDRESS).map(String::as_str),
        declared: Some(&entry.pool),
    }
}

pub fn node(
    entry: &NodeEntry,
    blocks: &Followed<BlockEntry>,
    now: Timestamp,
    rules: &Rules,
) -> snapshot::Node {
    let block = blocks
        .get(&BlockKind::Node.key(entry.node.as_str()))
        .filter(|item| item.in_force(now))
        .map(|item| snapshot::Block {
            effect: match item.action {
                BlockAction::Mark => snapshot::BlockEffect::Mark,
                BlockAction::Evacuate => snapshot::BlockEffect::Evacuate,
            },
            reason: item.cause.clone(),
        });
    snapshot::Node {
        pool: rules
            .pool_of(identity(entry))
            .unwrap_or(&entry.pool)
            .to_owned(),
        capacity: rules.capacity(&entry.capacity),
        takes_work: entry.health == Health::Healthy,
        lost: entry.health == Health::Lost,
        offline: !entry.schedulable,
        block,
    }
}

pub fn demand(entry: &DemandEntry) -> snapshot::Demand {
    snapshot::Demand {
        kind: entry.kind,
        user: entry.user.clone(),
        class: entry.class.clone(),
        submitted_at: entry.submitted_at,
        size: entry.size.clone(),
        max_processes: entry.max_processes,
        remaining_tasks: entry.remaining_tasks,
        threads: entry.threads,
        task_ms: entry.task_ms,
        machines: entry.machines.iter().cloned().collect(),
        service: entry.service.clone(),
        managed: false,
        runnable: true,
        completing: false,
        keeps_what_it_holds: false,
    }
}

pub fn allocation(held: &Held) -> snapshot::Allocation {
    let entry = &held.entry;
    let running = entry.state == AllocationState::Running;
    snapshot::Allocation {
        work: entry.work.clone(),
        kind: entry.kind,
        user: entry.user.clone(),
        class: entry.class.clone(),
        node: entry.node.clone(),
        order: entry.order,
        size: entry.size.clone(),
        fixed: held.fixed,
        granted_at: entry.granted_at,
        running,
        // From the grant on it is being started: the way down the ladder is part of what a new
        // process takes to be of use.
        started_at: Some(entry.granted_at),
        // An entry of an earlier version does not say.
        running_since: running.then(|| entry.running_since.unwrap_or(entry.granted_at)),
        investment_ms: None,
        item_ms: None,
        gpus: held.gpus.clone(),
        leaving: entry.vacate.is_some(),
        purged: entry.vacate.as_ref().is_some_and(|vacate| vacate.purge),
    }
}

pub fn vacate_reason(reason: plan::VacateReason) -> VacateReason {
    match reason {
        plan::VacateReason::Preempted | plan::VacateReason::Misplaced => VacateReason::Preempted,
        plan::VacateReason::Blocked => VacateReason::Blocked,
        plan::VacateReason::NodeLost => VacateReason::NodeLost,
        plan::VacateReason::NodeOffline => VacateReason::NodeOffline,
        plan::VacateReason::OwnLimit | plan::VacateReason::WorkGone => VacateReason::WorkGone,
    }
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
        From::InitializationCap => WaitReason::InitializationCap,
        From::AtFairShare => WaitReason::AtFairShare,
        From::StaleInput => WaitReason::StaleInput,
        From::NoClass => WaitReason::NoClass,
        From::UnknownClass => WaitReason::UnknownClass,
        From::NotAuthorised => WaitReason::NotAuthorised,
        From::PolicyMismatch => WaitReason::PolicyMismatch,
    }
}

/// As of now, and without receipts: those are added by who knows them.
pub fn verdict(work: &WorkId, verdict: &plan::Verdict) -> VerdictEntry {
    VerdictEntry {
        work: work.clone(),
        reason: wait_reason(verdict.reason),
        refused: verdict.refused,
        class: verdict.class.clone(),
        detail: verdict.detail.clone(),
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
        From::OpenNode { node } => Unblock::OpenNode { node },
        From::RaiseShare { quanta } => Unblock::RaiseShare { quanta },
        From::NameClass => Unblock::NameClass,
    }
}
