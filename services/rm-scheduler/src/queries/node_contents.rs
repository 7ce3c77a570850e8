//! Nodes with their allocations and their free space, from the snapshot of the next round.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hayward_rm_scheduler_api::occupancy::{NodeOccupancy, Occupancy, ShareOccupancy};
use hayward_rm_scheduler_domain::snapshot::{Allocation, Class, Node, Policy, Snapshot};
use hayward_vocabulary::{AllocationId, NodeName};

use crate::command::NodeFilter;
use crate::model::AllocationRecord;
use crate::node_space::NodeSpace;
use crate::pool_tree::{has_queues, pool_and_ancestors, quantum_of_pool};

type HeldAllocation<'a> = (&'a AllocationId, &'a Allocation);

/// Returns one page of nodes, including removed nodes that still hold allocations.
pub fn page(
    snapshot: &Snapshot,
    records: &BTreeMap<AllocationId, AllocationRecord>,
    filter: &NodeFilter,
) -> Occupancy {
    let (names, has_more) = page_names(snapshot, filter);
    let mut by_node: BTreeMap<&NodeName, Vec<HeldAllocation>> = BTreeMap::new();
    for (id, allocation) in &snapshot.allocations {
        if names.contains(&allocation.node) {
            let allocations = by_node.entry(&allocation.node).or_default();
            allocations.push((id, allocation));
        }
    }
    let nodes: Vec<NodeOccupancy> = names
        .iter()
        .map(|name| {
            let on_node = by_node.remove(*name).unwrap_or_default();
            let shares = on_node.iter().filter_map(|(id, allocation)| {
                let record = records.get(*id)?;
                Some(to_occupancy(snapshot, record, allocation))
            });
            NodeOccupancy {
                shares: shares.collect(),
                ..node_without_shares(snapshot, name, &on_node)
            }
        })
        .collect();
    let last = nodes.last().filter(|_| has_more);
    Occupancy {
        next_cursor: last.map(|node| node.node.to_string()),
        nodes,
        revision: 0,
    }
}

/// Returns the names of the nodes on the page, and whether more nodes follow.
fn page_names<'a>(
    snapshot: &'a Snapshot,
    filter: &'a NodeFilter,
) -> (BTreeSet<&'a NodeName>, bool) {
    let allocations = snapshot.allocations.values();
    let removed = allocations.map(|allocation| &allocation.node);
    let removed = removed.filter(|node| !snapshot.nodes.contains_key(*node));
    let known: BTreeSet<&NodeName> = snapshot.nodes.keys().chain(removed).collect();
    let from = filter
        .after
        .as_ref()
        .map_or(Bound::Unbounded, Bound::Excluded);
    let is_wanted = |name: &&NodeName| {
        let pool = snapshot.nodes.get(*name).map(|node| &node.pool);
        filter.node.as_ref().is_none_or(|node| node == *name)
            && (filter.pool.is_none() || filter.pool.as_ref() == pool)
    };
    let mut found = known
        .range::<&NodeName, _>((from.as_ref(), Bound::Unbounded))
        .copied()
        .filter(is_wanted);
    let page = found.by_ref().take(filter.limit).collect();
    (page, found.next().is_some())
}

/// Returns a node without the list of its allocations.
fn node_without_shares(
    snapshot: &Snapshot,
    name: &NodeName,
    allocations: &[HeldAllocation],
) -> NodeOccupancy {
    let known = snapshot.nodes.get(name);
    let mut space = NodeSpace::new(snapshot, known);
    for (_, allocation) in allocations {
        space.add(allocation);
    }
    let pool = known.map(|node| node.pool.clone()).unwrap_or_default();
    let up = known.is_some_and(Node::is_schedulable);
    let blocked = known.and_then(|node| node.block.as_ref());
    NodeOccupancy {
        node: name.clone(),
        up,
        responsive: known.is_some_and(|node| !node.lost),
        online: known.is_some_and(|node| !node.offline),
        quiesced: known.is_some_and(|node| !node.takes_work),
        blocked: blocked.map(|block| block.reason.clone()),
        capacity: known.map(|node| node.capacity.clone()).unwrap_or_default(),
        quantum: quantum_of_pool(snapshot, &pool).clone(),
        order: space.capacity,
        held: space.held,
        free: space.free(),
        over: space.held.saturating_sub(space.capacity),
        fixed: space.fixed,
        vacating: space.vacating,
        processes: space.processes,
        // Pools with queues do not grant whole nodes.
        reservable: up && space.fixed == 0 && !has_queues(snapshot, &pool),
        classes: usable_classes(snapshot, &pool),
        shares: Vec::new(),
        pool,
    }
}

/// Returns the classes that may use this pool. A `FAIR_SHARE` class may use its own pool and the
/// pools below it, any other class only its own. The list is empty in a tree with queues.
fn usable_classes(snapshot: &Snapshot, pool: &str) -> Vec<String> {
    if has_queues(snapshot, pool) {
        return Vec::new();
    }
    let own_and_above: Vec<&str> = pool_and_ancestors(snapshot, pool).collect();
    let may_use = |class: &Class| match class.policy {
        Policy::FairShare => own_and_above.contains(&class.pool.as_str()),
        _ => class.pool == pool,
    };
    let classes = snapshot.classes.iter().filter(|(_, class)| may_use(class));
    classes.map(|(name, _)| name.clone()).collect()
}

/// Converts one allocation.
fn to_occupancy(
    snapshot: &Snapshot,
    record: &AllocationRecord,
    allocation: &Allocation,
) -> ShareOccupancy {
    let entry = &record.entry;
    let home = snapshot.classes.get(&entry.class).map(|class| &class.pool);
    let pool = snapshot.nodes.get(&entry.node).map(|node| &node.pool);
    // Without a known investment, the process counts as invested since its start or its grant.
    let since = allocation.running_since.unwrap_or(allocation.granted_at);
    let running_ms = snapshot.now.ms_since(since);
    ShareOccupancy {
        allocation: entry.id.clone(),
        work: entry.work.clone(),
        kind: entry.kind,
        user: entry.user.clone(),
        class: entry.class.clone(),
        order: entry.order,
        state: entry.state,
        granted_at: entry.granted_at,
        investment_ms: allocation.investment_ms.unwrap_or(running_ms),
        fixed: record.fixed,
        leaving: allocation.leaving,
        purged: allocation.purged,
        squatter: home.is_some() && home != pool,
        gpus: record.gpus.clone(),
    }
}
