//! Nodes with their allocations and their free space, from the snapshot of the next round.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hayward_rm_scheduler_api::occupancy::{NodeOccupancy, Occupancy, ShareOccupancy};
use hayward_rm_scheduler_domain::snapshot::{Allocation, Class, Node, Policy, Snapshot};
use hayward_vocabulary::{AllocationId, NodeName};

use crate::command::NodeFilter;
use crate::model::AllocationRecord;
use crate::node_space::{NodeSpace, is_divided, quantum, upwards};

type Share<'a> = (&'a AllocationId, &'a Allocation);

/// Returns one page of nodes, including removed nodes that still hold allocations.
pub fn page(
    snapshot: &Snapshot,
    states: &BTreeMap<AllocationId, AllocationRecord>,
    wanted: &NodeFilter,
) -> Occupancy {
    let (names, more) = names(snapshot, wanted);
    let mut by_node: BTreeMap<&NodeName, Vec<Share>> = BTreeMap::new();
    for (id, allocation) in &snapshot.allocations {
        if names.contains(&allocation.node) {
            let on_node = by_node.entry(&allocation.node).or_default();
            on_node.push((id, allocation));
        }
    }
    let nodes: Vec<NodeOccupancy> = names
        .iter()
        .map(|name| {
            let there = by_node.remove(*name).unwrap_or_default();
            let shares = there.iter().filter_map(|(id, allocation)| {
                let held = states.get(*id)?;
                Some(share(snapshot, held, allocation))
            });
            NodeOccupancy {
                shares: shares.collect(),
                ..node(snapshot, name, &there)
            }
        })
        .collect();
    let last = nodes.last().filter(|_| more);
    Occupancy {
        next_cursor: last.map(|node| node.node.to_string()),
        nodes,
        revision: 0,
    }
}

fn names<'a>(snapshot: &'a Snapshot, wanted: &'a NodeFilter) -> (BTreeSet<&'a NodeName>, bool) {
    let held = snapshot.allocations.values();
    let gone = held.map(|allocation| &allocation.node);
    let gone = gone.filter(|node| !snapshot.nodes.contains_key(*node));
    let known: BTreeSet<&NodeName> = snapshot.nodes.keys().chain(gone).collect();
    let from = wanted
        .after
        .as_ref()
        .map_or(Bound::Unbounded, Bound::Excluded);
    let is_wanted = |name: &&NodeName| {
        let pool = snapshot.nodes.get(*name).map(|node| &node.pool);
        wanted.node.as_ref().is_none_or(|node| node == *name)
            && (wanted.pool.is_none() || wanted.pool.as_ref() == pool)
    };
    let mut found = known
        .range::<&NodeName, _>((from.as_ref(), Bound::Unbounded))
        .copied()
        .filter(is_wanted);
    let page = found.by_ref().take(wanted.limit).collect();
    (page, found.next().is_some())
}

fn node(snapshot: &Snapshot, name: &NodeName, there: &[Share]) -> NodeOccupancy {
    let known = snapshot.nodes.get(name);
    let mut space = NodeSpace::new(snapshot, known);
    for (_, allocation) in there {
        space.hold(allocation);
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
        quantum: quantum(snapshot, &pool).clone(),
        order: space.order,
        held: space.held,
        free: space.free(),
        over: space.held.saturating_sub(space.order),
        fixed: space.fixed,
        vacating: space.vacating,
        processes: space.processes,
        // Pools with queues do not grant whole nodes.
        reservable: up && space.fixed == 0 && !is_divided(snapshot, &pool),
        classes: classes(snapshot, &pool),
        shares: Vec::new(),
        pool,
    }
}

/// Returns the classes that may use this pool. A `FAIR_SHARE` class may use its own pool and the
/// pools below it, any other class only its own. The list is empty in a tree with queues.
fn classes(snapshot: &Snapshot, pool: &str) -> Vec<String> {
    if is_divided(snapshot, pool) {
        return Vec::new();
    }
    let above: Vec<&str> = upwards(snapshot, pool).collect();
    let may = |class: &Class| match class.policy {
        Policy::FairShare => above.contains(&class.pool.as_str()),
        _ => class.pool == pool,
    };
    let classes = snapshot.classes.iter().filter(|(_, class)| may(class));
    classes.map(|(name, _)| name.clone()).collect()
}

fn share(snapshot: &Snapshot, held: &AllocationRecord, allocation: &Allocation) -> ShareOccupancy {
    let entry = &held.entry;
    let home = snapshot.classes.get(&entry.class).map(|class| &class.pool);
    let pool = snapshot.nodes.get(&entry.node).map(|node| &node.pool);
    let since = allocation.running_since.unwrap_or(allocation.granted_at);
    let running = snapshot.now.ms_since(since);
    ShareOccupancy {
        allocation: entry.id.clone(),
        work: entry.work.clone(),
        kind: entry.kind,
        user: entry.user.clone(),
        class: entry.class.clone(),
        order: entry.order,
        state: entry.state,
        granted_at: entry.granted_at,
        investment_ms: allocation.investment_ms.unwrap_or(running),
        fixed: held.fixed,
        leaving: allocation.leaving,
        purged: allocation.purged,
        squatter: home.is_some() && home != pool,
        gpus: held.gpus.clone(),
    }
}
