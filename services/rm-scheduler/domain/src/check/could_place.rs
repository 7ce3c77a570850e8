//! Decides whether a node could take one more process of some work, by the check's rules alone.
//! Detects work that waits although it fits (I21).
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

/// Most steps in total. A look at a node costs one step.
const STEPS: u64 = 50_000;
/// Cost in steps of the full check of a node.
const CLOSELY: u64 = 4;
/// Most steps for one piece of work, so that other work is tried as well.
const FOR_ONE: u64 = STEPS / 5;

/// Demand of a piece of work, with the policy that serves it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    demand: &'a Demand,
    policy: Policy,
}

/// A candidate node with its free space.
struct OpenNode<'a> {
    name: &'a NodeName,
    node: &'a Node,
    /// Free quanta.
    room: u64,
    free: Size,
    load: Option<&'a NodeLoad>,
}

/// Key of a size that fits no node.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Shape<'a> {
    whole: bool,
    size: &'a Size,
}

pub struct CouldPlace<'a> {
    snapshot: &'a Snapshot,
    holdings: &'a Holdings,
    tally: Totals<'a>,
    /// Open nodes with free space, in the order of their names.
    candidates: Vec<(&'a NodeName, &'a Node)>,
    /// Work with reserved space, by node.
    promised: BTreeMap<&'a NodeName, BTreeSet<&'a WorkId>>,
    fit_nowhere: BTreeSet<Shape<'a>>,
    steps: u64,
}

impl<'a> CouldPlace<'a> {
    /// Builds the search over the nodes that `suits` accepts. The holdings must be those of the
    /// snapshot.
    pub fn new(
        snapshot: &'a Snapshot,
        holdings: &'a Holdings,
        suits: impl Fn(&NodeName) -> bool,
    ) -> Self {
        let all = snapshot.allocations.values();
        // A node with a leaving process is no candidate. Its space is granted in a later round.
        let leaving = all.filter(|it| it.leaving || it.purged);
        let leaving: BTreeSet<&NodeName> = leaving.map(|it| &it.node).collect();
        let has_space =
            |(name, node): &(&NodeName, &Node)| free_quanta(snapshot, holdings.on(name), node) > 0;
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
            tally: Totals::new(holdings, &BTreeSet::new()),
            promised: promised(snapshot),
            fit_nowhere: BTreeSet::new(),
            steps: 0,
        }
    }

    /// Returns whether all steps are used up.
    pub fn is_tired(&self) -> bool {
        self.steps >= STEPS
    }

    /// Returns a node that could take one more process of this work in this class. Skips nodes with
    /// space reserved for other work.
    pub fn find(&mut self, work: &WorkId, class: &str) -> Option<NodeName> {
        let asked = self.asked(work, class)?;
        let Asked { demand, policy } = asked;
        let whole = is_whole(demand, policy);
        let shape = Shape {
            whole,
            size: &demand.size,
        };
        if self.fit_nowhere.contains(&shape) {
            return None;
        }
        let (mut fits, mut steps) = (false, 0);
        let mut found = None;
        for (name, node) in &self.candidates {
            if steps >= FOR_ONE || self.steps + steps >= STEPS {
                fits = true;
                break;
            }
            steps += 1;
            let place = self.place(name, node);
            let Some(grant) = self.grant(work, class, asked, &place) else {
                continue;
            };
            fits = true;
            if !suits(demand, name) || self.is_promised(name, work) {
                continue;
            }
            steps += CLOSELY;
            match self.allows(&grant) {
                Ok(()) => {
                    found = Some(grant.node);
                    break;
                }
                Err(fault) if is_of_the_work(&fault) => break,
                Err(_) => {}
            }
        }
        self.steps += steps;
        if !fits {
            self.fit_nowhere.insert(shape);
        }
        found
    }

    /// Returns whether this node could take one more process of this work in this class.
    pub fn is_open(&mut self, work: &WorkId, class: &str, node: &NodeName) -> bool {
        self.steps += 1 + CLOSELY;
        let Some(asked) = self.asked(work, class) else {
            return false;
        };
        let at = self
            .candidates
            .binary_search_by_key(&node, |(name, _)| name);
        let Some((name, node)) = at.ok().and_then(|at| self.candidates.get(at)) else {
            return false;
        };
        let place = self.place(name, node);
        let grant = self.grant(work, class, asked, &place);
        let fits = grant.is_some_and(|grant| self.allows(&grant).is_ok());
        fits && !self.is_promised(name, work)
    }

    fn asked(&self, work: &WorkId, class: &str) -> Option<Asked<'a>> {
        let demand = self.snapshot.demand.get(work)?;
        let policy = match &demand.queued {
            Some(_) => Policy::FairShare,
            None => self.snapshot.classes.get(class)?.policy,
        };
        Some(Asked { demand, policy })
    }

    fn allows(&self, grant: &Grant) -> Result<(), Fault> {
        let (demand, node) = check_grant(self.snapshot, self.holdings, grant)?;
        self.tally.would_take(self.snapshot, grant, demand, node)
    }

    fn place<'b>(&'b self, name: &'b NodeName, node: &'b Node) -> OpenNode<'b> {
        let load = self.holdings.on(name);
        let mut free = node.capacity.clone();
        if let Some(load) = load {
            free.subtract(&load.size);
        }
        OpenNode {
            name,
            node,
            room: free_quanta(self.snapshot, load, node),
            free,
            load,
        }
    }

    /// Returns the grant of a process on this node, or `None` if its size does not fit.
    fn grant(
        &self,
        work: &WorkId,
        class: &str,
        Asked { demand, policy }: Asked<'_>,
        place: &OpenNode<'_>,
    ) -> Option<Grant> {
        let capacity = &place.node.capacity;
        let quantum = quantum_of(self.snapshot, &place.node.pool);
        let whole = is_whole(demand, policy);
        let (order, size) = if whole {
            (quantum.node_order(capacity), capacity.clone())
        } else {
            (
                quantum.work_order(&demand.size),
                quantum.granted(&demand.size),
            )
        };
        let fits = order <= place.room && size.fits(&place.free) && demand.size.fits(capacity);
        if !fits {
            return None;
        }
        let gpus = match (whole, place.load) {
            (true, _) => Vec::new(),
            (false, Some(load)) => load.open_gpus(capacity, &size)?,
            (false, None) => NodeLoad::default().open_gpus(capacity, &size)?,
        };
        Some(Grant {
            work: work.clone(),
            kind: demand.kind,
            user: demand.user.clone(),
            class: class.into(),
            node: place.name.clone(),
            order,
            size,
            fixed: policy != Policy::FairShare,
            gpus,
            group: None,
        })
    }

    /// Returns whether the node has space reserved for other work.
    fn is_promised(&self, node: &NodeName, work: &WorkId) -> bool {
        let owners = self.promised.get(node).into_iter().flatten();
        owners.into_iter().any(|owner| *owner != work)
    }
}

/// Returns whether the demand is a reservation in a class that grants whole nodes.
fn is_whole(demand: &Demand, policy: Policy) -> bool {
    policy == Policy::Reserve && demand.kind == WorkKind::Reservation
}

/// Returns whether the demand allows this node.
fn suits(demand: &Demand, name: &NodeName) -> bool {
    let required = demand
        .queued
        .as_ref()
        .and_then(|it| it.required_node.as_ref());
    let listed = demand.machines.is_empty() || demand.machines.contains(name);
    listed && !demand.avoids.contains(name) && required.is_none_or(|it| it == name)
}

/// Returns the free quanta of a node.
fn free_quanta(snapshot: &Snapshot, load: Option<&NodeLoad>, node: &Node) -> u64 {
    let has = quantum_of(snapshot, &node.pool).node_order(&node.capacity);
    has.saturating_sub(load.map_or(0, |load| load.order))
}

fn promised(snapshot: &Snapshot) -> BTreeMap<&NodeName, BTreeSet<&WorkId>> {
    let mut promised: BTreeMap<&NodeName, BTreeSet<&WorkId>> = BTreeMap::new();
    for (owner, nodes) in &snapshot.carried.claims {
        for node in nodes {
            promised.entry(node).or_default().insert(owner);
        }
    }
    for carried in snapshot.carried.queues.values() {
        for (node, held) in &carried.reservations {
            promised.entry(node).or_default().insert(&held.work);
        }
        let gang_spaces = carried.gang.iter().flat_map(|gang| &gang.nodes);
        for (node, parts) in gang_spaces {
            promised.entry(node).or_default().extend(parts.keys());
        }
    }
    promised
}

/// Returns whether the fault concerns the work itself, so that every node would refuse it.
fn is_of_the_work(fault: &Fault) -> bool {
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
