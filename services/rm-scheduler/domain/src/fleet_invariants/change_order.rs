//! The order of changes in a scheduler: whether a grant came before or after a change that forbids
//! it.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName};

use crate::input::snapshot::{Node, Snapshot};

/// Ascending numbers for the changes of a snapshot. After a restart, all rows of the database come
/// before all events. A grant of an earlier term therefore never counts as later than an event.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    /// Number of the last change.
    tick: u64,
    /// Number of the last change of the capacity or pool, by node.
    last_resize: BTreeMap<NodeName, u64>,
    /// Number at which the present block began, by blocked node.
    blocked_since: BTreeMap<NodeName, u64>,
    /// Number of the grant, by allocation that holds space.
    granted: BTreeMap<AllocationId, u64>,
    /// Number of the last change of a node or of an allocation on it, by node.
    last_changes: BTreeMap<NodeName, u64>,
    /// Number of the last change that a round has read.
    last_round: u64,
}

impl Sequence {
    fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// Records a change of a node.
    pub fn record_node(&mut self, name: &NodeName, before: Option<&Node>, now: &Node) {
        let tick = self.next_tick();
        let is_resized = |node: &Node| node.capacity != now.capacity || node.pool != now.pool;
        if before.is_none_or(is_resized) {
            self.last_resize.insert(name.clone(), tick);
        }
        if before != Some(now) {
            self.last_changes.insert(name.clone(), tick);
        }
        if now.block.is_none() {
            self.blocked_since.remove(name);
        } else {
            self.blocked_since.entry(name.clone()).or_insert(tick);
        }
    }

    /// Removes a node that left the fleet.
    pub fn forget_node(&mut self, name: &NodeName) {
        self.last_resize.remove(name);
        self.last_changes.remove(name);
        self.blocked_since.remove(name);
    }

    /// Records an allocation that holds space on its node, or the end of one that does not any
    /// more.
    pub fn record_allocation(&mut self, id: &AllocationId, holds_space: bool) {
        if holds_space {
            let tick = self.next_tick();
            self.granted.entry(id.clone()).or_insert(tick);
        } else {
            self.granted.remove(id);
        }
    }

    /// Records a change of an allocation on this node.
    pub fn record_change_on_node(&mut self, name: &NodeName) {
        let tick = self.next_tick();
        if let Some(last_change) = self.last_changes.get_mut(name) {
            *last_change = tick;
        }
    }

    /// Records that a round reads the present state.
    pub fn record_round(&mut self) {
        self.last_round = self.tick;
    }

    /// Returns the number of the last change of a node. Returns `None` if the node changed after
    /// the last round.
    pub(super) fn change_before_round(&self, name: &NodeName) -> Option<u64> {
        let last_change = self.last_changes.get(name).copied();
        last_change.filter(|tick| *tick <= self.last_round)
    }

    /// Starts again after a change such as another quantum, so that no present allocation counts as
    /// a violation.
    pub fn restart(&mut self, snapshot: &Snapshot) {
        let tick = self.next_tick();
        let nodes = || snapshot.nodes.iter();
        self.last_resize = nodes().map(|(name, _)| (name.clone(), tick)).collect();
        self.last_changes = self.last_resize.clone();
        let blocked = nodes().filter(|(_, node)| node.block.is_some());
        self.blocked_since = blocked.map(|(name, _)| (name.clone(), tick)).collect();
    }

    /// Returns whether the allocation was granted after the last capacity change of its node.
    pub(super) fn is_after_resize(&self, id: &AllocationId, node: &NodeName) -> bool {
        self.is_after(id, self.last_resize.get(node))
    }

    /// Returns whether the allocation was granted after the present block of its node began.
    pub(super) fn is_after_block(&self, id: &AllocationId, node: &NodeName) -> bool {
        self.is_after(id, self.blocked_since.get(node))
    }

    fn is_after(&self, id: &AllocationId, tick: Option<&u64>) -> bool {
        let granted = self.granted.get(id);
        matches!((granted, tick), (Some(granted), Some(tick)) if granted > tick)
    }
}
