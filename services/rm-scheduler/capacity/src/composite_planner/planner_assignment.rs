//! Assigns pools, work and allocations to their planner: fair shares, or another planner (queues or
//! an external planner).

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Snapshot, Verdict,
    snapshot::{Allocation, Demand, User},
};
use hayward_rm_scheduler_external_planner::ExternalPoolTrees;
use hayward_vocabulary::UserName;

/// The planner that an allocation belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AssignedPlanner {
    FairShare,
    /// Queues, or an external planner.
    Other,
}

/// Pools that other planners plan, with all pools below them.
#[derive(Debug, Default)]
pub(super) struct PlannerAssignment {
    /// Pools with queues.
    queue_pools: BTreeSet<String>,
    /// Pool of each class whose pool has queues, by class.
    queue_classes: BTreeMap<String, String>,
    external_trees: ExternalPoolTrees,
}

impl PlannerAssignment {
    pub fn new(snapshot: &Snapshot) -> Self {
        let external_trees = ExternalPoolTrees::new(snapshot);
        if snapshot.queues.is_empty() {
            return Self {
                external_trees,
                ..Self::default()
            };
        }
        let has_queues = |name: &str| -> bool {
            let parent_of = |name: &&str| {
                let pool = snapshot.pools.get(*name)?;
                pool.parent.as_deref()
            };
            let path = std::iter::successors(Some(name), parent_of);
            let root = path.take(snapshot.pools.len() + 1).last();
            root.is_some_and(|root| snapshot.queues.contains_key(root))
        };
        let queue_pools = snapshot.pools.keys().filter(|name| has_queues(name));
        let queue_pools: BTreeSet<String> = queue_pools.cloned().collect();
        let queue_classes = snapshot.classes.iter();
        let queue_classes = queue_classes.filter(|(_, class)| queue_pools.contains(&class.pool));
        let queue_classes = queue_classes.map(|(name, class)| (name.clone(), class.pool.clone()));
        Self {
            queue_classes: queue_classes.collect(),
            queue_pools,
            external_trees,
        }
    }

    /// Returns the users with the allotments that externally planned work leaves to fair shares.
    /// `None` if there are no external planners.
    pub fn remaining_allotments(&self, snapshot: &Snapshot) -> Option<BTreeMap<UserName, User>> {
        let trees = &self.external_trees;
        (!trees.is_empty()).then(|| trees.allotments(snapshot))
    }

    /// Returns true if queues or an external planner plan the pool.
    pub fn has_other_planner(&self, pool: &str) -> bool {
        self.queue_pools.contains(pool) || self.external_trees.top_of_pool(pool).is_some()
    }

    /// Returns true if the fair-share planner plans the work.
    pub fn is_fair_share(&self, snapshot: &Snapshot, demand: &Demand) -> bool {
        demand.queued.is_none() && self.external_trees.top_of_work(snapshot, demand).is_none()
    }

    pub fn planner_of(&self, snapshot: &Snapshot, allocation: &Allocation) -> AssignedPlanner {
        if self
            .external_trees
            .top_of_allocation(snapshot, allocation)
            .is_some()
        {
            return AssignedPlanner::Other;
        }
        let demand = snapshot.demand.get(&allocation.work);
        // The node and the class of withdrawn work decide which planner ends it.
        let is_withdrawn_queue_work = || {
            let node = snapshot.nodes.get(&allocation.node);
            node.is_some_and(|node| self.queue_pools.contains(&node.pool))
                && !snapshot.classes.contains_key(&allocation.class)
        };
        let is_queued =
            demand.map_or_else(is_withdrawn_queue_work, |demand| demand.queued.is_some());
        if is_queued {
            AssignedPlanner::Other
        } else {
            AssignedPlanner::FairShare
        }
    }

    /// Replaces the detail of a waiting verdict whose class is in a pool with queues: work of a
    /// class cannot run there.
    pub fn explain(&self, verdict: &mut Verdict) {
        let class = verdict.class.as_deref().filter(|_| verdict.waits);
        let class_and_pool = class.and_then(|class| Some((class, self.queue_classes.get(class)?)));
        if let Some((class, pool)) = class_and_pool {
            verdict.detail = format!(
                "pool {pool} of class {class} is divided among queues: name a queue, or a class \
                 of another pool"
            );
            verdict.unblock = None;
        }
    }

    pub fn explain_all<'a>(&self, verdicts: impl Iterator<Item = &'a mut Verdict>) {
        if !self.queue_classes.is_empty() {
            verdicts.for_each(|verdict| self.explain(verdict));
        }
    }
}
