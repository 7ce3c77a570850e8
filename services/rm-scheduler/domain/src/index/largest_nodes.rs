//! The largest nodes of a set, which limit the number of quanta that one process counts as.
//!
//! Sizes of processes are rounded up to whole quanta, and nodes are rounded down. A process as
//! large as a node would count as more quanta than the node has, and could never run. The quanta of
//! a process are therefore limited to those of the largest node that its size fits.

use crate::ids::PoolIx;
use std::collections::BTreeMap;

use hayward_vocabulary::{Quantum, Size};

use super::pool_tree::Forest;
use crate::input::snapshot::{Class, Policy, Snapshot};

/// The largest nodes of a set. Each other node of the set is no larger than one of these in every
/// dimension and in quanta.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LargestNodes {
    nodes: Vec<NodeSize>,
    /// True if a node has a part of a quantum. The quanta of a process may then need the limit.
    limits_process_quanta: bool,
}

/// Capacity of a node, in amounts and in whole quanta.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NodeSize {
    capacity: Size,
    quanta: u64,
}

impl NodeSize {
    fn new(quantum: &Quantum, capacity: &Size) -> Self {
        Self {
            capacity: capacity.clone(),
            quanta: quantum.quanta_of_node(capacity),
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        self.quanta <= other.quanta && self.capacity.fits(&other.capacity)
    }
}

impl LargestNodes {
    pub fn from_capacities<'a>(
        quantum: &Quantum,
        capacities: impl IntoIterator<Item = &'a Size>,
    ) -> Self {
        let mut largest = Self::default();
        for capacity in capacities {
            largest.add(quantum, capacity);
        }
        // The sort makes two values equal that differ only in the order of the given nodes.
        let key = |node: &NodeSize| (node.quanta, node.capacity.clone());
        largest.nodes.sort_by_key(key);
        largest
    }

    /// Returns the largest nodes that work may use, by class.
    pub fn by_class(snapshot: &Snapshot) -> BTreeMap<&str, Self> {
        let forest = Forest::new(&snapshot.pools);
        let classes = snapshot.classes.iter();
        let largest = classes.map(|(name, class)| {
            let nodes = Self::for_class(snapshot, &forest, class);
            (name.as_str(), nodes)
        });
        largest.collect()
    }

    fn for_class(snapshot: &Snapshot, forest: &Forest, class: &Class) -> Self {
        let Some(home) = forest.find(&class.pool) else {
            return Self::default();
        };
        let root = snapshot.pools.get(forest.name(forest.root(home)));
        let quantum = root.and_then(|root| root.quantum.as_ref());
        let may_use = |pool: PoolIx| match class.policy {
            Policy::FairShare => forest.is_within(pool, home),
            _ => pool == home,
        };
        let nodes = snapshot.nodes.values();
        let nodes = nodes.filter(|node| forest.find(&node.pool).is_some_and(may_use));
        let capacities = nodes.map(|node| &node.capacity);
        Self::from_capacities(quantum.unwrap_or(&snapshot.quantum), capacities)
    }

    fn add(&mut self, quantum: &Quantum, capacity: &Size) {
        let is_known = self.nodes.iter().any(|known| known.capacity == *capacity);
        if is_known {
            return;
        }
        let node = NodeSize::new(quantum, capacity);
        self.limits_process_quanta |= quantum.quanta_of_work(capacity) > node.quanta;
        if self.nodes.iter().any(|other| node.is_within(other)) {
            return;
        }
        self.nodes.retain(|other| !other.is_within(&node));
        self.nodes.push(node);
    }

    /// Returns the quanta of the largest node that a process of this size fits on.
    fn max_quanta_fitting(&self, size: &Size) -> Option<u64> {
        let nodes = self.nodes.iter().filter(|node| size.fits(&node.capacity));
        nodes.map(|node| node.quanta).max()
    }

    /// Returns true if a node has a part of a quantum, so that the quanta of a process may be
    /// limited.
    pub fn limits_process_quanta(&self) -> bool {
        self.limits_process_quanta
    }
}

/// Returns the quanta of one process of this size, where `largest` describes the nodes it may use.
/// A node below one quantum is ignored.
pub fn process_quanta<'a>(
    quantum: &Quantum,
    size: &Size,
    largest: impl IntoIterator<Item = &'a LargestNodes>,
) -> u64 {
    let quanta = quantum.quanta_of_work(size);
    let max_quanta = largest
        .into_iter()
        .filter_map(|nodes| nodes.max_quanta_fitting(size))
        .max();
    let cap = max_quanta.filter(|largest| *largest > 0);
    cap.map_or(quanta, |cap| quanta.min(cap))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Planner as _, Rounds, SnapshotDelta, check,
        input::snapshot::Node,
        planner::FairShare,
        tests::fixture::{Fixture, GIB, node_name},
    };

    const MIB: u64 = 1 << 20;

    fn quantum_with_cpu() -> Quantum {
        Quantum(Size {
            cpu_milli: 1_000,
            ..Size::memory(GIB)
        })
    }

    fn size(memory_mib: u64, cpu_milli: u64) -> Size {
        Size {
            cpu_milli,
            ..Size::memory(memory_mib * MIB)
        }
    }

    #[test]
    fn quanta_are_limited_to_the_largest_node_that_the_size_fits() {
        let quantum = Quantum::default();
        let nodes = [Size::memory(8_500 * MIB), Size::memory(4_500 * MIB)];
        let largest = [LargestNodes::from_capacities(&quantum, &nodes)];
        let quanta = |mib| process_quanta(&quantum, &Size::memory(mib * MIB), &largest);
        assert_eq!((quanta(8_500), quanta(8_501)), (8, 9));
        // The larger node has five quanta, so the process counts as five.
        assert_eq!(quanta(4_500), 5);
        assert_eq!(process_quanta(&quantum, &Size::memory(5 * GIB), []), 5);
    }

    #[test]
    fn quanta_are_limited_by_the_scarcest_dimension_of_the_node() {
        let quantum = quantum_with_cpu();
        let largest = [LargestNodes::from_capacities(
            &quantum,
            &[size(8 * 1_024, 2_000)],
        )];
        let process_size = size(8 * 1_024, 1_000);
        let quanta = process_quanta(&quantum, &process_size, &largest);
        assert_eq!(quanta, 2);
        assert_eq!(
            quantum.granted_at(quanta, &process_size),
            size(8 * 1_024, 2_000)
        );
    }

    #[test]
    fn nodes_of_whole_quanta_limit_nothing() {
        let whole_quanta =
            LargestNodes::from_capacities(&Quantum::default(), &[Size::memory(8 * GIB)]);
        assert!(!whole_quanta.limits_process_quanta());
        let part_of_quantum =
            LargestNodes::from_capacities(&Quantum::default(), &[Size::memory(8 * GIB + 1)]);
        assert!(part_of_quantum.limits_process_quanta());
    }

    fn set_memory(fixture: &mut Fixture, name: &str, bytes: u64) -> Node {
        let node = fixture.node(name);
        node.capacity.memory_bytes = bytes;
        node.clone()
    }

    #[test]
    fn work_that_asks_for_exactly_the_memory_of_a_node_runs() {
        let all = 8 * GIB + 300 * MIB;
        for id in ["service", "job", "reservation"] {
            let mut fixture = Fixture::eager().nodes(&[8, 4]);
            set_memory(&mut fixture, "n00", all);
            let demand = match id {
                "service" => fixture.service(id, "a", 1),
                "job" => fixture.job(id, "a", 1),
                _ => fixture.reservation(id, "a", 1),
            };
            (demand.size.memory_bytes, demand.max_processes) = (all, 1);
            let plan = fixture.plan();
            assert_eq!(plan.grants.len(), 1, "{id}");
            let grant = &plan.grants[0];
            assert_eq!((grant.quanta, grant.node.as_str()), (8, "n00"), "{id}");
            assert_eq!(grant.size.memory_bytes, all, "{id}");
            assert_eq!(check(&fixture.snapshot, &plan), Ok(()), "{id}");
        }
    }

    /// After any change of a node, a plan by delta equals a plan from scratch.
    #[test]
    fn process_quanta_follow_changes_of_the_node() {
        let mut fixture = Fixture::eager().nodes(&[8]);
        let all = 8 * GIB + 300 * MIB;
        let demand = fixture.job("j", "a", 1);
        (demand.size.memory_bytes, demand.max_processes) = (all, 1);
        let mut rounds = Rounds::default();
        let first = rounds
            .decide(&fixture.snapshot, &SnapshotDelta::everything())
            .plan;
        assert!(first.grants.is_empty());
        let mut grant_quanta = Vec::new();
        for bytes in [all, 16 * GIB, 8 * GIB, all] {
            set_memory(&mut fixture, "n00", bytes);
            let delta = SnapshotDelta {
                nodes: [node_name("n00")].into(),
                ..SnapshotDelta::default()
            };
            let plan = rounds.decide(&fixture.snapshot, &delta).plan;
            assert_eq!(plan.grants, FairShare.schedule(&fixture.snapshot).grants);
            grant_quanta.push(plan.grants.first().map(|grant| grant.quanta));
        }
        assert_eq!(grant_quanta, [Some(8), Some(9), None, Some(8)]);
    }
}
