//! The check: an independent verification of a plan against the snapshot and the rules.
//!
//! In: a snapshot, the [`Holdings`] of that snapshot, and a plan. Out: the violations, each with
//! the grant or vacate that it concerns. `prune` returns the plan without these parts.
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

/// Checks a plan. Reads all allocations for this. To check many rounds, keep a [`Holdings`].
///
/// # Errors
/// Returns all violations, in the order of the plan.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Result<(), Vec<Violation>> {
    Holdings::new(snapshot).check(snapshot, plan)
}

/// Removes all violating parts like [`Holdings::prune`], but reads all allocations for this.
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

    /// Removes all violating parts from a plan, and returns the violations. Verdicts and shares are
    /// unchanged; the next round reports them again.
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
            let has = holdings.staying(&allocation.work);
            may_shrink(demand, has)
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

/// Returns whether work may lose processes without a claim of other work: it exceeds its limit, or
/// it is starting. Always true for a service or reservation.
fn may_shrink(demand: &Demand, has: u64) -> bool {
    let starting = !demand.runnable || demand.task_ms.unwrap_or(0) == 0;
    demand.kind != WorkKind::Job || starting || has > demand.max_processes
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
        class_suits(snapshot, demand, name, class) && reaches(snapshot, class, &node.pool)
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
/// The policy must suit the kind. The class is the named one, or a default class. A default applies
/// if no class is named, or if a service names a class with preemption. A debug class follows the
/// same rule.
fn class_suits(snapshot: &Snapshot, demand: &Demand, name: &str, class: &Class) -> bool {
    let named = demand.class.as_deref() == Some(name);
    let suits = match demand.kind {
        WorkKind::Job => true,
        WorkKind::Reservation if snapshot.tunables.settings.reserve_whole_nodes => {
            class.policy == Policy::Reserve
        }
        WorkKind::Service | WorkKind::Reservation => class.policy != Policy::FairShare,
    };
    let is_fair_share = |name: &String| {
        snapshot
            .classes
            .get(name)
            .is_some_and(|class| class.policy == Policy::FairShare)
    };
    let default_applies = match &demand.class {
        None => true,
        Some(name) => demand.kind == WorkKind::Service && is_fair_share(name),
    };
    let is_debug_class = demand.class.as_ref().is_some_and(|requested| {
        let requested = snapshot.classes.get(requested);
        is_fair_share_class(requested)
            && requested.and_then(|class| class.debug_class.as_deref()) == Some(name)
    });
    suits && (named || (class.default && default_applies) || (is_debug_class && default_applies))
}

fn is_fair_share_class(class: Option<&Class>) -> bool {
    class.is_some_and(|class| class.policy == Policy::FairShare)
}

/// Checks one grant by itself, without any sums. Returns its work and its node.
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
    let open = node.takes_work && !node.lost && !node.offline && node.block.is_none();
    if !open {
        return Err(Fault::NodeClosed(grant.node.clone()));
    }
    let listed = demand.node_list.is_empty() || demand.node_list.contains(&grant.node);
    if !listed {
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
        .filter(|class| may_use(holdings, grant, class))
        .ok_or_else(|| Fault::WrongClass(grant.class.to_string()))?;
    if grant.fixed == (class.policy == Policy::FairShare) {
        return Err(Fault::Misdescribed(grant.work.clone()));
    }
    if !reaches(snapshot, class, &node.pool) {
        let (class, node) = (grant.class.to_string(), grant.node.clone());
        return Err(Fault::OutsidePools { class, node });
    }
    check_size(snapshot, grant, demand, class, node)?;
    Ok((demand, node))
}

/// Returns whether the class allows the user. Work that already holds an allocation is always
/// allowed.
fn may_use(holdings: &Holdings, grant: &Grant, class: &Class) -> bool {
    class.users.is_empty()
        || class.users.contains(grant.user.as_str())
        || holdings.has_allocation(&grant.work)
}

/// Returns whether work of the class may use the pool. Only fair-share work may use pools below its
/// home.
fn reaches(snapshot: &Snapshot, class: &Class, pool: &str) -> bool {
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

fn check_size(
    snapshot: &Snapshot,
    grant: &Grant,
    demand: &Demand,
    class: &Class,
    node: &Node,
) -> Result<(), Fault> {
    let quantum = quantum_of(snapshot, &node.pool);
    let has_size = if class.policy == Policy::Reserve {
        demand.size.fits(&node.capacity)
            && grant.quanta == quantum.node_order(&node.capacity)
            && grant.size == node.capacity
            && whole_nodes::is_small_enough(snapshot, grant, demand, quantum)
    } else {
        let in_reach = |node: &&Node| reaches(snapshot, class, &node.pool);
        has_size_of(
            grant,
            &demand.size,
            quantum,
            snapshot.nodes.values().filter(in_reach),
        )
    };
    if has_size {
        return Ok(());
    }
    Err(Fault::WrongSize {
        granted: grant.quanta,
        needed: quantum.work_order(&demand.size),
    })
}

/// Returns whether a grant has the size of the work in whole quanta. The quanta are limited to
/// those of the largest node that fits the work.
fn has_size_of<'a>(
    grant: &Grant,
    requested: &Size,
    quantum: &Quantum,
    nodes: impl Iterator<Item = &'a Node>,
) -> bool {
    let needed = quantum.work_order(requested);
    if grant.quanta == needed {
        return grant.size == quantum.granted(requested);
    }
    let fitting = nodes.filter(|node| requested.fits(&node.capacity));
    let max = fitting.map(|node| quantum.node_order(&node.capacity)).max();
    grant.quanta < needed
        && max == Some(grant.quanta)
        && grant.size == quantum.granted_at(grant.quanta, requested)
}
