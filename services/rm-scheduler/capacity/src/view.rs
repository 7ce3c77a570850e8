//! Queues of a pool as a read model: guaranteed, used, waiting and remaining resources.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Snapshot,
    snapshot::queues::{Amounts, Limit},
};
use serde::{Deserialize, Serialize};

use crate::{
    resource_vec::{Vector, add, times},
    round_state::RoundState,
    tree::ROOT,
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
pub fn view(snapshot: &Snapshot, pool: &str) -> BTreeMap<String, QueueView> {
    let Some((pool, queues)) = snapshot.queues.get_key_value(pool) else {
        return BTreeMap::new();
    };
    let round = RoundState::open(snapshot, pool, queues);
    let pending = pending(&round);
    let waiting = waiting_applications(&round);
    let sparse = |limits: &[Option<u64>]| {
        let named = limits.iter().enumerate().skip(1);
        let named = named.filter_map(|(at, limit)| Some((round.dims.name(at), (*limit)?)));
        named
            .map(|(name, limit)| (name.to_owned(), limit))
            .collect()
    };
    let entries = round.tree.entries.iter().enumerate();
    let views = entries.map(|(at, queue_state)| {
        let view = QueueView {
            leaf: queue_state.leaf,
            configured: queue_state.config.is_some(),
            draining: queue_state.draining,
            guaranteed: sparse(&queue_state.guaranteed),
            max: if at == ROOT {
                round.dims.amounts(&round.whole)
            } else {
                sparse(&queue_state.max)
            },
            used: round.dims.amounts(&queue_state.used),
            leaving: round.dims.amounts(&queue_state.going),
            pending: round.dims.amounts(&pending[at]),
            headroom: sparse(&round.tree.headroom(at, &round.whole)),
            running_applications: queue_state.running,
            waiting_applications: waiting[at],
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
fn pending(round: &RoundState) -> Vec<Vector> {
    let mut pending = vec![round.dims.zero(); round.tree.entries.len()];
    for (at, item) in round.items.iter().enumerate() {
        let wanted = times(round.vector(at), item.missing());
        let queue = round.queue_of(at).into_iter();
        for above in queue.flat_map(|queue| round.tree.path(queue)) {
            add(&mut pending[above], &wanted);
        }
    }
    pending
}

/// Returns the number of applications without allocations that wait, by queue.
fn waiting_applications(round: &RoundState) -> Vec<u64> {
    let mut waiting = vec![0; round.tree.entries.len()];
    for app in round.apps.iter().filter(|app| !app.running) {
        let mut items = app.items.iter();
        let waits = items.any(|item| round.items[*item].missing() > 0);
        if let (Ok(queue), true) = (&app.queue, waits) {
            for above in round.tree.path(*queue) {
                waiting[above] += 1;
            }
        }
    }
    waiting
}

/// Returns the full paths of all leaves with applications.
pub fn used(snapshot: &Snapshot, pool: &str) -> BTreeSet<String> {
    let Some((pool, queues)) = snapshot.queues.get_key_value(pool) else {
        return BTreeSet::new();
    };
    let round = RoundState::open(snapshot, pool, queues);
    let placed = round.apps.iter().filter_map(|app| app.queue.as_ref().ok());
    let holding = round.held.iter().filter_map(|held| held.queue.as_ref());
    placed
        .chain(holding)
        .map(|queue| round.tree.entries[*queue].path.clone())
        .collect()
}
