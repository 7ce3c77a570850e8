//! Request to an external planner: the current state of its pool.
//!
//! Names and numbers are those of the API. The request contains all work of classes in the pool,
//! waiting or not. It also contains all allocations on the nodes of the pool, whichever planner
//! granted them.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Snapshot,
    snapshot::{Node, Policy, external_planners::ResponseResult},
};
use hayward_vocabulary::{
    AllocationId, Apart, NodeName, Quantum, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::Serialize;

use crate::{ExternalPoolTrees, FORMAT, pool_view::PoolView, recent_preemptions};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannerRequest {
    pub format: &'static str,
    /// Number of the request. The response must repeat it.
    pub revision: u64,
    pub now: Timestamp,
    /// The top-level pool.
    pub pool: String,
    /// Quantum of the pool.
    pub quantum: Quantum,
    /// This pool and all pools below it, each with its parent.
    pub pools: BTreeMap<String, Option<String>>,
    /// Classes of these pools, by name.
    pub classes: BTreeMap<String, RequestClass>,
    pub nodes: Vec<RequestNode>,
    /// Work in order of submission.
    pub work: Vec<RequestWork>,
    pub allocations: Vec<RequestAllocation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestClass {
    pub policy: Policy,
    pub priority: i64,
    pub weight: u64,
    pub pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestNode {
    pub node: NodeName,
    pub pool: String,
    pub capacity: Size,
    /// Usage of all allocations, including leaving ones.
    pub used: Size,
    pub free: Size,
    pub free_quanta: u64,
    pub schedulable: bool,
    /// Reason why the node takes no work. `None` if it takes work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestWork {
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    pub submitted_at: Timestamp,
    /// Resources of one process. In a class of policy `RESERVE` it gets a whole node with at least
    /// these resources.
    pub size: Size,
    /// Quanta of one process.
    pub quanta: u64,
    /// Number of processes that the work can use now.
    pub wanted: u64,
    /// Number of processes that stay.
    pub has: u64,
    pub leaving: u64,
    /// Number of processes that may still be granted.
    pub missing: u64,
    /// Predicted duration of a task in milliseconds. `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ms: Option<u64>,
    /// Nodes that the work may use. Empty if it may use any.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub machines: BTreeSet<NodeName>,
    /// Nodes that the work must not use.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub avoids: BTreeSet<NodeName>,
    /// Anti-affinity group of the work. `None` if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestAllocation {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    pub size: Size,
    pub quanta: u64,
    pub granted_at: Timestamp,
    pub running: bool,
    /// True while the allocation is leaving. It occupies its node until it has left.
    pub leaving: bool,
    /// True if the allocation may be vacated.
    pub preemptable: bool,
}

/// Returns true if work of the pool lacks a process, so that a request is useful.
#[must_use]
pub fn has_missing_work(snapshot: &Snapshot, trees: &ExternalPoolTrees, top: &str) -> bool {
    let pool = snapshot.external_planners.get_key_value(top);
    pool.is_some_and(|(top, _)| {
        let view = PoolView::new(snapshot, trees, top);
        view.work.values().any(|item| item.missing() > 0)
    })
}

/// Returns the notes about work that still lacks processes. Other notes are obsolete.
#[must_use]
pub fn relevant_notes(
    snapshot: &Snapshot,
    trees: &ExternalPoolTrees,
    top: &str,
    notes: &ResponseResult,
) -> ResponseResult {
    let mut relevant = notes.clone();
    if let Some((top, _)) = snapshot.external_planners.get_key_value(top) {
        let view = PoolView::new(snapshot, trees, top);
        let lacks = |work: &WorkId| view.work.get(work).is_some_and(|it| it.missing() > 0);
        relevant.notes.retain(|work, _| lacks(work));
        relevant.refused.retain(|work, _| lacks(work));
    }
    relevant
}

impl PlannerRequest {
    /// Builds the request, or returns `None` if no work lacks a process.
    #[must_use]
    pub fn new(
        snapshot: &Snapshot,
        trees: &ExternalPoolTrees,
        top: &str,
        revision: u64,
    ) -> Option<Self> {
        let (top, _) = snapshot.external_planners.get_key_value(top)?;
        let view = PoolView::new(snapshot, trees, top);
        if !view.work.values().any(|item| item.missing() > 0) {
            return None;
        }
        let pools = snapshot.pools.iter();
        let pools = pools.filter(|(name, _)| trees.top_of_pool(name) == Some(top));
        let classes = snapshot.classes.iter();
        let classes = classes.filter(|(_, class)| trees.top_of_pool(&class.pool) == Some(top));
        Some(Self {
            format: FORMAT,
            revision,
            now: snapshot.now,
            pool: top.clone(),
            quantum: view.quantum.clone(),
            pools: pools
                .map(|(name, pool)| (name.clone(), pool.parent.clone()))
                .collect(),
            classes: classes
                .map(|(name, class)| {
                    let class = RequestClass {
                        policy: class.policy,
                        priority: class.priority,
                        weight: class.weight,
                        pool: class.pool.clone(),
                    };
                    (name.clone(), class)
                })
                .collect(),
            nodes: request_nodes(&view),
            work: request_work(&view),
            allocations: request_allocations(&view),
        })
    }

    /// Compares two requests, ignoring the revision.
    #[must_use]
    pub fn has_same_content(&self, other: &Self) -> bool {
        self.pool == other.pool
            && self.quantum == other.quantum
            && self.pools == other.pools
            && self.classes == other.classes
            && self.nodes == other.nodes
            && self.work == other.work
            && self.allocations == other.allocations
    }
}

fn request_nodes(view: &PoolView) -> Vec<RequestNode> {
    let mut used: BTreeMap<&NodeName, (Size, u64)> = BTreeMap::new();
    for allocation in view.snapshot.allocations.values() {
        let (size, quanta) = used.entry(&allocation.node).or_default();
        size.add(&allocation.size);
        *quanta = quanta.saturating_add(allocation.quanta);
    }
    let to_request = |(name, node): (&NodeName, &Node)| {
        let (used, quanta) = used.remove(name).unwrap_or_default();
        let mut free = node.capacity.clone();
        free.subtract(&used);
        let total_quanta = view.quantum.quanta_of_node(&node.capacity);
        RequestNode {
            node: name.clone(),
            pool: node.pool.clone(),
            capacity: node.capacity.clone(),
            used,
            free,
            free_quanta: total_quanta.saturating_sub(quanta),
            schedulable: node.is_schedulable(),
            reason: closed_reason(node),
            labels: node.labels.clone(),
        }
    };
    view.nodes().map(to_request).collect()
}

/// Returns why the node takes no work, or `None` if it takes work.
fn closed_reason(node: &Node) -> Option<String> {
    let reason = if node.lost {
        "lost".to_owned()
    } else if node.offline {
        "varied off".to_owned()
    } else if let Some(block) = &node.block {
        format!("blocked: {}", block.reason)
    } else if node.takes_work {
        return None;
    } else {
        "declines new work".to_owned()
    };
    Some(reason)
}

fn request_work(view: &PoolView) -> Vec<RequestWork> {
    let to_request = |(work, item): (&&WorkId, &crate::pool_view::WorkItem)| RequestWork {
        work: (*work).clone(),
        kind: item.demand.kind,
        user: item.demand.user.clone(),
        class: item.class_name.to_owned(),
        submitted_at: item.demand.submitted_at,
        size: match item.class.policy {
            Policy::Reserve => item.demand.size.clone(),
            _ => item.size.clone(),
        },
        quanta: item.quanta,
        wanted: item.wanted(),
        has: item.current,
        leaving: item.leaving,
        missing: item.missing(),
        task_ms: item.demand.task_ms,
        machines: item.demand.node_list.clone(),
        avoids: item.demand.avoids.clone(),
        apart: item.demand.anti_affinity.clone(),
    };
    let mut work: Vec<RequestWork> = view.work.iter().map(to_request).collect();
    work.sort_by(|a, b| (a.submitted_at, &a.work).cmp(&(b.submitted_at, &b.work)));
    work
}

fn request_allocations(view: &PoolView) -> Vec<RequestAllocation> {
    let in_pool = |node: &NodeName| {
        let node = view.snapshot.nodes.get(node);
        node.is_some_and(|node| view.trees.top_of_pool(&node.pool) == Some(view.top))
    };
    let all = view.snapshot.allocations.iter();
    let listed = all
        .filter(|(id, allocation)| view.allocations.contains_key(id) || in_pool(&allocation.node));
    listed
        .map(|(id, allocation)| RequestAllocation {
            allocation: id.clone(),
            work: allocation.work.clone(),
            user: allocation.user.clone(),
            class: allocation.class.clone(),
            node: allocation.node.clone(),
            size: allocation.size.clone(),
            quanta: allocation.quanta,
            granted_at: allocation.granted_at,
            running: allocation.running,
            leaving: allocation.leaving || allocation.purged,
            preemptable: view.allocations.contains_key(id)
                && !allocation.fixed
                && allocation.kind != WorkKind::Reservation
                && !recent_preemptions::is_protected(&view.preemptions, allocation)
                && in_pool(&allocation.node),
        })
        .collect()
}
