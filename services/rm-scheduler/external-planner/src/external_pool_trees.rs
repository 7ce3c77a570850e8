//! Assigns pools, work and allocations to external planners.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{
    Snapshot, serving_class,
    snapshot::{Allocation, Demand, User},
};
use hayward_vocabulary::{Quantum, UserName};

/// Externally planned pools, with all pools below them.
#[derive(Debug, Default)]
pub struct ExternalPoolTrees {
    /// Name of the top-level pool, by pool.
    pools: BTreeMap<String, String>,
}

impl ExternalPoolTrees {
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Self {
        if snapshot.external_planners.is_empty() {
            return Self::default();
        }
        let pools = snapshot.pools.keys().filter_map(|name| {
            let top = top_of(snapshot, name);
            let is_external = snapshot.external_planners.contains_key(top);
            is_external.then(|| (name.clone(), top.to_owned()))
        });
        Self {
            pools: pools.collect(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Returns the top-level pool of this pool, if it is externally planned.
    pub fn top_of_pool(&self, pool: &str) -> Option<&str> {
        self.pools.get(pool).map(String::as_str)
    }

    /// Returns the top-level pool of work, which is that of its class. Fair shares serve work
    /// without a valid class.
    pub fn top_of_work(&self, snapshot: &Snapshot, demand: &Demand) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        let class = snapshot.classes.get(serving_class(snapshot, demand)?)?;
        self.top_of_pool(&class.pool)
    }

    /// Returns the top-level pool of an allocation, which is that of its work. If the work is
    /// withdrawn, the class of the allocation decides, or else its node.
    pub fn top_of_allocation(&self, snapshot: &Snapshot, allocation: &Allocation) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        if let Some(demand) = snapshot.demand.get(&allocation.work) {
            return self.top_of_work(snapshot, demand);
        }
        match snapshot.classes.get(&allocation.class) {
            Some(class) => self.top_of_pool(&class.pool),
            None => self.top_of_pool(&snapshot.nodes.get(&allocation.node)?.pool),
        }
    }

    /// Returns the users with their allotments for fair-share classes. Non-preemptable allocations
    /// in externally planned pools are subtracted from the total allotment.
    #[must_use]
    pub fn allotments(&self, snapshot: &Snapshot) -> BTreeMap<UserName, User> {
        let mut users = snapshot.users.clone();
        if self.is_empty() {
            return users;
        }
        let mut fixed_bytes: BTreeMap<&UserName, u64> = BTreeMap::new();
        let fixed_allocations = snapshot
            .allocations
            .values()
            .filter(|allocation| allocation.fixed);
        for allocation in fixed_allocations
            .filter(|allocation| self.top_of_allocation(snapshot, allocation).is_some())
        {
            let class = snapshot.classes.get(&allocation.class);
            let pool = class.map_or("", |class| class.pool.as_str());
            let quantum_bytes = quantum_of(snapshot, pool).0.memory_bytes;
            let bytes = fixed_bytes.entry(&allocation.user).or_default();
            *bytes = bytes.saturating_add(allocation.quanta.saturating_mul(quantum_bytes));
        }
        for (user, bytes) in fixed_bytes {
            let user_limit = snapshot.users.get(user);
            let user_limit = user_limit.and_then(|user| user.max_allotment_bytes);
            if let Some(limit) = user_limit.or(snapshot.tunables.global_allotment_bytes) {
                let user_policy = users.entry(user.clone()).or_default();
                user_policy.max_allotment_bytes = Some(limit.saturating_sub(bytes));
            }
        }
        users
    }
}

/// Returns the top-level pool of a pool. It also terminates on a cycle, which no valid policy has.
pub(crate) fn top_of<'a>(snapshot: &'a Snapshot, pool: &'a str) -> &'a str {
    let parent_of = |name: &&'a str| snapshot.pools.get(*name)?.parent.as_deref();
    let path = std::iter::successors(Some(pool), parent_of);
    path.take(snapshot.pools.len().max(1))
        .last()
        .unwrap_or(pool)
}

/// Returns the quantum of a pool's tree.
pub(crate) fn quantum_of<'a>(snapshot: &'a Snapshot, pool: &'a str) -> &'a Quantum {
    let top = snapshot.pools.get(top_of(snapshot, pool));
    let quantum = top.and_then(|top| top.quantum.as_ref());
    quantum.unwrap_or(&snapshot.quantum)
}
