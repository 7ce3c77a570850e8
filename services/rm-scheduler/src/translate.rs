//! Converts entries of the neighbours to the input of the planner, without decisions.

pub mod published_entries;

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

/// Name of the label with the address of a node, as its agent reports it.
const ADDRESS: &str = "address";

/// Returns the properties by which the policy assigns a node to a pool.
fn identity(entry: &NodeEntry) -> Identity<'_> {
    Identity {
        name: entry.node.as_str(),
        address: entry.labels.get(ADDRESS).map(String::as_str),
        declared: Some(&entry.pool),
    }
}

/// Returns the pool in which the policy puts a node.
pub fn pool_of(entry: &NodeEntry, rules: &Rules) -> String {
    let pool = rules.pool_of(identity(entry));
    pool.unwrap_or(&entry.pool).to_owned()
}

/// Returns true while the entry of a block has an effect. A block has an effect until its end time.
/// An entry for a node on trial has an effect until blocklist withdraws it.
pub fn is_effective(block: &BlockEntry, now: Timestamp) -> bool {
    block.canary || block.is_in_force(now)
}

/// Returns the number of the trial of a node. Returns `None` if the node is not on trial.
///
/// A trial follows each block that an automatic rule of blocklist (a strategy) has set. The trial
/// counts as begun from the end time of the block, before blocklist reports it. Otherwise the node
/// would be filled before the trial begins (W6).
pub fn trial_number(block: &BlockEntry, now: Timestamp) -> Option<u64> {
    let is_by_strategy =
        block.automatic && block.sources.iter().any(|it| it.starts_with("strategy:"));
    if block.canary {
        Some(block.removal_no)
    } else {
        // The end of a block counts as a removal, which gets the next number.
        (is_by_strategy && !block.is_in_force(now)).then_some(block.removal_no + 1)
    }
}

/// Converts a node. `block` is the block in force on the whole node.
pub fn node(entry: &NodeEntry, block: Option<&BlockEntry>, rules: &Rules) -> snapshot::Node {
    let pool = pool_of(entry, rules);
    snapshot::Node {
        capacity: rules.offer(&pool, &entry.capacity),
        pool,
        takes_work: entry.health == Health::Healthy,
        lost: entry.health == Health::Lost,
        offline: !entry.schedulable,
        block: block.and_then(planner_block).or_else(|| drain_block(entry)),
        labels: entry.labels.clone(),
    }
}

/// Converts a block. The planner vacates a node that is evacuated immediately. A graceful
/// evacuation is only a closed node for the planner, because the orders to leave are given before
/// the plan. A node on trial is open.
fn planner_block(block: &BlockEntry) -> Option<snapshot::Block> {
    let effect = match (block.action, block.evacuation) {
        (BlockAction::Evacuate, EvacuationPolicy::Immediate) => snapshot::BlockEffect::Evacuate,
        _ => snapshot::BlockEffect::Mark,
    };
    (!block.canary).then(|| snapshot::Block {
        effect,
        reason: block.cause.clone(),
    })
}

fn drain_block(entry: &NodeEntry) -> Option<snapshot::Block> {
    let drain = entry.drain.as_ref()?;
    Some(snapshot::Block {
        effect: snapshot::BlockEffect::Mark,
        reason: format!("it is drained: {}", drain.reason),
    })
}

/// Converts a lost node that work waits for to a closed node. The planner does not vacate a closed
/// node, so the waiting work stays. All other work on the node is given up before the plan.
pub fn close_awaited_node(node: snapshot::Node) -> snapshot::Node {
    let close = |block| snapshot::Block {
        effect: snapshot::BlockEffect::Mark,
        ..block
    };
    snapshot::Node {
        takes_work: false,
        lost: false,
        offline: false,
        block: node.block.map(close),
        ..node
    }
}

/// Converts demand. `avoids` are the nodes that are blocked for this work alone.
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
        node_list: match &entry.host {
            Some(host) => BTreeSet::from([host.clone()]),
            None => entry.machines.iter().cloned().collect(),
        },
        avoids,
        service: entry.service.clone(),
        anti_affinity: entry.apart.clone(),
        managed: orchestrated.is_some_and(|orchestrated| orchestrated.managed),
        runnable: !orchestrated.is_some_and(|orchestrated| orchestrated.starting),
        completing: orchestrated.is_some_and(|orchestrated| orchestrated.completing),
        keeps_what_it_holds: false,
        queued: entry.queued.clone(),
    }
}

/// Converts an allocation.
pub fn allocation(record: &AllocationRecord) -> snapshot::Allocation {
    let entry = &record.entry;
    // An unreachable process that has run is assumed to run still.
    let unreachable = entry.state == AllocationState::Unreachable;
    let running =
        entry.state == AllocationState::Running || (unreachable && entry.running_since.is_some());
    snapshot::Allocation {
        work: entry.work.clone(),
        kind: entry.kind,
        user: entry.user.clone(),
        class: entry.class.clone(),
        node: entry.node.clone(),
        quanta: entry.order,
        size: entry.size.clone(),
        fixed: record.fixed,
        granted_at: entry.granted_at,
        running,
        // A process counts as starting from its grant on. The time until its node starts it is part
        // of the cost of a new process.
        started_at: Some(entry.granted_at),
        // An entry of an earlier version has no such time.
        running_since: running.then(|| entry.running_since.unwrap_or(entry.granted_at)),
        investment_ms: None,
        item_ms: None,
        gpus: record.gpus.clone(),
        group: record.group.clone(),
        leaving: entry.vacate.is_some(),
        purged: entry.vacate.as_ref().is_some_and(|vacate| vacate.purge),
    }
}

/// Returns the state of an allocation for the state of its container. Returns `None` for a state of
/// a later version.
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
