//! The trees of node pools. The root of a tree decides the quantum, and whether queues divide the
//! tree.

use hayward_rm_scheduler_domain::snapshot::Snapshot;
use hayward_vocabulary::Quantum;

/// Returns the pool and its ancestors, the root last. The number of steps is limited, so that the
/// iteration ends even for a cycle of pools. No policy in force has a cycle.
pub fn pool_and_ancestors<'a>(
    snapshot: &'a Snapshot,
    pool: &'a str,
) -> impl Iterator<Item = &'a str> {
    let parent = |name: &&'a str| snapshot.pools.get(*name)?.parent.as_deref();
    std::iter::successors(Some(pool), parent).take(snapshot.pools.len().max(1))
}

/// Returns the root of the tree of a pool, which is the pool itself if it has no parent.
pub fn root_pool_of<'a>(snapshot: &'a Snapshot, pool: &'a str) -> &'a str {
    pool_and_ancestors(snapshot, pool).last().unwrap_or(pool)
}

/// Returns true if the tree of this pool is divided among queues.
pub fn has_queues(snapshot: &Snapshot, pool: &str) -> bool {
    snapshot.queues.contains_key(root_pool_of(snapshot, pool))
}

/// Returns the quantum of the tree of a pool.
pub fn quantum_of_pool<'a>(snapshot: &'a Snapshot, pool: &'a str) -> &'a Quantum {
    let root = snapshot.pools.get(root_pool_of(snapshot, pool));
    let own = root.and_then(|root| root.quantum.as_ref());
    own.unwrap_or(&snapshot.quantum)
}
