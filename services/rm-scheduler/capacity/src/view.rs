//! The queues of a pool in numbers, for people: what is guaranteed, used, wanted, left (12.1).

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Snapshot,
    snapshot::queues::{Amounts, Limit},
};
use serde::{Deserialize, Serialize};

use crate::{
    resource_vec::{add, times},
    round_state::Books,
    tree::ROOT,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    pub leaf: bool,
    /// In the configuration, and not made for an application.
    pub configured: bool,
    pub draining: bool,
    pub guaranteed: Amounts,
    pub max: Amounts,
    /// With what leaves.
    pub used: Amounts,
    pub leaving: Amounts,
    /// Asked for and not there yet.
    pub pending: Amounts,
    /// What may be added before a maximum on the path is reached; absent types are unlimited.
    pub headroom: Amounts,
    /// Applications that hold room.
    pub running_applications: u64,
    /// Applications that hold none, and ask for some.
    pub waiting_applications: u64,
    pub max_applications: Option<u64>,
    /// Of users and groups.
    pub limits: Vec<Limit>,
}

/// By full path; nothing where the pool has no queues.
pub fn view(snapshot: &Snapshot, pool: &str) -> BTreeMap<String, QueueView> {
    let Some((pool, queues)) = snapshot.queues.get_key_value(pool) else {
        return BTreeMap::new();
    };
    let books = Books::open(snapshot, pool, queues);
    let mut pending = vec![books.dims.zero(); books.tree.spots.len()];
    for (at, ask) in books.asks.iter().enumerate() {
        let wanted = times(books.vector(at), ask.missing());
        for queue in books
            .queue_of(at)
            .into_iter()
            .flat_map(|it| books.tree.path(it))
        {
            add(&mut pending[queue], &wanted);
        }
    }
    let mut waiting = vec![0; books.tree.spots.len()];
    for app in books.apps.iter().filter(|app| !app.running) {
        let asks = app.asks.iter().any(|ask| books.asks[*ask].missing() > 0);
        if let (Ok(queue), true) = (&app.queue, asks) {
            for above in books.tree.path(*queue) {
                waiting[above] += 1;
            }
        }
    }
    let sparse = |limits: &[Option<u64>]| {
        let named = limits.iter().enumerate().skip(1);
        let named = named.filter_map(|(at, limit)| Some((books.dims.name(at), (*limit)?)));
        named
            .map(|(name, limit)| (name.to_owned(), limit))
            .collect()
    };
    let spots = books.tree.spots.iter().enumerate();
    let views = spots.map(|(at, spot)| {
        let view = QueueView {
            leaf: spot.leaf,
            configured: spot.config.is_some(),
            draining: spot.draining,
            guaranteed: sparse(&spot.guaranteed),
            max: if at == ROOT {
                books.dims.amounts(&books.whole)
            } else {
                sparse(&spot.max)
            },
            used: books.dims.amounts(&spot.used),
            leaving: books.dims.amounts(&spot.going),
            pending: books.dims.amounts(&pending[at]),
            headroom: sparse(&books.tree.headroom(at, &books.whole)),
            running_applications: spot.running,
            waiting_applications: waiting[at],
            max_applications: spot.max_applications,
            limits: spot.config.map(|it| it.limits.clone()).unwrap_or_default(),
        };
        (spot.path.clone(), view)
    });
    views.collect()
}

/// The leaves of a pool that have applications, running or waiting, by full path.
pub fn used(snapshot: &Snapshot, pool: &str) -> BTreeSet<String> {
    let Some((pool, queues)) = snapshot.queues.get_key_value(pool) else {
        return BTreeSet::new();
    };
    let books = Books::open(snapshot, pool, queues);
    let placed = books.apps.iter().filter_map(|app| app.queue.as_ref().ok());
    let holding = books.held.iter().filter_map(|held| held.queue.as_ref());
    placed
        .chain(holding)
        .map(|queue| books.tree.spots[*queue].path.clone())
        .collect()
}
