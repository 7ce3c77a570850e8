//! What came first: a grant, or what should have prevented it.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName};

use crate::input::snapshot::{Node, Snapshot};

/// Counts the changes of a snapshot, in the order in which they were made. After a restart
/// everything that is read from rows came before everything that is heard, so a former term is
/// never accused of what this one learned later.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    tick: u64,
    /// When a node last came to have the capacity it has.
    sized: BTreeMap<NodeName, u64>,
    /// When a node that is blocked came to be so.
    blocked: BTreeMap<NodeName, u64>,
    granted: BTreeMap<AllocationId, u64>,
    /// When a node, or anything that stands on it, last became another.
    stirred: BTreeMap<NodeName, u64>,
    /// When a round last read all of it.
    planned: u64,
}

impl Sequence {
    fn next(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// A node is about to become another.
    pub fn node(&mut self, name: &NodeName, before: Option<&Node>, now: &Node) {
        let tick = self.next();
        let other = |node: &Node| node.capacity != now.capacity || node.pool != now.pool;
        if before.is_none_or(other) {
            self.sized.insert(name.clone(), tick);
        }
        if before != Some(now) {
            self.stirred.insert(name.clone(), tick);
        }
        if now.block.is_none() {
            self.blocked.remove(name);
        } else {
            self.blocked.entry(name.clone()).or_insert(tick);
        }
    }

    pub fn node_gone(&mut self, name: &NodeName) {
        self.sized.remove(name);
        self.stirred.remove(name);
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

    /// Something that stands on this node comes, goes or changes.
    pub fn stirs(&mut self, name: &NodeName) {
        let tick = self.next();
        if let Some(stirred) = self.stirred.get_mut(name) {
            *stirred = tick;
        }
    }

    /// A round reads everything as it is now.
    pub fn planned(&mut self) {
        self.planned = self.tick;
    }

    /// When a node came to be as the last round saw it and as it still is.
    pub(super) fn as_planned(&self, name: &NodeName) -> Option<u64> {
        let stirred = self.stirred.get(name).copied();
        stirred.filter(|tick| *tick <= self.planned)
    }

    /// Anything may have changed, such as the quantum: nothing that stands is held against anybody.
    pub fn anew(&mut self, snapshot: &Snapshot) {
        let tick = self.next();
        let nodes = || snapshot.nodes.iter();
        self.sized = nodes().map(|(name, _)| (name.clone(), tick)).collect();
        self.stirred = self.sized.clone();
        let blocked = nodes().filter(|(_, node)| node.block.is_some());
        self.blocked = blocked.map(|(name, _)| (name.clone(), tick)).collect();
    }

    /// It was granted after its node came to have the capacity it has.
    pub(super) fn after_size(&self, id: &AllocationId, node: &NodeName) -> bool {
        self.after(id, self.sized.get(node))
    }

    /// It was granted while its node was blocked as it still is.
    pub(super) fn after_block(&self, id: &AllocationId, node: &NodeName) -> bool {
        self.after(id, self.blocked.get(node))
    }

    fn after(&self, id: &AllocationId, tick: Option<&u64>) -> bool {
        let granted = self.granted.get(id);
        matches!((granted, tick), (Some(granted), Some(tick)) if granted > tick)
    }
}
