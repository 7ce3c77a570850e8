//! Sums of the holdings and a plan. Grants are added one by one, and each is checked: no node,
//! work, user or queue exceeds its limit.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, Size, UserName, WorkId, WorkKind};
use rustc_hash::FxHashMap;

use super::{
    Fault,
    holdings::Holdings,
    node_load::NodeLoad,
    quantum_of,
    queues::{self, ChargedAccounts},
};
use crate::{
    input::snapshot::{Allocation, Demand, GPU_MILLI, Node, Policy, Snapshot},
    output::plan::Grant,
};

/// Holdings with the changes of a plan.
pub(super) struct Totals<'a> {
    holdings: &'a Holdings,
    /// Load of each node with a grant, including present allocations.
    nodes: FxHashMap<&'a NodeName, NodeLoad>,
    /// Number of vacated processes, by work.
    vacated: FxHashMap<&'a WorkId, u64>,
    /// Nodes of the granted processes, by work.
    granted: FxHashMap<&'a WorkId, Vec<&'a NodeName>>,
    /// Bytes of grants that are never preempted, by user and class.
    fixed: BTreeMap<(&'a UserName, &'a str), u64>,
    queues: queues::QueueSums,
}

impl<'a> Totals<'a> {
    pub fn new(holdings: &'a Holdings, vacated: &BTreeSet<&AllocationId>) -> Self {
        let mut totals = Self {
            holdings,
            nodes: FxHashMap::default(),
            vacated: FxHashMap::default(),
            granted: FxHashMap::default(),
            fixed: BTreeMap::new(),
            queues: queues::QueueSums::default(),
        };
        for work in vacated.iter().filter_map(|id| holdings.work_of_staying(id)) {
            *totals.vacated.entry(work).or_default() += 1;
        }
        totals
    }

    /// Adds a grant if it is within all limits. `demand` and `node` are those that the grant names.
    pub fn add(
        &mut self,
        snapshot: &'a Snapshot,
        grant: &'a Grant,
        demand: &Demand,
        node: &Node,
    ) -> Result<(), Fault> {
        self.check_limits(snapshot, grant, demand, node)?;
        let queued = demand.queued.is_some();
        let tree = queues::tree_of(snapshot, &node.pool).filter(|_| queued);
        if let Some((tree, _)) = tree {
            let charged = ChargedAccounts {
                tree,
                path: &grant.class,
                user: &grant.user,
                group: grant.group.as_deref(),
            };
            self.queues.add(charged, &grant.size);
        }
        let nodes = self.granted.entry(&grant.work).or_default();
        nodes.push(&grant.node);
        let present_load = || {
            self.holdings
                .load_on(&grant.node)
                .cloned()
                .unwrap_or_default()
        };
        let load = self.nodes.entry(&grant.node).or_insert_with(present_load);
        load.add(grant.quanta, &grant.size, &grant.gpus);
        if grant.fixed {
            let bytes = bytes_of(snapshot, &grant.class, grant.quanta);
            let sum = self.fixed.entry((&grant.user, &grant.class)).or_default();
            *sum = sum.saturating_add(bytes);
        }
        Ok(())
    }

    /// Checks that a grant is within all limits. Does not add it.
    pub fn check_limits(
        &self,
        snapshot: &Snapshot,
        grant: &Grant,
        demand: &Demand,
        node: &Node,
    ) -> Result<(), Fault> {
        let is_single = grant.kind != WorkKind::Job;
        let max = if is_single {
            demand.max_processes.min(1)
        } else {
            demand.max_processes
        };
        if !self.keeps_apart(snapshot, grant) {
            return Err(Fault::NotApart(grant.node.clone()));
        }
        if self.process_count(&grant.work) >= max {
            return Err(Fault::TooMany {
                work: grant.work.clone(),
                most: max,
            });
        }
        let load = self.nodes.get(&grant.node);
        let load = load.or_else(|| self.holdings.load_on(&grant.node));
        let mut sum = load.cloned().unwrap_or_default();
        sum.add(grant.quanta, &grant.size, &grant.gpus);
        let capacity = quantum_of(snapshot, &node.pool).quanta_of_node(&node.capacity);
        if sum.quanta > capacity || !sum.is_within(&node.capacity, &grant.size) {
            return Err(Fault::NoRoom(grant.node.clone()));
        }
        let distinct_gpus = grant.gpus.iter().collect::<BTreeSet<_>>().len() as u64;
        let needed = grant.size.gpu_milli.div_ceil(GPU_MILLI);
        let has_gpus = distinct_gpus == needed && grant.gpus.len() as u64 == needed;
        let is_whole_node = grant.fixed && grant.size == node.capacity;
        let gpus_fit = sum.gpus_are_within(&node.capacity, &grant.gpus);
        if !(has_gpus || is_whole_node) || !gpus_fit {
            let (node, gpus) = (grant.node.clone(), grant.gpus.clone());
            return Err(Fault::WrongGpus { node, gpus });
        }
        let tree = queues::tree_of(snapshot, &node.pool).filter(|_| demand.queued.is_some());
        if let Some((tree, queues)) = tree {
            let held = &self.holdings.queues;
            held.check(&self.queues, queues, tree, grant)?;
        }
        if grant.fixed {
            self.check_allotment(snapshot, grant)?;
        }
        Ok(())
    }

    /// Returns the number of processes of the work after the plan so far.
    fn process_count(&self, work: &WorkId) -> u64 {
        let vacated = self.vacated.get(work).copied().unwrap_or(0);
        let granted = self.granted.get(work).map_or(0, Vec::len) as u64;
        self.holdings.staying(work).saturating_sub(vacated) + granted
    }

    fn keeps_apart(&self, snapshot: &Snapshot, grant: &Grant) -> bool {
        let groups = &self.holdings.groups;
        groups.keeps_apart(snapshot, grant, |work| {
            let granted = self.granted.get(work).into_iter().flatten().copied();
            self.holdings.nodes_of(work).iter().chain(granted)
        })
    }

    /// Checks the allotment of the user. A limit for the class counts only allocations of that
    /// class; other limits count all.
    fn check_allotment(&self, snapshot: &Snapshot, grant: &Grant) -> Result<(), Fault> {
        let user = snapshot.users.get(&grant.user);
        let class_limit = user.and_then(|user| user.max_allotment_by_class.get(&*grant.class));
        let user_limit = user.and_then(|user| user.max_allotment_bytes);
        let held = self.holdings.fixed.iter();
        let held = held.map(|((user, class), bytes)| (user, class.as_str(), *bytes));
        let planned = self.fixed.iter();
        let planned = planned.map(|((user, class), bytes)| (*user, *class, *bytes));
        let counted = held.chain(planned).filter(|(user, class, _)| {
            **user == grant.user && (class_limit.is_none() || *class == &*grant.class)
        });
        let bytes = bytes_of(snapshot, &grant.class, grant.quanta);
        let would_hold = counted.fold(bytes, |sum, (.., bytes)| sum.saturating_add(bytes));
        let limit = class_limit
            .copied()
            .or(user_limit)
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
}

/// Returns the size that an allocation holds. For a whole node, this is its size in whole quanta
///
pub(crate) fn held_size(snapshot: &Snapshot, allocation: &Allocation) -> Size {
    let class = snapshot.classes.get(&allocation.class);
    match class.filter(|class| class.policy == Policy::Reserve && allocation.fixed) {
        Some(class) => quantum_of(snapshot, &class.pool).whole(allocation.quanta, &allocation.size),
        None => allocation.size.clone(),
    }
}

/// Returns the bytes of these quanta, in the tree of the class.
pub(super) fn bytes_of(snapshot: &Snapshot, class: &str, quanta: u64) -> u64 {
    let pool = snapshot.classes.get(class).map(|class| class.pool.as_str());
    let quantum = quantum_of(snapshot, pool.unwrap_or_default());
    quanta.saturating_mul(quantum.0.memory_bytes)
}
