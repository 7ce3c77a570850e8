//! Order of changes: whether a grant came before or after the change that forbids it.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName};

use crate::input::snapshot::{Node, Snapshot};

/// Numbers for the changes of a snapshot, in their order. After a restart, all rows of the database
/// come before all events. Therefore a grant of an earlier term is never blamed for a later event.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    tick: u64,
    /// Number of the last change of the capacity or pool, by node.
    sized: BTreeMap<NodeName, u64>,
    /// Number at which the present block began, by blocked node.
    blocked: BTreeMap<NodeName, u64>,
    granted: BTreeMap<AllocationId, u64>,
    /// Number of the last change of a node or of an allocation on it, by node.
    last_changes: BTreeMap<NodeName, u64>,
    /// Number of the last change that a round has read.
    planned: u64,
}

impl Sequence {
    fn next(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// Records a change of a node.
    pub fn node(&mut self, name: &NodeName, before: Option<&Node>, now: &Node) {
        let tick = self.next();
        let other = |node: &Node| node.capacity != now.capacity || node.pool != now.pool;
        if before.is_none_or(other) {
            self.sized.insert(name.clone(), tick);
        }
        if before != Some(now) {
            self.last_changes.insert(name.clone(), tick);
        }
        if now.block.is_none() {
            self.blocked.remove(name);
        } else {
            self.blocked.entry(name.clone()).or_insert(tick);
        }
    }

    pub fn node_gone(&mut self, name: &NodeName) {
        self.sized.remove(name);
        self.last_changes.remove(name);
        self.blocked.remove(name);
    }

    pub fn allocation(&mut self, id: &AllocationId, holds: bool) {
        if holds {
            let tick = self.next();
            self.granted.entry(id.clone()).or_insert(tick);
        } else {
            self.granted.remove(id);
        }
    }

    /// Records a change of an allocation on this node.
    pub fn stirs(&mut self, name: &NodeName) {
        let tick = self.next();
        if let Some(last_change) = self.last_changes.get_mut(name) {
            *last_change = tick;
        }
    }

    /// Records that a round reads the present state.
    pub fn planned(&mut self) {
        self.planned = self.tick;
    }

    /// Returns the last change of a node if the last round has read it. Returns `None` if the node
    /// changed since.
    pub(super) fn as_planned(&self, name: &NodeName) -> Option<u64> {
        let last_change = self.last_changes.get(name).copied();
        last_change.filter(|tick| *tick <= self.planned)
    }

    /// Starts again after a change such as another quantum. From then on, no present allocation
    /// counts as a violation.
    pub fn anew(&mut self, snapshot: &Snapshot) {
        let tick = self.next();
        let nodes = || snapshot.nodes.iter();
        self.sized = nodes().map(|(name, _)| (name.clone(), tick)).collect();
        self.last_changes = self.sized.clone();
        let blocked = nodes().filter(|(_, node)| node.block.is_some());
        self.blocked = blocked.map(|(name, _)| (name.clone(), tick)).collect();
    }

    /// Returns whether the allocation was granted after the last capacity change of its node.
    pub(super) fn after_size(&self, id: &AllocationId, node: &NodeName) -> bool {
        self.after(id, self.sized.get(node))
    }

    /// Returns whether the allocation was granted after the present block of its node began.
    pub(super) fn after_block(&self, id: &AllocationId, node: &NodeName) -> bool {
        self.after(id, self.blocked.get(node))
    }

    fn after(&self, id: &AllocationId, tick: Option<&u64>) -> bool {
        let granted = self.granted.get(id);
        matches!((granted, tick), (Some(granted), Some(tick)) if granted > tick)
    }
}
