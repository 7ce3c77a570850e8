//! Searches for a node that could take one more process of a piece of work, by the rules of the
//! check alone. The live checks use this to find work that waits although it fits (I21).
//!
//! The code runs in the task that commits, so its cost is bounded. Nodes without free space are
//! left out, a size that fits nowhere is tried once, and the number of steps is limited.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Size, WorkId, WorkKind};

use super::{
    Fault, check_grant, holdings::Holdings, node_load::NodeLoad, quantum_of, totals::Totals,
};
use crate::{
    input::snapshot::{Demand, Node, Policy, Snapshot},
    output::plan::Grant,
};

/// Maximum number of steps in total. Each examined node costs one step.
const MAX_STEPS: u64 = 50_000;
/// Cost in steps of the full check of a node.
const FULL_CHECK_STEPS: u64 = 4;
/// Maximum number of steps for one piece of work, so that other work is tried as well.
const MAX_STEPS_PER_WORK: u64 = MAX_STEPS / 5;

/// Demand of a piece of work, with the policy of the class that serves it.
#[derive(Clone, Copy)]
struct ServedDemand<'a> {
    demand: &'a Demand,
    policy: Policy,
}

/// A candidate node with its free space.
struct OpenNode<'a> {
    name: &'a NodeName,
    node: &'a Node,
    free_quanta: u64,
    free_size: Size,
    load: Option<&'a NodeLoad>,
}

/// Size of a process, and whether the process needs a whole node.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SizeKey<'a> {
    is_whole_node: bool,
    size: &'a Size,
}

/// Search for a node that could take one more process.
pub struct NodeSearch<'a> {
    snapshot: &'a Snapshot,
    holdings: &'a Holdings,
    totals: Totals<'a>,
    /// Open nodes with free space, in the order of their names.
    candidates: Vec<(&'a NodeName, &'a Node)>,
    /// Work with reserved space, by node.
    reserved_for: BTreeMap<&'a NodeName, BTreeSet<&'a WorkId>>,
    /// Sizes that fit no node.
    unfitting_sizes: BTreeSet<SizeKey<'a>>,
    /// Number of steps so far.
    steps: u64,
}

impl<'a> NodeSearch<'a> {
    /// Builds the search over the nodes for which `suits` holds. `holdings` must be those of the
    /// snapshot.
    pub fn new(
        snapshot: &'a Snapshot,
        holdings: &'a Holdings,
        suits: impl Fn(&NodeName) -> bool,
    ) -> Self {
        let all = snapshot.allocations.values();
        // A node with a leaving process is no candidate. Its space is granted in a later round.
        let leaving = all.filter(|allocation| allocation.leaving || allocation.purged);
        let leaving: BTreeSet<&NodeName> = leaving.map(|allocation| &allocation.node).collect();
        let has_space = |(name, node): &(&NodeName, &Node)| {
            free_quanta(snapshot, holdings.load_on(name), node) > 0
        };
        let candidates = snapshot.nodes.iter();
        let candidates = candidates
            .filter(|(_, node)| node.is_schedulable())
            .filter(|(name, _)| !leaving.contains(name) && suits(name))
            .filter(has_space)
            .collect();
        Self {
            snapshot,
            candidates,
            holdings,
            totals: Totals::new(holdings, &BTreeSet::new()),
            reserved_for: reserved_work(snapshot),
            unfitting_sizes: BTreeSet::new(),
            steps: 0,
        }
    }

    /// Returns whether all steps are used up.
    pub fn is_exhausted(&self) -> bool {
        self.steps >= MAX_STEPS
    }

    /// Returns a node that could take one more process of this work in this class. Skips nodes with
    /// space reserved for other work.
    pub fn find_node(&mut self, work: &WorkId, class: &str) -> Option<NodeName> {
        let served = self.served_demand(work, class)?;
        let ServedDemand { demand, policy } = served;
        let needs_whole_node = is_whole_node_request(demand, policy);
        let key = SizeKey {
            is_whole_node: needs_whole_node,
            size: &demand.size,
        };
        if self.unfitting_sizes.contains(&key) {
            return None;
        }
        let (mut fits, mut steps) = (false, 0);
        let mut found = None;
        for (name, node) in &self.candidates {
            if steps >= MAX_STEPS_PER_WORK || self.steps + steps >= MAX_STEPS {
                // The search is incomplete, so the size is not recorded as unfitting.
                fits = true;
                break;
            }
            steps += 1;
            let open_node = self.open_node(name, node);
            let Some(grant) = self.grant_on(work, class, served, &open_node) else {
                continue;
            };
            fits = true;
            if !is_allowed(demand, name) || self.is_reserved_for_other(name, work) {
                continue;
            }
            steps += FULL_CHECK_STEPS;
            match self.check(&grant) {
                Ok(()) => {
                    found = Some(grant.node);
                    break;
                }
                Err(fault) if concerns_work(&fault) => break,
                Err(_) => {}
            }
        }
        self.steps += steps;
        if !fits {
            self.unfitting_sizes.insert(key);
        }
        found
    }

    /// Returns whether this node could take one more process of this work in this class.
    pub fn could_take(&mut self, work: &WorkId, class: &str, node: &NodeName) -> bool {
        self.steps += 1 + FULL_CHECK_STEPS;
        let Some(served) = self.served_demand(work, class) else {
            return false;
        };
        let index = self
            .candidates
            .binary_search_by_key(&node, |(name, _)| name);
        let Some((name, node)) = index.ok().and_then(|index| self.candidates.get(index)) else {
            return false;
        };
        let open_node = self.open_node(name, node);
        let grant = self.grant_on(work, class, served, &open_node);
        let fits = grant.is_some_and(|grant| self.check(&grant).is_ok());
        fits && !self.is_reserved_for_other(name, work)
    }

    fn served_demand(&self, work: &WorkId, class: &str) -> Option<ServedDemand<'a>> {
        let demand = self.snapshot.demand.get(work)?;
        let policy = match &demand.queued {
            Some(_) => Policy::FairShare,
            None => self.snapshot.classes.get(class)?.policy,
        };
        Some(ServedDemand { demand, policy })
    }

    fn check(&self, grant: &Grant) -> Result<(), Fault> {
        let (demand, node) = check_grant(self.snapshot, self.holdings, grant)?;
        self.totals.check_limits(self.snapshot, grant, demand, node)
    }

    fn open_node<'b>(&'b self, name: &'b NodeName, node: &'b Node) -> OpenNode<'b> {
        let load = self.holdings.load_on(name);
        let mut free = node.capacity.clone();
        if let Some(load) = load {
            free.subtract(&load.size);
        }
        OpenNode {
            name,
            node,
            free_quanta: free_quanta(self.snapshot, load, node),
            free_size: free,
            load,
        }
    }

    /// Returns the grant of a process on this node, or `None` if its size does not fit.
    fn grant_on(
        &self,
        work: &WorkId,
        class: &str,
        ServedDemand { demand, policy }: ServedDemand<'_>,
        open_node: &OpenNode<'_>,
    ) -> Option<Grant> {
        let capacity = &open_node.node.capacity;
        let quantum = quantum_of(self.snapshot, &open_node.node.pool);
        let needs_whole_node = is_whole_node_request(demand, policy);
        let (quanta, size) = if needs_whole_node {
            (quantum.quanta_of_node(capacity), capacity.clone())
        } else {
            (
                quantum.quanta_of_work(&demand.size),
                quantum.granted(&demand.size),
            )
        };
        let fits = quanta <= open_node.free_quanta
            && size.fits(&open_node.free_size)
            && demand.size.fits(capacity);
        if !fits {
            return None;
        }
        let gpus = match (needs_whole_node, open_node.load) {
            (true, _) => Vec::new(),
            (false, Some(load)) => load.open_gpus(capacity, &size)?,
            (false, None) => NodeLoad::default().open_gpus(capacity, &size)?,
        };
        Some(Grant {
            work: work.clone(),
            kind: demand.kind,
            user: demand.user.clone(),
            class: class.into(),
            node: open_node.name.clone(),
            quanta,
            size,
            fixed: policy != Policy::FairShare,
            gpus,
            group: None,
        })
    }

    /// Returns whether the node has space reserved for other work.
    fn is_reserved_for_other(&self, node: &NodeName, work: &WorkId) -> bool {
        let owners = self.reserved_for.get(node).into_iter().flatten();
        owners.into_iter().any(|owner| *owner != work)
    }
}

/// Returns whether the demand is a reservation in a class that grants whole nodes.
fn is_whole_node_request(demand: &Demand, policy: Policy) -> bool {
    policy == Policy::Reserve && demand.kind == WorkKind::Reservation
}

/// Returns whether the node list, the avoided nodes and the required node allow this node.
fn is_allowed(demand: &Demand, name: &NodeName) -> bool {
    let required = demand
        .queued
        .as_ref()
        .and_then(|queued| queued.required_node.as_ref());
    let listed = demand.node_list.is_empty() || demand.node_list.contains(name);
    listed && !demand.avoids.contains(name) && required.is_none_or(|required| required == name)
}

/// Returns the free quanta of a node.
fn free_quanta(snapshot: &Snapshot, load: Option<&NodeLoad>, node: &Node) -> u64 {
    let capacity = quantum_of(snapshot, &node.pool).quanta_of_node(&node.capacity);
    capacity.saturating_sub(load.map_or(0, |load| load.quanta))
}

/// Returns the work with reserved space, by node.
fn reserved_work(snapshot: &Snapshot) -> BTreeMap<&NodeName, BTreeSet<&WorkId>> {
    let mut reserved: BTreeMap<&NodeName, BTreeSet<&WorkId>> = BTreeMap::new();
    for (owner, nodes) in &snapshot.carried.claims {
        for node in nodes {
            reserved.entry(node).or_default().insert(owner);
        }
    }
    for carried in snapshot.carried.queues.values() {
        for (node, reservation) in &carried.reservations {
            reserved.entry(node).or_default().insert(&reservation.work);
        }
        let gang_spaces = carried.gang.iter().flat_map(|gang| &gang.nodes);
        for (node, parts) in gang_spaces {
            reserved.entry(node).or_default().extend(parts.keys());
        }
    }
    reserved
}

/// Returns whether the fault concerns the work itself, so that every node would refuse it.
fn concerns_work(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::UnknownWork(_)
            | Fault::Misdescribed(_)
            | Fault::WrongClass(_)
            | Fault::TooMany { .. }
            | Fault::OverAllotment { .. }
            | Fault::OverQuota { .. }
    )
}
