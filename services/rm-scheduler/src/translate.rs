//! From the words that travel to the words the planner thinks in, and back. No decisions.

mod shares;

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind};
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::{Health, NodeEntry};
use hayward_publication::Followed;
use hayward_rm_scheduler_api::policy::{Policy, SharePolicy};
use hayward_rm_scheduler_api::{AllocationState, VacateReason, VerdictEntry, WaitReason};
use hayward_rm_scheduler_domain::{plan, snapshot};
use hayward_vocabulary::{Timestamp, Unblock, UserName, WorkId};

use crate::ledger::Held;

pub use shares::{share_policy, shares};

pub fn empty_snapshot() -> snapshot::Snapshot {
    snapshot::Snapshot::empty()
}

pub fn policy(policy: &Policy, into: &mut snapshot::Snapshot) {
    into.quantum = policy.quantum.clone();
    let quantum_bytes = policy.quantum.0.memory_bytes;
    let bytes = |quanta: u64| quanta.saturating_mul(quantum_bytes);
    into.tunables = snapshot::Tunables {
        initialization_cap: policy.tunables.initialization_cap,
        expand_by_doubling: policy.tunables.expand_by_doubling,
        use_prediction: policy.tunables.use_prediction,
        prediction_fudge_ms: policy.tunables.prediction_fudge_ms,
        global_allotment_bytes: policy.tunables.global_allotment_quanta.map(bytes),
        ..into.tunables.clone()
    };
    let pool = |pool: &hayward_rm_scheduler_api::policy::Pool| snapshot::Pool {
        parent: pool.parent.clone(),
        search_order: pool.search_order,
        ..snapshot::Pool::default()
    };
    into.pools = policy
        .pools
        .iter()
        .map(|(name, entry)| (name.clone(), pool(entry)))
        .collect();
    into.classes = policy
        .classes
        .iter()
        .map(|(name, class)| {
            let class = snapshot::Class {
                policy: match class.policy {
                    SharePolicy::FairShare => snapshot::Policy::FairShare,
                    SharePolicy::FixedShare => snapshot::Policy::FixedShare,
                    SharePolicy::Reserve => snapshot::Policy::Reserve,
                },
                priority: class.priority,
                weight: class.weight,
                pool: class.pool.clone(),
                default: class.default,
                users: class.users.iter().cloned().collect(),
                place: 0,
                debug: None,
                growth: snapshot::Growth::default(),
            };
            (name.clone(), class)
        })
        .collect();
    into.users = policy
        .users
        .iter()
        .filter_map(|(name, user)| {
            let user = snapshot::User {
                max_allotment_bytes: user.max_allotment_quanta.map(bytes),
                ..snapshot::User::default()
            };
            Some((UserName::new(name.clone()).ok()?, user))
        })
        .collect();
}

/// R-2.3 (c): a node that names no pool of the policy belongs to the default pool.
pub fn home_pool(named: &str, snapshot: &snapshot::Snapshot) -> String {
    if snapshot.pools.contains_key(named) {
        return named.to_owned();
    }
    let tops = || {
        snapshot
            .pools
            .iter()
            .filter(|(_, pool)| pool.parent.is_none())
    };
    tops()
        .find(|(name, _)| *name == "default")
        .or_else(|| tops().next())
        .map_or_else(|| named.to_owned(), |(name, _)| name.clone())
}

pub fn node(
    entry: &NodeEntry,
    blocks: &Followed<BlockEntry>,
    snapshot: &snapshot::Snapshot,
) -> snapshot::Node {
    let block = blocks
        .get(&BlockKind::Node.key(entry.node.as_str()))
        .filter(|item| item.in_force(snapshot.now))
        .map(|item| snapshot::Block {
            effect: match item.action {
                BlockAction::Mark => snapshot::BlockEffect::Mark,
                BlockAction::Evacuate => snapshot::BlockEffect::Evacuate,
            },
            reason: item.cause.clone(),
        });
    snapshot::Node {
        pool: home_pool(&entry.pool, snapshot),
        capacity: entry.capacity.clone(),
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
        started_at: None,
        running_since: running.then_some(entry.granted_at),
        investment_ms: None,
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
