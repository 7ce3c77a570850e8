//! One externally planned pool at the beginning of a round: its work and allocations.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{
    Snapshot,
    largest::{LargestNodes, order_of},
    plan::Vacate,
    snapshot::{Allocation, Class, Demand, Node, Policy, outside::Moved},
};
use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, WorkId, WorkKind};

use crate::recent_moves;
use crate::trees::{Trees, quantum_of};

pub(crate) struct PoolView<'a> {
    pub snapshot: &'a Snapshot,
    pub trees: &'a Trees,
    /// The top-level pool.
    pub top: &'a str,
    pub quantum: &'a Quantum,
    pub work: BTreeMap<&'a WorkId, WorkItem<'a>>,
    /// Recent preemptions by responses.
    pub moved: Moved,
    /// Allocations that this planner may end, on any node.
    pub held: BTreeMap<&'a AllocationId, &'a Allocation>,
}

/// A work item and its processes.
pub(crate) struct WorkItem<'a> {
    pub demand: &'a Demand,
    pub class_name: &'a str,
    pub class: &'a Class,
    /// Quanta of one process.
    pub order: u64,
    /// Resources of one process, unless it gets a whole node.
    pub size: Size,
    /// Number of processes that stay, including those granted in this round.
    pub has: u64,
    pub leaving: u64,
}

impl WorkItem<'_> {
    /// Returns true if the work may use its class. Work with allocations needs no check of the
    /// allow list.
    pub fn may_use_its_class(&self) -> bool {
        let users = &self.class.users;
        let holds = self.has > 0 || self.leaving > 0;
        users.is_empty() || users.contains(self.demand.user.as_str()) || holds
    }

    pub fn most(&self) -> u64 {
        match self.demand.kind {
            WorkKind::Job => self.demand.max_processes,
            _ => self.demand.max_processes.min(1),
        }
    }

    /// Returns the number of processes that the work can use now.
    pub fn wanted(&self) -> u64 {
        let demand = self.demand;
        if demand.completing || demand.keeps_what_it_holds {
            return self.has;
        }
        if demand.kind != WorkKind::Job {
            return self.most();
        }
        let threads = u64::from(demand.threads.max(1));
        self.most().min(demand.remaining_tasks.div_ceil(threads))
    }

    pub fn missing(&self) -> u64 {
        if self.may_use_its_class() {
            self.wanted().saturating_sub(self.has)
        } else {
            0
        }
    }
}

impl<'a> PoolView<'a> {
    pub fn new(snapshot: &'a Snapshot, trees: &'a Trees, top: &'a str) -> Self {
        let quantum = quantum_of(snapshot, top);
        let largest = LargestNodes::by_class(snapshot);
        let work = snapshot.demand.iter().filter_map(|(work, demand)| {
            let here = trees.of_work(snapshot, demand) == Some(top);
            let (class_name, class) = class_of(snapshot, demand).filter(|_| here)?;
            let order = order_of(quantum, &demand.size, largest.get(class_name));
            let item = WorkItem {
                demand,
                class_name,
                class,
                order,
                size: quantum.granted_at(order, &demand.size),
                has: 0,
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
            moved: recent_moves::recent(snapshot, top),
            held: BTreeMap::new(),
        };
        for (id, held) in &snapshot.allocations {
            if trees.of_held(snapshot, held) != Some(top) {
                continue;
            }
            view.held.insert(id, held);
            if let Some(item) = view.work.get_mut(&held.work) {
                let leaves = held.leaving || held.purged;
                let count = if leaves {
                    &mut item.leaving
                } else {
                    &mut item.has
                };
                *count += 1;
            }
        }
        view
    }

    /// Counts the processes that these vacates end.
    pub fn leave(&mut self, orders: &[Vacate]) {
        for order in orders {
            let held = self.held.get(&order.allocation).copied();
            let stays = held.filter(|held| !held.leaving && !held.purged);
            if let Some(held) = stays
                && let Some(item) = self.work.get_mut(&held.work)
            {
                item.has = item.has.saturating_sub(1);
                item.leaving += 1;
            }
        }
    }

    /// Returns the nodes of this pool and of all pools below it.
    pub fn nodes(&self) -> impl Iterator<Item = (&'a NodeName, &'a Node)> {
        let nodes = self.snapshot.nodes.iter();
        nodes.filter(|(_, node)| self.trees.of_pool(&node.pool) == Some(self.top))
    }

    /// Returns true if work of the class may use the pool. Fair-share work may use pools below its
    /// own, other work may not.
    pub fn reaches(&self, class: &Class, pool: &str) -> bool {
        let above = |name: &&str| {
            let parent = self.snapshot.pools.get(*name)?.parent.as_ref()?;
            let parent = self.snapshot.pools.get_key_value(parent)?;
            Some(parent.0.as_str())
        };
        let own = self.snapshot.pools.get_key_value(pool);
        let path = std::iter::successors(own.map(|(name, _)| name.as_str()), above);
        let far = match class.policy {
            Policy::FairShare => self.snapshot.pools.len(),
            _ => 1,
        };
        path.take(far).any(|name| name == class.pool)
    }
}

fn class_of<'a>(snapshot: &'a Snapshot, demand: &'a Demand) -> Option<(&'a str, &'a Class)> {
    let name = hayward_rm_scheduler_domain::served_in(snapshot, demand)?;
    Some((name, snapshot.classes.get(name)?))
}
