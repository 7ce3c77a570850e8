//! Demand and supply by pool and by class. Demand comes from the newest round, supply from the
//! snapshot.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::load::{ClassLoad, Load, NodesOfOrder, PoolLoad, ProcessesOfOrder};
use hayward_rm_scheduler_domain::snapshot::{Node, Snapshot};
use hayward_rm_scheduler_domain::{plan, serving_class};
use hayward_rm_scheduler_external_planner::ExternalPoolTrees;
use hayward_vocabulary::{NodeName, WorkId};

use crate::context::shared_view::NewestRound;
use crate::node_space::NodeSpace;
use crate::queries::shares;

/// Returns demand and supply for `GET /v1/load`.
pub fn compute_load(snapshot: &Snapshot, newest: &NewestRound) -> Load {
    let classes: Vec<ClassLoad> = newest
        .shares
        .classes
        .iter()
        .map(|(name, share)| class_load(snapshot, name, share))
        .collect();
    Load {
        round: newest.round,
        at: newest.at,
        pools: pool_loads(snapshot, newest, &classes),
        classes,
    }
}

fn class_load(snapshot: &Snapshot, name: &str, share: &plan::ClassShare) -> ClassLoad {
    let mut load = ClassLoad {
        class: name.to_owned(),
        policy: shares::share_policy(share.policy),
        pool: String::new(),
        priority: share.priority,
        weight: share.weight,
        work: 0,
        waiting: 0,
        orders: Vec::new(),
    };
    if let Some(class) = snapshot.classes.get(name) {
        load.pool.clone_from(&class.pool);
    }
    let mut orders: BTreeMap<u64, ProcessesOfOrder> = BTreeMap::new();
    for work in share.users.values().flat_map(|user| user.work.values()) {
        load.work += 1;
        load.waiting += u64::from(work.current == 0 && work.wanted > 0);
        let processes = orders.entry(work.quanta).or_insert(ProcessesOfOrder {
            order: work.quanta,
            ..ProcessesOfOrder::default()
        });
        processes.wanted += work.cap.base;
        processes.requested += work.wanted;
        processes.counted += work.counted;
        processes.awarded += work.current;
        processes.leaving += work.leaving;
    }
    load.orders = orders.into_values().collect();
    load
}

fn pool_loads(snapshot: &Snapshot, newest: &NewestRound, classes: &[ClassLoad]) -> Vec<PoolLoad> {
    let mut spaces: BTreeMap<&NodeName, NodeSpace> = snapshot
        .nodes
        .iter()
        .map(|(name, node)| (name, NodeSpace::new(snapshot, Some(node))))
        .collect();
    for allocation in snapshot.allocations.values() {
        if let Some(space) = spaces.get_mut(&allocation.node) {
            space.add(allocation);
        }
    }
    let mut pools: BTreeMap<&String, PoolLoad> = snapshot
        .pools
        .iter()
        .map(|(name, pool)| (name, empty_load(name, pool.parent.clone())))
        .collect();
    // Nodes of each pool by number of quanta.
    let mut orders: BTreeMap<&String, BTreeMap<u64, NodesOfOrder>> = BTreeMap::new();
    for (name, node) in &snapshot.nodes {
        if let (Some(pool), Some(space)) = (pools.get_mut(&node.pool), spaces.get(name)) {
            add_node(pool, node, space);
            count_by_size(orders.entry(&node.pool).or_default(), node, space);
        }
    }
    for class in classes {
        if let Some(pool) = pools.get_mut(&class.pool) {
            let sum = |amount: fn(&ProcessesOfOrder) -> u64| {
                let quanta = class
                    .orders
                    .iter()
                    .map(|it| amount(it).saturating_mul(it.order));
                quanta.fold(0, u64::saturating_add)
            };
            pool.requested = pool.requested.saturating_add(sum(|it| it.requested));
            pool.awarded = pool.awarded.saturating_add(sum(|it| it.awarded));
        }
    }
    for (work, pool) in work_without_shares(snapshot) {
        let verdict = newest.verdicts.get(work).map(|verdict| verdict.numbers);
        if let (Some(pool), Some(numbers)) = (pools.get_mut(pool), verdict) {
            let quanta = |processes: u64| processes.saturating_mul(numbers.quanta);
            pool.requested = pool
                .requested
                .saturating_add(quanta(numbers.wanted_processes));
            pool.awarded = pool
                .awarded
                .saturating_add(quanta(numbers.current_processes));
        }
    }
    for (name, orders) in orders {
        if let Some(pool) = pools.get_mut(name) {
            pool.orders = orders.into_values().collect();
        }
    }
    pools.into_values().collect()
}

/// Returns the work in queues or planned by an external planner, each with its pool. Shares do not
/// contain such work.
fn work_without_shares(snapshot: &Snapshot) -> impl Iterator<Item = (&WorkId, &String)> {
    let trees = ExternalPoolTrees::new(snapshot);
    let default_pool = snapshot.queues.keys().next();
    let demand = snapshot.demand.iter();
    demand.filter_map(move |(work, demand)| {
        if let Some(queued) = &demand.queued {
            return Some((work, queued.pool.as_ref().or(default_pool)?));
        }
        trees.top_of_work(snapshot, demand)?;
        let class = snapshot.classes.get(serving_class(snapshot, demand)?)?;
        Some((work, &class.pool))
    })
}

fn empty_load(name: &str, parent: Option<String>) -> PoolLoad {
    PoolLoad {
        pool: name.to_owned(),
        parent,
        nodes: 0,
        up: 0,
        lost: 0,
        offline: 0,
        blocked: 0,
        declined: 0,
        total: 0,
        usable: 0,
        free: 0,
        requested: 0,
        awarded: 0,
        orders: Vec::new(),
    }
}

/// Counts the node under the first reason why it takes no work.
fn add_node(pool: &mut PoolLoad, node: &Node, space: &NodeSpace) {
    pool.nodes += 1;
    pool.total += space.capacity;
    *match node {
        node if node.lost => &mut pool.lost,
        node if node.offline => &mut pool.offline,
        node if node.block.is_some() => &mut pool.blocked,
        node if !node.takes_work => &mut pool.declined,
        _ => &mut pool.up,
    } += 1;
    if node.is_schedulable() {
        pool.usable += space.capacity;
        pool.free += space.free();
    }
}

/// Counts the node in the row of its capacity, and in the row of its free quanta if it is partly
/// used.
fn count_by_size(orders: &mut BTreeMap<u64, NodesOfOrder>, node: &Node, space: &NodeSpace) {
    let new_row = |order| NodesOfOrder {
        order,
        ..NodesOfOrder::default()
    };
    let by_capacity = orders
        .entry(space.capacity)
        .or_insert_with(|| new_row(space.capacity));
    by_capacity.nodes += 1;
    if !node.is_schedulable() {
        return;
    }
    by_capacity.up += 1;
    if space.held == 0 {
        by_capacity.free += 1;
    } else if space.free() > 0 {
        let by_free_quanta = orders.entry(space.free());
        by_free_quanta
            .or_insert_with(|| new_row(space.free()))
            .partly += 1;
    }
}
