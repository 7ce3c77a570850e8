//! Translation of followed entries to the input of the planner, without decisions.

pub mod entries;

use std::collections::BTreeSet;

use hayward_blocklist_api::{BlockAction, BlockEntry, EvacuationPolicy};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::{Health, NodeEntry};
use hayward_rm_scheduler_api::AllocationState;
use hayward_rm_scheduler_domain::snapshot;
use hayward_rm_scheduler_policy::{Identity, Rules};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::model::AllocationRecord;

pub fn empty_snapshot() -> snapshot::Snapshot {
    snapshot::Snapshot::empty()
}

/// The label with the address of a node, as its agent reports it.
const ADDRESS: &str = "address";

/// The properties of a node that rules select by.
fn identity(entry: &NodeEntry) -> Identity<'_> {
    Identity {
        name: entry.node.as_str(),
        address: entry.labels.get(ADDRESS).map(String::as_str),
        declared: Some(&entry.pool),
    }
}

/// The pool in which the policy puts a node.
pub fn pool(entry: &NodeEntry, rules: &Rules) -> String {
    let named = rules.pool_of(identity(entry));
    named.unwrap_or(&entry.pool).to_owned()
}

/// A block counts until its end. A trial, which begins after its block, counts until the entry is
/// withdrawn.
pub fn counts(item: &BlockEntry, now: Timestamp) -> bool {
    item.canary || item.in_force(now)
}

/// The number of the trial of a node. A block of a strategy ends by itself here. Until blocklist
/// reports what follows, its end counts as the beginning of the trial. Else the node would be
/// filled before the trial begins (W6).
pub fn trial(item: &BlockEntry, now: Timestamp) -> Option<u64> {
    let judged = item.automatic && item.sources.iter().any(|it| it.starts_with("strategy:"));
    if item.canary {
        Some(item.removal_no)
    } else {
        // The end of a block counts as a removal.
        (judged && !item.in_force(now)).then_some(item.removal_no + 1)
    }
}

/// `item`: the block in force on the node.
pub fn node(entry: &NodeEntry, item: Option<&BlockEntry>, rules: &Rules) -> snapshot::Node {
    let pool = pool(entry, rules);
    snapshot::Node {
        capacity: rules.offer(&pool, &entry.capacity),
        pool,
        takes_work: entry.health == Health::Healthy,
        lost: entry.health == Health::Lost,
        offline: !entry.schedulable,
        block: item.and_then(block).or_else(|| drained(entry)),
        labels: entry.labels.clone(),
    }
}

/// The planner vacates a node that is evacuated immediately. A graceful evacuation is ordered
/// outside the plan, and the planner sees a closed node. A node on trial is open.
fn block(item: &BlockEntry) -> Option<snapshot::Block> {
    let effect = match (item.action, item.evacuation) {
        (BlockAction::Evacuate, EvacuationPolicy::Immediate) => snapshot::BlockEffect::Evacuate,
        _ => snapshot::BlockEffect::Mark,
    };
    (!item.canary).then(|| snapshot::Block {
        effect,
        reason: item.cause.clone(),
    })
}

fn drained(entry: &NodeEntry) -> Option<snapshot::Block> {
    let drain = entry.drain.as_ref()?;
    Some(snapshot::Block {
        effect: snapshot::BlockEffect::Mark,
        reason: format!("it is drained: {}", drain.reason),
    })
}

/// A lost node with work that waits for it. The planner sees a closed node, so that this work
/// stays. Other work on it is given up outside the plan.
pub fn waited_for(node: snapshot::Node) -> snapshot::Node {
    let closed = |block| snapshot::Block {
        effect: snapshot::BlockEffect::Mark,
        ..block
    };
    snapshot::Node {
        takes_work: false,
        lost: false,
        offline: false,
        block: node.block.map(closed),
        ..node
    }
}

/// `avoids`: the nodes that are blocked for this work alone.
pub fn demand(entry: &DemandEntry, avoids: BTreeSet<NodeName>) -> snapshot::Demand {
    let orchestrated = entry.orchestrated.as_deref();
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
        machines: match &entry.host {
            Some(host) => BTreeSet::from([host.clone()]),
            None => entry.machines.iter().cloned().collect(),
        },
        avoids,
        service: entry.service.clone(),
        apart: entry.apart.clone(),
        managed: orchestrated.is_some_and(|orchestrated| orchestrated.managed),
        runnable: !orchestrated.is_some_and(|orchestrated| orchestrated.starting),
        completing: orchestrated.is_some_and(|orchestrated| orchestrated.completing),
        keeps_what_it_holds: false,
        queued: entry.queued.clone(),
    }
}

pub fn allocation(held: &AllocationRecord) -> snapshot::Allocation {
    let entry = &held.entry;
    // An unreachable process has run, and is assumed to run still.
    let unreachable = entry.state == AllocationState::Unreachable;
    let running =
        entry.state == AllocationState::Running || (unreachable && entry.running_since.is_some());
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
        // A process counts as starting from its grant on: the time until its node starts it is part
        // of what a new process costs.
        started_at: Some(entry.granted_at),
        // An entry of an earlier version has no such time.
        running_since: running.then(|| entry.running_since.unwrap_or(entry.granted_at)),
        investment_ms: None,
        item_ms: None,
        gpus: held.gpus.clone(),
        group: held.group.clone(),
        leaving: entry.vacate.is_some(),
        purged: entry.vacate.as_ref().is_some_and(|vacate| vacate.purge),
    }
}

/// The state of an allocation by that of its container. None for a state of a later version.
pub fn state(container: ContainerState) -> Option<AllocationState> {
    Some(match container {
        ContainerState::Ordered => AllocationState::Assigned,
        ContainerState::Launching => AllocationState::Launching,
        ContainerState::Running => AllocationState::Running,
        ContainerState::Stopping => AllocationState::Stopping,
        ContainerState::Ended => AllocationState::Ended,
        ContainerState::Unknown => return None,
    })
}
