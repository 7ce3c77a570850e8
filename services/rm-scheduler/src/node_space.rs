//! Capacity and use of nodes, and the tree of pools, which decides the quantum.

use hayward_rm_scheduler_domain::snapshot::{Allocation, Node, Snapshot};
use hayward_vocabulary::Quantum;

/// Capacity and use of one node, in quanta of its tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeSpace {
    pub capacity: u64,
    /// Quanta of all allocations.
    pub held: u64,
    /// Quanta of allocations that are not preemptable.
    pub fixed: u64,
    /// Quanta of allocations with an order to leave.
    pub vacating: u64,
    /// Number of allocations.
    pub processes: u64,
}

impl NodeSpace {
    pub fn new(snapshot: &Snapshot, node: Option<&Node>) -> Self {
        let capacity = |node: &Node| quantum(snapshot, &node.pool).quanta_of_node(&node.capacity);
        Self {
            capacity: node.map_or(0, capacity),
            ..Self::default()
        }
    }

    pub fn add(&mut self, allocation: &Allocation) {
        self.held += allocation.quanta;
        self.processes += 1;
        if allocation.fixed {
            self.fixed += allocation.quanta;
        }
        if allocation.leaving {
            self.vacating += allocation.quanta;
        }
    }

    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.held)
    }
}

/// Returns the pool and its ancestors. The number of steps is limited, so that a cycle of pools
/// would end too, although no policy in force has a cycle.
pub fn pool_and_ancestors<'a>(
    snapshot: &'a Snapshot,
    pool: &'a str,
) -> impl Iterator<Item = &'a str> {
    let parent = |name: &&'a str| snapshot.pools.get(*name)?.parent.as_deref();
    std::iter::successors(Some(pool), parent).take(snapshot.pools.len().max(1))
}

/// Returns the topmost ancestor of a pool, or the pool itself.
pub fn top_of<'a>(snapshot: &'a Snapshot, pool: &'a str) -> &'a str {
    pool_and_ancestors(snapshot, pool).last().unwrap_or(pool)
}

/// Returns true if queues divide the tree of this pool.
pub fn is_divided(snapshot: &Snapshot, pool: &str) -> bool {
    snapshot.queues.contains_key(top_of(snapshot, pool))
}

/// Returns the quantum of the tree of a pool.
pub fn quantum<'a>(snapshot: &'a Snapshot, pool: &'a str) -> &'a Quantum {
    let top = pool_and_ancestors(snapshot, pool).last();
    let own = top.and_then(|top| snapshot.pools.get(top)?.quantum.as_ref());
    own.unwrap_or(&snapshot.quantum)
}
