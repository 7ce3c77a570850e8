//! What is held once a plan is carried out, part by part: no node, work, user or queue has more
//! than it may.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, Size, UserName, WorkId, WorkKind};

use super::{
    Fault,
    apart::Groups,
    load::Load,
    quantum_of,
    queues::{self, Held},
};
use crate::{
    plan::Grant,
    snapshot::{Allocation, GPU_MILLI, Policy, Snapshot},
};

/// Sums over everything that is held, to which grants are added one by one.
pub(super) struct Tally<'a> {
    /// What leaves is in here: it occupies its node until it is gone.
    nodes: BTreeMap<&'a NodeName, Load>,
    /// Processes that stay, by work.
    work: BTreeMap<&'a WorkId, u64>,
    /// Bytes, by user and class.
    fixed: BTreeMap<(&'a UserName, &'a str), u64>,
    groups: Groups<'a>,
    queues: Held<'a>,
}

impl<'a> Tally<'a> {
    pub fn of(snapshot: &'a Snapshot, told: &BTreeSet<&AllocationId>) -> Self {
        let mut tally = Self {
            nodes: BTreeMap::new(),
            work: BTreeMap::new(),
            fixed: BTreeMap::new(),
            groups: Groups::default(),
            queues: Held::default(),
        };
        for (id, allocation) in &snapshot.allocations {
            tally.queue(snapshot, allocation);
            tally
                .groups
                .join(snapshot, (&allocation.work, &allocation.node));
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

    /// What lies on a node.
    pub fn on(&self, node: &NodeName) -> Option<&Load> {
        self.nodes.get(node)
    }

    fn queue(&mut self, snapshot: &'a Snapshot, held: &'a Allocation) {
        if snapshot.queues.is_empty() {
            return;
        }
        let node = snapshot.nodes.get(&held.node);
        if let Some((tree, _)) = node.and_then(|node| queues::tree_of(snapshot, &node.pool)) {
            let who = (&held.user, held.group.as_deref());
            self.queues.add((tree, &held.class), who, &held.size);
        }
    }

    /// Something of it is held, be it that it leaves.
    pub fn knows(&self, work: &WorkId) -> bool {
        self.work.contains_key(work)
    }

    pub fn add(&mut self, snapshot: &'a Snapshot, grant: &'a Grant) -> Result<(), Fault> {
        self.would_take(snapshot, grant)?;
        let node = snapshot.nodes.get(&grant.node);
        let queued = snapshot.demand.get(&grant.work);
        let queued = queued.is_some_and(|it| it.queued.is_some());
        let tree = node.and_then(|node| queues::tree_of(snapshot, &node.pool));
        if let Some((tree, _)) = tree.filter(|_| queued) {
            let who = (&grant.user, grant.group.as_deref());
            self.queues.add((tree, &grant.class), who, &grant.size);
        }
        *self.work.entry(&grant.work).or_default() += 1;
        let on_node = self.nodes.entry(&grant.node).or_default();
        on_node.add(grant.order, &grant.size, &grant.gpus);
        self.groups.join(snapshot, (&grant.work, &grant.node));
        if grant.fixed {
            let bytes = bytes_of(snapshot, &grant.class, grant.order);
            *self.fixed.entry((&grant.user, &grant.class)).or_default() += bytes;
        }
        Ok(())
    }

    /// What speaks against this one beside all that is held; nothing is added.
    pub fn would_take(&self, snapshot: &Snapshot, grant: &Grant) -> Result<(), Fault> {
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
        if !self.groups.are_apart(snapshot, grant) {
            return Err(Fault::NotApart(grant.node.clone()));
        }
        if self.work.get(&grant.work).copied().unwrap_or(0) >= most {
            return Err(Fault::TooMany {
                work: grant.work.clone(),
                most,
            });
        }
        let mut sum = self.nodes.get(&grant.node).cloned().unwrap_or_default();
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
        let tree = queues::tree_of(snapshot, &node.pool).filter(|_| demand.queued.is_some());
        if let Some((tree, queues)) = tree {
            self.queues.allow(queues, tree, grant)?;
        }
        if grant.fixed {
            let bytes = bytes_of(snapshot, &grant.class, grant.order);
            check_allotment(snapshot, grant, bytes, &self.fixed)?;
        }
        Ok(())
    }
}

/// of a whole node, its order in quanta.
pub(crate) fn held_of(snapshot: &Snapshot, allocation: &Allocation) -> Size {
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
