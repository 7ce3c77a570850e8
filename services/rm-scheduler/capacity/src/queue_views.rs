//! Views of the queues of a pool for readers: guaranteed, used, waiting and remaining resources.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Snapshot,
    snapshot::queues::{Amounts, Limit},
};
use serde::{Deserialize, Serialize};

use crate::{
    queue_tree::ROOT,
    resource_vec::{Vector, add, scale},
    round_state::RoundState,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    pub leaf: bool,
    /// True for a configured queue, false for a created one.
    pub configured: bool,
    pub draining: bool,
    pub guaranteed: Amounts,
    pub max: Amounts,
    /// Usage, including allocations that leave.
    pub used: Amounts,
    pub leaving: Amounts,
    /// Resources of waiting work.
    pub pending: Amounts,
    /// Remaining resources before a maximum on the path is reached. Types that are not listed are
    /// unlimited.
    pub headroom: Amounts,
    /// Number of applications with allocations.
    pub running_applications: u64,
    /// Number of applications without allocations that wait.
    pub waiting_applications: u64,
    pub max_applications: Option<u64>,
    /// Limits of users and groups.
    pub limits: Vec<Limit>,
}

/// Returns the queues by full path. Empty for a pool without queues.
pub fn queue_views(snapshot: &Snapshot, pool: &str) -> BTreeMap<String, QueueView> {
    let Some((pool, queues)) = snapshot.queues.get_key_value(pool) else {
        return BTreeMap::new();
    };
    let round = RoundState::open(snapshot, pool, queues);
    let pending = pending_resources(&round);
    let waiting = waiting_applications(&round);
    let limited_amounts = |limits: &[Option<u64>]| {
        let limited = limits.iter().enumerate().skip(1);
        let limited =
            limited.filter_map(|(index, limit)| Some((round.dims.name(index), (*limit)?)));
        limited
            .map(|(name, limit)| (name.to_owned(), limit))
            .collect()
    };
    let entries = round.tree.entries.iter().enumerate();
    let views = entries.map(|(index, queue_state)| {
        let view = QueueView {
            leaf: queue_state.leaf,
            configured: queue_state.config.is_some(),
            draining: queue_state.draining,
            guaranteed: limited_amounts(&queue_state.guaranteed),
            max: if index == ROOT {
                round.dims.amounts(&round.total_capacity)
            } else {
                limited_amounts(&queue_state.max)
            },
            used: round.dims.amounts(&queue_state.used),
            leaving: round.dims.amounts(&queue_state.leaving),
            pending: round.dims.amounts(&pending[index]),
            headroom: limited_amounts(&round.tree.headroom(index, &round.total_capacity)),
            running_applications: queue_state.running,
            waiting_applications: waiting[index],
            max_applications: queue_state.max_applications,
            limits: queue_state
                .config
                .map(|it| it.limits.clone())
                .unwrap_or_default(),
        };
        (queue_state.path.clone(), view)
    });
    views.collect()
}

/// Returns the resources of waiting work, by queue.
fn pending_resources(round: &RoundState) -> Vec<Vector> {
    let mut pending = vec![round.dims.zero(); round.tree.entries.len()];
    for (index, item) in round.items.iter().enumerate() {
        let missing = scale(round.vector(index), item.missing());
        let queue = round.queue_of(index).into_iter();
        for ancestor in queue.flat_map(|queue| round.tree.path(queue)) {
            add(&mut pending[ancestor], &missing);
        }
    }
    pending
}

/// Returns the number of applications without allocations that wait, by queue.
fn waiting_applications(round: &RoundState) -> Vec<u64> {
    let mut waiting = vec![0; round.tree.entries.len()];
    for app in round.apps.iter().filter(|app| !app.running) {
        let mut items = app.items.iter();
        let has_missing = items.any(|item| round.items[*item].missing() > 0);
        if let (Ok(queue), true) = (&app.queue, has_missing) {
            for ancestor in round.tree.path(*queue) {
                waiting[ancestor] += 1;
            }
        }
    }
    waiting
}

/// Returns the full paths of all leaves with applications.
pub fn used_leaves(snapshot: &Snapshot, pool: &str) -> BTreeSet<String> {
    let Some((pool, queues)) = snapshot.queues.get_key_value(pool) else {
        return BTreeSet::new();
    };
    let round = RoundState::open(snapshot, pool, queues);
    let queues = round.apps.iter().filter_map(|app| app.queue.as_ref().ok());
    let queues_of_allocations = round
        .allocation_states
        .iter()
        .filter_map(|allocation_state| allocation_state.queue.as_ref());
    queues
        .chain(queues_of_allocations)
        .map(|queue| round.tree.entries[*queue].path.clone())
        .collect()
}
