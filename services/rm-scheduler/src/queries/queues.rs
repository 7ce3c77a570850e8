//! Converts queues to the response of `GET /v1/queues`.

use std::collections::BTreeSet;

use hayward_rm_scheduler_api::queues::{LimitEntry, PoolQueues, QueueEntry, QueueState, Queues};
use hayward_rm_scheduler_capacity::{QueueView, queue_views};
use hayward_rm_scheduler_domain::Snapshot;
use hayward_rm_scheduler_domain::snapshot::queues::{CarriedQueueState, Limit};

use crate::pool_tree::root_pool_of;

/// Returns the queues of one pool, or of all pools with queues.
pub fn list_queues(snapshot: &Snapshot, wanted_pool: Option<&str>) -> Queues {
    let pools = snapshot.queues.keys();
    let pools = pools.filter(|pool| wanted_pool.is_none_or(|wanted| wanted == *pool));
    Queues {
        round: snapshot.round,
        at: snapshot.now,
        pools: pools.map(|pool| pool_queues(snapshot, pool)).collect(),
    }
}

fn pool_queues(snapshot: &Snapshot, pool: &str) -> PoolQueues {
    let nodes = snapshot.nodes.values();
    let pool_nodes = nodes.filter(|node| root_pool_of(snapshot, &node.pool) == pool);
    let (mut node_count, mut open_count) = (0, 0);
    for node in pool_nodes {
        node_count += 1;
        open_count += u64::from(node.is_schedulable());
    }
    let carried = snapshot.carried.queues.get(pool);
    let mut views: Vec<(String, QueueView)> = queue_views(snapshot, pool).into_iter().collect();
    // A dot sorts before all other characters of a name. Each queue therefore precedes its
    // children, and its children are adjacent.
    views.sort_by_cached_key(|(path, _)| path.replace('.', "\0"));
    PoolQueues {
        pool: pool.to_owned(),
        nodes: node_count,
        open: open_count,
        kept: carried.map_or(0, reserved_nodes),
        queues: views
            .into_iter()
            .map(|(queue, view)| queue_entry(queue, view))
            .collect(),
    }
}

/// Counts the nodes that are reserved as a whole, or in part for a gang.
fn reserved_nodes(carried: &CarriedQueueState) -> u64 {
    let gang = carried.gang.iter().flat_map(|space| space.nodes.keys());
    let nodes: BTreeSet<_> = carried.reservations.keys().chain(gang).collect();
    nodes.len() as u64
}

fn queue_entry(queue: String, view: QueueView) -> QueueEntry {
    let state = if view.draining {
        QueueState::Draining
    } else if view.configured {
        QueueState::Active
    } else {
        QueueState::Dynamic
    };
    QueueEntry {
        queue,
        state,
        leaf: view.leaf,
        guaranteed: view.guaranteed,
        max: view.max,
        used: view.used,
        leaving: view.leaving,
        pending: view.pending,
        headroom: view.headroom,
        running_applications: view.running_applications,
        waiting_applications: view.waiting_applications,
        max_applications: view.max_applications,
        limits: view.limits.into_iter().map(limit_entry).collect(),
    }
}

fn limit_entry(limit: Limit) -> LimitEntry {
    LimitEntry {
        users: limit.users,
        groups: limit.groups,
        max: limit.max,
        max_applications: limit.max_applications,
    }
}
