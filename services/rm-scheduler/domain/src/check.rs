//! The second opinion on a plan, written apart from every planner: it knows the snapshot and the
//! rules, and shares no code with those who plan. It runs in tests and before each commit.
//!
//! Each violation names the grant or vacate it concerns, so that the rest of a plan stands.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    plan::{Grant, Plan, Vacate, VacateReason},
    snapshot::{Allocation, BlockEffect, Class, Demand, GPU_MILLI, Node, Policy, Snapshot},
};

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

/// # Errors
/// Everything in the plan that the snapshot does not allow, in the order of the plan.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Result<(), Vec<Violation>> {
    let mut violations = Vec::new();
    let mut told = BTreeSet::new();
    for (at, vacate) in plan.vacates.iter().enumerate() {
        if let Err(fault) = check_vacate(snapshot, vacate, &mut told) {
            violations.push(Violation {
                part: Part::Vacate(at),
                fault,
            });
        }
    }
    let mut tally = Tally::of(snapshot, &told);
    for (at, grant) in plan.grants.iter().enumerate() {
        let allowed = check_grant(snapshot, grant).and_then(|()| tally.add(snapshot, grant));
        if let Err(fault) = allowed {
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
pub fn prune(snapshot: &Snapshot, plan: Plan) -> (Plan, Vec<Violation>) {
    let mut plan = plan;
    let mut refused = Vec::new();
    // Dropping a vacate can make a grant one too many, so it is looked at again; each look drops at
    // least one part.
    while let Err(violations) = check(snapshot, &plan) {
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

fn check_vacate<'a>(
    snapshot: &Snapshot,
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
        VacateReason::OwnLimit => demand.is_some_and(|demand| may_shrink(snapshot, demand)),
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
fn may_shrink(snapshot: &Snapshot, demand: &Demand) -> bool {
    let starting = !demand.runnable || demand.task_ms.unwrap_or(0) == 0;
    let limited = || {
        let mine = |(_, allocation): &(&AllocationId, &Allocation)| {
            let of_work = snapshot.demand.get(&allocation.work);
            let stays = !allocation.leaving && !allocation.purged;
            stays && of_work.is_some_and(|other| std::ptr::eq(other, demand))
        };
        let has = snapshot.allocations.iter().filter(mine).count() as u64;
        has > demand.max_processes
    };
    demand.kind != WorkKind::Job || starting || limited()
}

///
fn is_misplaced(snapshot: &Snapshot, demand: &Demand, allocation: &Allocation) -> bool {
    let Some(node) = snapshot.nodes.get(&allocation.node) else {
        return false;
    };
    let here = |(name, class): (&String, &Class)| {
        class_suits(snapshot, demand, name, class) && reaches(snapshot, class, &node.pool)
    };
    let moves = !allocation.fixed || (demand.kind == WorkKind::Service && !demand.managed);
    moves && !snapshot.classes.iter().any(here)
}

/// The quantum of the tree a pool stands in.
fn quantum_of<'a>(snapshot: &'a Snapshot, pool: &str) -> &'a Quantum {
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

/// No class there is could serve it as it stands.
fn has_no_class(snapshot: &Snapshot, demand: &Demand) -> bool {
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

fn check_grant(snapshot: &Snapshot, grant: &Grant) -> Result<(), Fault> {
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
    let class = snapshot
        .classes
        .get(&grant.class)
        .filter(|class| {
            class_suits(snapshot, demand, &grant.class, class) && may_use(snapshot, grant, class)
        })
        .ok_or_else(|| Fault::WrongClass(grant.class.clone()))?;
    if grant.fixed == (class.policy == Policy::FairShare) {
        return Err(Fault::Misdescribed(grant.work.clone()));
    }
    if !reaches(snapshot, class, &node.pool) {
        let (class, node) = (grant.class.clone(), grant.node.clone());
        return Err(Fault::OutsidePools { class, node });
    }
    if !demand.machines.is_empty() && !demand.machines.contains(&grant.node) {
        return Err(Fault::NotListed(grant.node.clone()));
    }
    if demand.avoids.contains(&grant.node) {
        return Err(Fault::Avoided(grant.node.clone()));
    }
    check_size(snapshot, grant, (demand, class), node)
}

/// The allow list is not asked again of work that holds room.
fn may_use(snapshot: &Snapshot, grant: &Grant, class: &Class) -> bool {
    class.users.is_empty()
        || class.users.contains(grant.user.as_str())
        || snapshot
            .allocations
            .values()
            .any(|allocation| allocation.work == grant.work)
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
    } else {
        grant.order == quantum.work_order(&demand.size)
            && grant.size == quantum.granted(&demand.size)
    };
    if right {
        return Ok(());
    }
    Err(Fault::WrongSize {
        granted: grant.order,
        needed: quantum.work_order(&demand.size),
    })
}

/// Sums over everything that is held, to which grants are added one by one.
struct Tally<'a> {
    /// What leaves is in here: it occupies its node until it is gone.
    nodes: BTreeMap<&'a NodeName, Load>,
    /// Processes that stay, by work.
    work: BTreeMap<&'a WorkId, u64>,
    /// Bytes, by user and class.
    fixed: BTreeMap<(&'a UserName, &'a str), u64>,
}

/// What lies on one node.
#[derive(Clone, Default)]
struct Load {
    order: u64,
    size: Size,
    /// Thousandths in use, by gpu.
    gpus: BTreeMap<u64, u64>,
}

impl Load {
    fn add(&mut self, order: u64, size: &Size, gpus: &[u64]) {
        self.order = self.order.saturating_add(order);
        self.size.add(size);
        for gpu in gpus {
            *self.gpus.entry(*gpu).or_default() += size.gpu_milli.min(GPU_MILLI);
        }
    }

    /// Every gpu is there and takes no more than it has.
    fn gpus_suffice(&self, capacity: &Size) -> bool {
        self.gpus.iter().all(|(gpu, used)| {
            let before = gpu.saturating_mul(GPU_MILLI);
            *used <= capacity.gpu_milli.saturating_sub(before).min(GPU_MILLI)
        })
    }
}

impl<'a> Tally<'a> {
    fn of(snapshot: &'a Snapshot, told: &BTreeSet<&AllocationId>) -> Self {
        let mut tally = Self {
            nodes: BTreeMap::new(),
            work: BTreeMap::new(),
            fixed: BTreeMap::new(),
        };
        for (id, allocation) in &snapshot.allocations {
            let on_node = tally.nodes.entry(&allocation.node).or_default();
            let size = held_of(snapshot, allocation);
            on_node.add(allocation.order, &size, &allocation.gpus);
            let stays = !allocation.leaving && !allocation.purged && !told.contains(id);
            *tally.work.entry(&allocation.work).or_default() += u64::from(stays);
            if allocation.fixed {
                let key = (&allocation.user, allocation.class.as_str());
                let bytes = bytes_of(snapshot, &allocation.class, allocation.order);
                *tally.fixed.entry(key).or_default() += bytes;
            }
        }
        tally
    }

    fn add(&mut self, snapshot: &Snapshot, grant: &'a Grant) -> Result<(), Fault> {
        let (Some(node), Some(demand)) = (
            snapshot.nodes.get(&grant.node),
            snapshot.demand.get(&grant.work),
        ) else {
            return Err(Fault::UnknownNode(grant.node.clone()));
        };
        let single = grant.kind != WorkKind::Job;
        let most = if single {
            demand.max_processes.min(1)
        } else {
            demand.max_processes
        };
        let has = self.work.entry(&grant.work).or_default();
        if *has >= most {
            return Err(Fault::TooMany {
                work: grant.work.clone(),
                most,
            });
        }
        let on_node = self.nodes.entry(&grant.node).or_default();
        let mut sum = on_node.clone();
        sum.add(grant.order, &grant.size, &grant.gpus);
        let holds = quantum_of(snapshot, &node.pool).node_order(&node.capacity);
        if sum.order > holds || !sum.size.fits(&node.capacity) {
            return Err(Fault::NoRoom(grant.node.clone()));
        }
        let distinct = grant.gpus.iter().collect::<BTreeSet<_>>().len() as u64;
        let needed = grant.size.gpu_milli.div_ceil(GPU_MILLI);
        let enough = distinct == needed && grant.gpus.len() as u64 == needed;
        let whole = grant.fixed && grant.size == node.capacity;
        if !(enough || whole) || !sum.gpus_suffice(&node.capacity) {
            let (node, gpus) = (grant.node.clone(), grant.gpus.clone());
            return Err(Fault::WrongGpus { node, gpus });
        }
        let bytes = bytes_of(snapshot, &grant.class, grant.order);
        if grant.fixed {
            check_allotment(snapshot, grant, bytes, &self.fixed)?;
        }
        *has += 1;
        *on_node = sum;
        if grant.fixed {
            *self.fixed.entry((&grant.user, &grant.class)).or_default() += bytes;
        }
        Ok(())
    }
}

/// of a whole node, its order in quanta.
fn held_of(snapshot: &Snapshot, allocation: &Allocation) -> Size {
    let class = snapshot.classes.get(&allocation.class);
    match class.filter(|it| it.policy == Policy::Reserve && allocation.fixed) {
        Some(class) => quantum_of(snapshot, &class.pool).whole(allocation.order, &allocation.size),
        None => allocation.size.clone(),
    }
}

fn bytes_of(snapshot: &Snapshot, class: &str, order: u64) -> u64 {
    let pool = snapshot.classes.get(class).map(|class| class.pool.as_str());
    let quantum = quantum_of(snapshot, pool.unwrap_or_default());
    order.saturating_mul(quantum.0.memory_bytes)
}

/// the limit of the class alone where the user has one there, else of everything together.
fn check_allotment(
    snapshot: &Snapshot,
    grant: &Grant,
    bytes: u64,
    fixed: &BTreeMap<(&UserName, &str), u64>,
) -> Result<(), Fault> {
    let own = snapshot.users.get(&grant.user);
    let of_class = own.and_then(|user| user.max_allotment_by_class.get(&grant.class));
    let of_user = own.and_then(|user| user.max_allotment_bytes);
    let mine = fixed.iter().filter(|((user, class), _)| {
        **user == grant.user && (of_class.is_none() || *class == grant.class)
    });
    let would_hold = mine.map(|(_, bytes)| bytes).sum::<u64>() + bytes;
    let limit = of_class
        .copied()
        .or(of_user)
        .or(snapshot.tunables.global_allotment_bytes);
    match limit {
        Some(limit) if would_hold > limit => Err(Fault::OverAllotment {
            user: grant.user.clone(),
            would_hold,
            limit,
        }),
        _ => Ok(()),
    }
}
