//! One externally planned pool at the beginning of a round: its work and allocations.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{
    Snapshot,
    largest_nodes::{LargestNodes, process_quanta},
    plan::Vacate,
    snapshot::{Allocation, Class, Demand, Node, Policy, external_planners::RecentPreemptions},
};
use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, WorkId, WorkKind};

use crate::external_pool_trees::{ExternalPoolTrees, quantum_of};
use crate::recent_preemptions;

pub(crate) struct PoolView<'a> {
    pub snapshot: &'a Snapshot,
    pub trees: &'a ExternalPoolTrees,
    /// The top-level pool.
    pub top: &'a str,
    pub quantum: &'a Quantum,
    pub work: BTreeMap<&'a WorkId, WorkItem<'a>>,
    /// Recent preemptions by responses.
    pub preemptions: RecentPreemptions,
    /// Allocations that this planner may end, on any node.
    pub allocations: BTreeMap<&'a AllocationId, &'a Allocation>,
}

/// A work item and its processes.
pub(crate) struct WorkItem<'a> {
    pub demand: &'a Demand,
    pub class_name: &'a str,
    pub class: &'a Class,
    /// Quanta of one process.
    pub quanta: u64,
    /// Resources of one process, unless it gets a whole node.
    pub size: Size,
    /// Number of processes that stay, including those granted in this round.
    pub current: u64,
    pub leaving: u64,
}

impl WorkItem<'_> {
    /// Returns true if the work may use its class. Work with allocations needs no check of the
    /// allow list.
    pub fn may_use_its_class(&self) -> bool {
        let users = &self.class.users;
        let has_allocations = self.current > 0 || self.leaving > 0;
        users.is_empty() || users.contains(self.demand.user.as_str()) || has_allocations
    }

    pub fn max_processes(&self) -> u64 {
        match self.demand.kind {
            WorkKind::Job => self.demand.max_processes,
            _ => self.demand.max_processes.min(1),
        }
    }

    /// Returns the number of processes that the work can use now.
    pub fn wanted(&self) -> u64 {
        let demand = self.demand;
        if demand.completing || demand.keeps_what_it_holds {
            return self.current;
        }
        if demand.kind != WorkKind::Job {
            return self.max_processes();
        }
        let threads = u64::from(demand.threads.max(1));
        self.max_processes()
            .min(demand.remaining_tasks.div_ceil(threads))
    }

    pub fn missing(&self) -> u64 {
        if self.may_use_its_class() {
            self.wanted().saturating_sub(self.current)
        } else {
            0
        }
    }
}

impl<'a> PoolView<'a> {
    pub fn new(snapshot: &'a Snapshot, trees: &'a ExternalPoolTrees, top: &'a str) -> Self {
        let quantum = quantum_of(snapshot, top);
        let largest = LargestNodes::by_class(snapshot);
        let work = snapshot.demand.iter().filter_map(|(work, demand)| {
            let in_pool = trees.top_of_work(snapshot, demand) == Some(top);
            let (class_name, class) = class_of(snapshot, demand).filter(|_| in_pool)?;
            let quanta = process_quanta(quantum, &demand.size, largest.get(class_name));
            let item = WorkItem {
                demand,
                class_name,
                class,
                quanta,
                size: quantum.granted_at(quanta, &demand.size),
                current: 0,
                leaving: 0,
            };
            Some((work, item))
        });
        let mut view = Self {
            snapshot,
            trees,
            top,
            quantum,
            work: work.collect(),
            preemptions: recent_preemptions::recent_preemptions(snapshot, top),
            allocations: BTreeMap::new(),
        };
        for (id, allocation) in &snapshot.allocations {
            if trees.top_of_allocation(snapshot, allocation) != Some(top) {
                continue;
            }
            view.allocations.insert(id, allocation);
            if let Some(item) = view.work.get_mut(&allocation.work) {
                let is_leaving = allocation.leaving || allocation.purged;
                let count = if is_leaving {
                    &mut item.leaving
                } else {
                    &mut item.current
                };
                *count += 1;
            }
        }
        view
    }

    /// Counts the processes that these vacates end.
    pub fn count_vacates(&mut self, vacates: &[Vacate]) {
        for vacate in vacates {
            let allocation = self.allocations.get(&vacate.allocation).copied();
            let staying = allocation.filter(|allocation| !allocation.leaving && !allocation.purged);
            if let Some(allocation) = staying
                && let Some(item) = self.work.get_mut(&allocation.work)
            {
                item.current = item.current.saturating_sub(1);
                item.leaving += 1;
            }
        }
    }

    /// Returns the nodes of this pool and of all pools below it.
    pub fn nodes(&self) -> impl Iterator<Item = (&'a NodeName, &'a Node)> {
        let nodes = self.snapshot.nodes.iter();
        nodes.filter(|(_, node)| self.trees.top_of_pool(&node.pool) == Some(self.top))
    }

    /// Returns true if work of the class may use the pool. Fair-share work may use pools below its
    /// own, other work may not.
    pub fn may_use_pool(&self, class: &Class, pool: &str) -> bool {
        let parent_of = |name: &&str| {
            let parent = self.snapshot.pools.get(*name)?.parent.as_ref()?;
            let parent = self.snapshot.pools.get_key_value(parent)?;
            Some(parent.0.as_str())
        };
        let pool = self.snapshot.pools.get_key_value(pool);
        let path = std::iter::successors(pool.map(|(name, _)| name.as_str()), parent_of);
        let max_depth = match class.policy {
            Policy::FairShare => self.snapshot.pools.len(),
            _ => 1,
        };
        path.take(max_depth).any(|name| name == class.pool)
    }
}

fn class_of<'a>(snapshot: &'a Snapshot, demand: &'a Demand) -> Option<(&'a str, &'a Class)> {
    let name = hayward_rm_scheduler_domain::serving_class(snapshot, demand)?;
    Some((name, snapshot.classes.get(name)?))
}
