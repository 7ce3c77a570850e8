//! The check: an independent verification of a plan against the snapshot and the rules.
//!
//! In: a snapshot, the [`Holdings`] of that snapshot, and a plan. Out: the violations, each with
//! the grant or vacate that it concerns. `prune` removes these grants and vacates from the plan.
//!
//! Rules: a vacate has a true reason and an allowed target. A grant names known work, a suitable
//! class, an open node and the right size. All grants together keep the limits of nodes, work,
//! users and queues.
//!
//! The check runs in tests and before each commit. It shares no code with a planner.

mod anti_affinity;
mod holdings;
pub(crate) mod node_load;
mod node_search;
mod queues;
pub(crate) mod totals;
mod whole_nodes;

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    input::snapshot::{Allocation, BlockEffect, Class, Demand, Node, Policy, Snapshot},
    output::plan::{Grant, Plan, Vacate, VacateReason},
};

pub use holdings::Holdings;
pub use node_search::NodeSearch;
use totals::{Totals, bytes_of, held_size};

/// The part of a plan that a violation concerns, by its index in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Grant(usize),
    Vacate(usize),
}

/// A part of a plan that breaks a rule, and the rule that it breaks.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{part:?}: {fault}")]
pub struct Violation {
    pub part: Part,
    #[source]
    pub fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    #[error("work {0} asks for nothing")]
    UnknownWork(WorkId),
    #[error("work {0} is not what the grant says it is")]
    Misdescribed(WorkId),
    #[error("node {0} is unknown")]
    UnknownNode(NodeName),
    #[error("node {0} takes no new work")]
    NodeClosed(NodeName),
    #[error("class {0:?} may not serve this work")]
    WrongClass(String),
    #[error("class {class:?} may not use node {node}")]
    OutsidePools { class: String, node: NodeName },
    #[error("node {0} is not among the machines listed")]
    NotListed(NodeName),
    #[error("node {0} is blocked for this work")]
    Avoided(NodeName),
    #[error("node {0} is not apart from the others of its group")]
    NotApart(NodeName),
    #[error("granted {granted} quanta where {needed} are needed, or another size")]
    WrongSize { granted: u64, needed: u64 },
    #[error("node {0} has not that much room")]
    NoRoom(NodeName),
    #[error("work {work} would have more than {most} processes")]
    TooMany { work: WorkId, most: u64 },
    #[error("gpus {gpus:?} of node {node} cannot take that")]
    WrongGpus { node: NodeName, gpus: Vec<u64> },
    #[error("user {user} would hold {would_hold} of {limit} bytes that are never taken back")]
    OverAllotment {
        user: UserName,
        would_hold: u64,
        limit: u64,
    },
    #[error(
        "queue {queue} would hold {would_hold} of {limit} {resource}, as a whole or of one user or \
         group"
    )]
    OverQuota {
        queue: String,
        resource: String,
        would_hold: u64,
        limit: u64,
    },
    #[error("allocation {0} is unknown")]
    UnknownAllocation(AllocationId),
    #[error("allocation {0} has been told to leave already")]
    AlreadyLeaving(AllocationId),
    #[error("allocation {0} is never taken back for others")]
    #[serde(rename = "not_takeable")]
    NotPreemptable(AllocationId),
    #[error("the reason given for allocation {0} is not true")]
    FalseReason(AllocationId),
    #[error("allocation {0} is purged, and its node can answer")]
    NeedlessPurge(AllocationId),
}

/// Checks a plan. Sums all allocations first, so callers that check many rounds keep a
/// [`Holdings`].
///
/// # Errors
/// Returns all violations, in the order of the plan.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Result<(), Vec<Violation>> {
    Holdings::new(snapshot).check(snapshot, plan)
}

/// Removes all violating parts like [`Holdings::prune`], but sums all allocations first.
pub fn prune(snapshot: &Snapshot, plan: Plan) -> (Plan, Vec<Violation>) {
    Holdings::new(snapshot).prune(snapshot, plan)
}

impl Holdings {
    /// Checks a plan. The holdings must be those of the snapshot.
    ///
    /// # Errors
    /// Returns all violations, in the order of the plan.
    pub fn check(&self, snapshot: &Snapshot, plan: &Plan) -> Result<(), Vec<Violation>> {
        let mut violations = Vec::new();
        let mut vacated = BTreeSet::new();
        for (index, vacate) in plan.vacates.iter().enumerate() {
            if let Err(fault) = check_vacate(snapshot, self, vacate, &mut vacated) {
                violations.push(Violation {
                    part: Part::Vacate(index),
                    fault,
                });
            }
        }
        let mut totals = Totals::new(self, &vacated);
        for (index, grant) in plan.grants.iter().enumerate() {
            let allowed = check_grant(snapshot, self, grant);
            let added =
                allowed.and_then(|(demand, node)| totals.add(snapshot, grant, demand, node));
            if let Err(fault) = added {
                violations.push(Violation {
                    part: Part::Grant(index),
                    fault,
                });
            }
        }
        if violations.is_empty() {
            Ok(())
        } else {
            Err(violations)
        }
    }

    /// Removes all violating parts from a plan, and returns the violations. Verdicts and shares
    /// stay as they are, because the next round reports them again.
    pub fn prune(&self, snapshot: &Snapshot, plan: Plan) -> (Plan, Vec<Violation>) {
        let mut plan = plan;
        let mut refused = Vec::new();
        // A grant may need the space of a removed vacate, so the rest is checked again. Each pass
        // removes at least one part.
        while let Err(violations) = self.check(snapshot, &plan) {
            let parts: BTreeSet<Part> = violations.iter().map(|violation| violation.part).collect();
            let mut index = 0;
            plan.grants.retain(|_| {
                index += 1;
                !parts.contains(&Part::Grant(index - 1))
            });
            index = 0;
            plan.vacates.retain(|_| {
                index += 1;
                !parts.contains(&Part::Vacate(index - 1))
            });
            refused.extend(violations);
        }
        (plan, refused)
    }
}

/// Checks one vacate: its target, and its reason. Adds the allocation to `vacated`.
fn check_vacate<'a>(
    snapshot: &Snapshot,
    holdings: &Holdings,
    vacate: &'a Vacate,
    vacated: &mut BTreeSet<&'a AllocationId>,
) -> Result<(), Fault> {
    let id = &vacate.allocation;
    let Some(allocation) = snapshot.allocations.get(id) else {
        return Err(Fault::UnknownAllocation(id.clone()));
    };
    let node = snapshot.nodes.get(&allocation.node);
    let lost = node.is_none_or(|node| node.lost);
    if vacate.purge && !lost {
        return Err(Fault::NeedlessPurge(id.clone()));
    }
    let already_leaves = allocation.purged || (allocation.leaving && !vacate.purge);
    if already_leaves || vacated.contains(id) {
        return Err(Fault::AlreadyLeaving(id.clone()));
    }
    let demand = snapshot.demand.get(&allocation.work);
    let withdrawn = demand.is_none();
    if allocation.kind == WorkKind::Reservation && !withdrawn {
        return Err(Fault::NotPreemptable(id.clone()));
    }
    if allocation.fixed && vacate.reason == VacateReason::Preempted {
        return Err(Fault::NotPreemptable(id.clone()));
    }
    let block = node.and_then(|node| node.block.as_ref());
    let is_true = match vacate.reason {
        VacateReason::Preempted => !withdrawn && !lost,
        VacateReason::Misplaced => {
            demand.is_some_and(|demand| is_misplaced(snapshot, demand, allocation))
        }
        VacateReason::OwnLimit => demand.is_some_and(|demand| {
            let staying = holdings.staying(&allocation.work);
            may_shrink(demand, staying)
        }),
        VacateReason::Blocked => block.is_some_and(|block| block.effect == BlockEffect::Evacuate),
        VacateReason::NodeLost => lost,
        VacateReason::NodeOffline => node.is_some_and(|node| node.offline) && !allocation.fixed,
        VacateReason::WorkGone => demand.is_none_or(|demand| lacks_class(snapshot, demand)),
    };
    if !is_true {
        return Err(Fault::FalseReason(id.clone()));
    }
    vacated.insert(id);
    Ok(())
}

/// Returns whether work may lose processes because of its own limit: the work exceeds the limit, or
/// is starting. Always true for a service or reservation.
fn may_shrink(demand: &Demand, process_count: u64) -> bool {
    let is_starting = !demand.runnable || demand.task_ms.unwrap_or(0) == 0;
    demand.kind != WorkKind::Job || is_starting || process_count > demand.max_processes
}

/// Returns whether no class that suits the work may use the pool of this node.
fn is_misplaced(snapshot: &Snapshot, demand: &Demand, allocation: &Allocation) -> bool {
    let Some(node) = snapshot.nodes.get(&allocation.node) else {
        return false;
    };
    if demand.queued.is_some() {
        return false;
    }
    let is_eligible = |(name, class): (&String, &Class)| {
        class_suits(snapshot, demand, name, class) && may_use_pool(snapshot, class, &node.pool)
    };
    let may_move = !allocation.fixed || (demand.kind == WorkKind::Service && !demand.managed);
    may_move && !snapshot.classes.iter().any(is_eligible)
}

/// Returns the quantum of the tree of a pool.
pub(crate) fn quantum_of<'a>(snapshot: &'a Snapshot, pool: &str) -> &'a Quantum {
    let mut current = snapshot.pools.get(pool);
    for _ in 0..snapshot.pools.len() {
        let parent = current.and_then(|pool| pool.parent.as_ref());
        let Some(parent) = parent.and_then(|name| snapshot.pools.get(name)) else {
            break;
        };
        current = Some(parent);
    }
    current
        .and_then(|root| root.quantum.as_ref())
        .unwrap_or(&snapshot.quantum)
}

/// Returns whether no class could serve this work. For work in a queue, returns whether its pool
/// has no queues.
fn lacks_class(snapshot: &Snapshot, demand: &Demand) -> bool {
    if let Some(queued) = &demand.queued {
        let pool = queued.pool.as_ref().or(snapshot.queues.keys().next());
        return pool.is_none_or(|pool| !snapshot.queues.contains_key(pool));
    }
    let serves = |name: &String, class: &Class| {
        class_suits(snapshot, demand, name, class) && snapshot.pools.contains_key(&class.pool)
    };
    !snapshot
        .classes
        .iter()
        .any(|(name, class)| serves(name, class))
}

/// Returns whether this class may serve this work.
///
/// The policy must suit the kind of work. The class must also be the one that the work names, or a
/// default class. A default class applies if the work names no class, or if a service names a class
/// with preemption. In the second case, the debug class of the named class may serve it too.
fn class_suits(snapshot: &Snapshot, demand: &Demand, name: &str, class: &Class) -> bool {
    let named = demand.class.as_deref() == Some(name);
    let policy_suits = match demand.kind {
        WorkKind::Job => true,
        WorkKind::Reservation if snapshot.tunables.settings.reserve_whole_nodes => {
            class.policy == Policy::Reserve
        }
        WorkKind::Service | WorkKind::Reservation => class.policy != Policy::FairShare,
    };
    let default_applies = match &demand.class {
        None => true,
        Some(name) => {
            demand.kind == WorkKind::Service && is_fair_share_class(snapshot.classes.get(name))
        }
    };
    let is_debug_class = demand.class.as_ref().is_some_and(|requested| {
        let requested = snapshot.classes.get(requested);
        is_fair_share_class(requested)
            && requested.and_then(|class| class.debug_class.as_deref()) == Some(name)
    });
    policy_suits
        && (named || (class.default && default_applies) || (is_debug_class && default_applies))
}

fn is_fair_share_class(class: Option<&Class>) -> bool {
    class.is_some_and(|class| class.policy == Policy::FairShare)
}

/// Checks one grant by itself, without the sums of other grants. Returns its demand and its node.
fn check_grant<'a>(
    snapshot: &'a Snapshot,
    holdings: &Holdings,
    grant: &Grant,
) -> Result<(&'a Demand, &'a Node), Fault> {
    let Some(demand) = snapshot.demand.get(&grant.work) else {
        return Err(Fault::UnknownWork(grant.work.clone()));
    };
    if demand.user != grant.user || demand.kind != grant.kind {
        return Err(Fault::Misdescribed(grant.work.clone()));
    }
    let Some(node) = snapshot.nodes.get(&grant.node) else {
        return Err(Fault::UnknownNode(grant.node.clone()));
    };
    let is_open = node.takes_work && !node.lost && !node.offline && node.block.is_none();
    if !is_open {
        return Err(Fault::NodeClosed(grant.node.clone()));
    }
    let is_listed = demand.node_list.is_empty() || demand.node_list.contains(&grant.node);
    if !is_listed {
        return Err(Fault::NotListed(grant.node.clone()));
    }
    if demand.avoids.contains(&grant.node) {
        return Err(Fault::Avoided(grant.node.clone()));
    }
    if let Some(queued) = demand.queued.as_deref() {
        queues::check_grant(snapshot, grant, demand, queued, node)?;
        return Ok((demand, node));
    }
    let class = snapshot
        .classes
        .get(&*grant.class)
        .filter(|class| class_suits(snapshot, demand, &grant.class, class))
        .filter(|class| allows_user(holdings, grant, class))
        .ok_or_else(|| Fault::WrongClass(grant.class.to_string()))?;
    if grant.fixed == (class.policy == Policy::FairShare) {
        return Err(Fault::Misdescribed(grant.work.clone()));
    }
    if !may_use_pool(snapshot, class, &node.pool) {
        let (class, node) = (grant.class.to_string(), grant.node.clone());
        return Err(Fault::OutsidePools { class, node });
    }
    check_size(snapshot, grant, demand, class, node)?;
    Ok((demand, node))
}

/// Returns whether the class allows the user of the grant. Work that already holds an allocation
/// keeps its class.
fn allows_user(holdings: &Holdings, grant: &Grant, class: &Class) -> bool {
    class.users.is_empty()
        || class.users.contains(grant.user.as_str())
        || holdings.has_allocation(&grant.work)
}

/// Returns whether work of the class may use the pool. Only fair-share work may use pools below its
/// home.
fn may_use_pool(snapshot: &Snapshot, class: &Class, pool: &str) -> bool {
    let mut current = Some(pool);
    for _ in 0..=snapshot.pools.len() {
        let Some(name) = current else { return false };
        if name == class.pool {
            return snapshot.pools.contains_key(name);
        }
        if class.policy != Policy::FairShare {
            return false;
        }
        current = snapshot
            .pools
            .get(name)
            .and_then(|pool| pool.parent.as_deref());
    }
    false
}

/// Checks that the quanta and the size of a grant are those that its work and class require.
fn check_size(
    snapshot: &Snapshot,
    grant: &Grant,
    demand: &Demand,
    class: &Class,
    node: &Node,
) -> Result<(), Fault> {
    let quantum = quantum_of(snapshot, &node.pool);
    let is_right_size = if class.policy == Policy::Reserve {
        demand.size.fits(&node.capacity)
            && grant.quanta == quantum.quanta_of_node(&node.capacity)
            && grant.size == node.capacity
            && whole_nodes::is_small_enough(snapshot, grant, demand, quantum)
    } else {
        let is_in_reach = |node: &&Node| may_use_pool(snapshot, class, &node.pool);
        has_size_of(
            grant,
            &demand.size,
            quantum,
            snapshot.nodes.values().filter(is_in_reach),
        )
    };
    if is_right_size {
        return Ok(());
    }
    Err(Fault::WrongSize {
        granted: grant.quanta,
        needed: quantum.quanta_of_work(&demand.size),
    })
}

/// Returns whether a grant has the requested size, rounded up to whole quanta. If no node has that
/// many quanta, the grant has those of the largest node that fits the requested size.
fn has_size_of<'a>(
    grant: &Grant,
    requested: &Size,
    quantum: &Quantum,
    nodes: impl Iterator<Item = &'a Node>,
) -> bool {
    let needed = quantum.quanta_of_work(requested);
    if grant.quanta == needed {
        return grant.size == quantum.granted(requested);
    }
    let fitting = nodes.filter(|node| requested.fits(&node.capacity));
    let max = fitting
        .map(|node| quantum.quanta_of_node(&node.capacity))
        .max();
    grant.quanta < needed
        && max == Some(grant.quanta)
        && grant.size == quantum.granted_at(grant.quanta, requested)
}
