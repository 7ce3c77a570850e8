//! Capacity and use of nodes, in quanta.

use hayward_rm_scheduler_domain::snapshot::{Allocation, Node, Snapshot};

use crate::pool_tree::quantum_of_pool;

/// Capacity and use of one node, in quanta of its tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeSpace {
    pub capacity: u64,
    /// Quanta of all allocations.
    pub held: u64,
    /// Quanta of allocations that are not preemptable.
    pub fixed: u64,
    /// Quanta of allocations with an order to leave.
    pub vacating: u64,
    /// Number of allocations.
    pub processes: u64,
}

impl NodeSpace {
    pub fn new(snapshot: &Snapshot, node: Option<&Node>) -> Self {
        let capacity =
            |node: &Node| quantum_of_pool(snapshot, &node.pool).quanta_of_node(&node.capacity);
        Self {
            capacity: node.map_or(0, capacity),
            ..Self::default()
        }
    }

    pub fn add(&mut self, allocation: &Allocation) {
        self.held += allocation.quanta;
        self.processes += 1;
        if allocation.fixed {
            self.fixed += allocation.quanta;
        }
        if allocation.leaving {
            self.vacating += allocation.quanta;
        }
    }

    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.held)
    }
}
