//! The second opinion on a plan, written apart from every planner: it knows the snapshot and the
//! rules, and shares no code with those who plan. It runs in tests and before each commit.
//!
//! Each violation names the grant or vacate it concerns, so that the rest of a plan stands.

mod anti_affinity;
mod could_place;
mod holdings;
pub(crate) mod node_load;
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

pub use could_place::CouldPlace;
pub use holdings::Holdings;
use totals::{Totals, bytes_of, held_of};

/// The part of a plan a violation concerns, by its place in the plan.
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
    ToldAlready(AllocationId),
    #[error("allocation {0} is never taken back for others")]
    NotTakeable(AllocationId),
    #[error("the reason given for allocation {0} is not true")]
    FalseReason(AllocationId),
    #[error("allocation {0} is purged, and its node can answer")]
    NeedlessPurge(AllocationId),
}

/// Reads all that is held; who checks one round after the other lets [`Holdings`] follow them.
///
/// # Errors
/// Everything in the plan that the snapshot does not allow, in the order of the plan.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Result<(), Vec<Violation>> {
    Holdings::of(snapshot).check(snapshot, plan)
}

/// The same as [`Holdings::prune`], of all that is held.
pub fn prune(snapshot: &Snapshot, plan: Plan) -> (Plan, Vec<Violation>) {
    Holdings::of(snapshot).prune(snapshot, plan)
}

impl Holdings {
    /// These holdings have to be those of the snapshot.
    ///
    /// # Errors
    /// Everything in the plan that the snapshot does not allow, in the order of the plan.
    pub fn check(&self, snapshot: &Snapshot, plan: &Plan) -> Result<(), Vec<Violation>> {
        let mut violations = Vec::new();
        let mut told = BTreeSet::new();
        for (at, vacate) in plan.vacates.iter().enumerate() {
            if let Err(fault) = check_vacate((snapshot, self), vacate, &mut told) {
                violations.push(Violation {
                    part: Part::Vacate(at),
                    fault,
                });
            }
        }
        let mut tally = Totals::of(self, &told);
        for (at, grant) in plan.grants.iter().enumerate() {
            let allowed = check_grant((snapshot, self), grant);
            let added = allowed.and_then(|named| tally.add(snapshot, grant, named));
            if let Err(fault) = added {
                violations.push(Violation {
                    part: Part::Grant(at),
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

    /// The plan without what violates, and what was wrong with it. Verdicts and shares stay as they
    /// were said; the next round says them anew.
    pub fn prune(&self, snapshot: &Snapshot, plan: Plan) -> (Plan, Vec<Violation>) {
        let mut plan = plan;
        let mut refused = Vec::new();
        // Dropping a vacate can make a grant one too many, so it is looked at again; each look
        // drops at least one part.
        while let Err(violations) = self.check(snapshot, &plan) {
            let parts: BTreeSet<Part> = violations.iter().map(|violation| violation.part).collect();
            let mut at = 0;
            plan.grants.retain(|_| {
                at += 1;
                !parts.contains(&Part::Grant(at - 1))
            });
            at = 0;
            plan.vacates.retain(|_| {
                at += 1;
                !parts.contains(&Part::Vacate(at - 1))
            });
            refused.extend(violations);
        }
        (plan, refused)
    }
}

fn check_vacate<'a>(
    (snapshot, holdings): (&Snapshot, &Holdings),
    vacate: &'a Vacate,
    told: &mut BTreeSet<&'a AllocationId>,
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
    let already = allocation.purged || (allocation.leaving && !vacate.purge);
    if already || told.contains(id) {
        return Err(Fault::ToldAlready(id.clone()));
    }
    let demand = snapshot.demand.get(&allocation.work);
    let withdrawn = demand.is_none();
    if allocation.kind == WorkKind::Reservation && !withdrawn {
        return Err(Fault::NotTakeable(id.clone()));
    }
    if allocation.fixed && vacate.reason == VacateReason::Preempted {
        return Err(Fault::NotTakeable(id.clone()));
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
        VacateReason::Blocked => block.is_some_and(|b| b.effect == BlockEffect::Evacuate),
        VacateReason::NodeLost => lost,
        VacateReason::NodeOffline => node.is_some_and(|node| node.offline) && !allocation.fixed,
        VacateReason::WorkGone => demand.is_none_or(|demand| has_no_class(snapshot, demand)),
    };
    if !is_true {
        return Err(Fault::FalseReason(id.clone()));
    }
    told.insert(id);
    Ok(())
}

/// Work loses processes on its own account when its limit is below what it has, when it starts
/// anew, or when it is over.
fn may_shrink(demand: &Demand, has: u64) -> bool {
    let starting = !demand.runnable || demand.task_ms.unwrap_or(0) == 0;
    demand.kind != WorkKind::Job || starting || has > demand.max_processes
}

///
fn is_misplaced(snapshot: &Snapshot, demand: &Demand, allocation: &Allocation) -> bool {
    let Some(node) = snapshot.nodes.get(&allocation.node) else {
        return false;
    };
    if demand.queued.is_some() {
        return false;
    }
    let here = |(name, class): (&String, &Class)| {
        class_suits(snapshot, demand, name, class) && reaches(snapshot, class, &node.pool)
    };
    let moves = !allocation.fixed || (demand.kind == WorkKind::Service && !demand.managed);
    moves && !snapshot.classes.iter().any(here)
}

/// The quantum of the tree a pool stands in.
pub(crate) fn quantum_of<'a>(snapshot: &'a Snapshot, pool: &str) -> &'a Quantum {
    let mut at = snapshot.pools.get(pool);
    for _ in 0..snapshot.pools.len() {
        let above = at.and_then(|pool| pool.parent.as_ref());
        let Some(above) = above.and_then(|name| snapshot.pools.get(name)) else {
            break;
        };
        at = Some(above);
    }
    at.and_then(|top| top.quantum.as_ref())
        .unwrap_or(&snapshot.quantum)
}

/// No class there is could serve it as it stands; of work in a queue, there are no queues.
fn has_no_class(snapshot: &Snapshot, demand: &Demand) -> bool {
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

/// The named class, or a default where none is named or where a service named one that takes room
/// back; and the policy has to suit the kind.
fn class_suits(snapshot: &Snapshot, demand: &Demand, name: &str, class: &Class) -> bool {
    let named = demand.class.as_deref() == Some(name);
    let suits = match demand.kind {
        WorkKind::Job => true,
        WorkKind::Reservation if snapshot.tunables.settings.reserve_whole_nodes => {
            class.policy == Policy::Reserve
        }
        WorkKind::Service | WorkKind::Reservation => class.policy != Policy::FairShare,
    };
    let takes_back = |name: &String| {
        snapshot
            .classes
            .get(name)
            .is_some_and(|class| class.policy == Policy::FairShare)
    };
    let steps_in = match &demand.class {
        None => true,
        Some(name) => demand.kind == WorkKind::Service && takes_back(name),
    };
    let stands_in = demand.class.as_ref().is_some_and(|asked| {
        let asked = snapshot.classes.get(asked);
        takes_back_named(asked) && asked.and_then(|a| a.debug.as_deref()) == Some(name)
    });
    suits && (named || (class.default && steps_in) || (stands_in && steps_in))
}

fn takes_back_named(class: Option<&Class>) -> bool {
    class.is_some_and(|class| class.policy == Policy::FairShare)
}

/// Returns the work and the node it names.
fn check_grant<'a>(
    (snapshot, holdings): (&'a Snapshot, &Holdings),
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
    let listed = demand.machines.is_empty() || demand.machines.contains(&grant.node);
    if !listed {
        return Err(Fault::NotListed(grant.node.clone()));
    }
    if demand.avoids.contains(&grant.node) {
        return Err(Fault::Avoided(grant.node.clone()));
    }
    if let Some(queued) = demand.queued.as_deref() {
        queues::check_grant(snapshot, grant, (demand, queued), node)?;
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
    check_size(snapshot, grant, (demand, class), node)?;
    Ok((demand, node))
}

/// The allow list is not asked again of work that holds room.
fn may_use(holdings: &Holdings, grant: &Grant, class: &Class) -> bool {
    class.users.is_empty()
        || class.users.contains(grant.user.as_str())
        || holdings.knows(&grant.work)
}

/// fair-share work may go below its home, other work not.
fn reaches(snapshot: &Snapshot, class: &Class, pool: &str) -> bool {
    let mut at = Some(pool);
    for _ in 0..=snapshot.pools.len() {
        let Some(name) = at else { return false };
        if name == class.pool {
            return snapshot.pools.contains_key(name);
        }
        if class.policy != Policy::FairShare {
            return false;
        }
        at = snapshot
            .pools
            .get(name)
            .and_then(|pool| pool.parent.as_deref());
    }
    false
}

fn check_size(
    snapshot: &Snapshot,
    grant: &Grant,
    (demand, class): (&Demand, &Class),
    node: &Node,
) -> Result<(), Fault> {
    let quantum = quantum_of(snapshot, &node.pool);
    let right = if class.policy == Policy::Reserve {
        demand.size.fits(&node.capacity)
            && grant.order == quantum.node_order(&node.capacity)
            && grant.size == node.capacity
            && whole_nodes::suits(snapshot, grant, demand, quantum)
    } else {
        let in_reach = |node: &&Node| reaches(snapshot, class, &node.pool);
        is_sized(
            grant,
            &demand.size,
            quantum,
            snapshot.nodes.values().filter(in_reach),
        )
    };
    if right {
        return Ok(());
    }
    Err(Fault::WrongSize {
        granted: grant.order,
        needed: quantum.work_order(&demand.size),
    })
}

/// Work is granted whole quanta. Where it asks for more than any node it fits holds in quanta, it
/// counts as the most that one of them holds.
fn is_sized<'a>(
    grant: &Grant,
    asked: &Size,
    quantum: &Quantum,
    nodes: impl Iterator<Item = &'a Node>,
) -> bool {
    let needed = quantum.work_order(asked);
    if grant.order == needed {
        return grant.size == quantum.granted(asked);
    }
    let fitting = nodes.filter(|node| asked.fits(&node.capacity));
    let most = fitting.map(|node| quantum.node_order(&node.capacity)).max();
    grant.order < needed
        && most == Some(grant.order)
        && grant.size == quantum.granted_at(grant.order, asked)
}
