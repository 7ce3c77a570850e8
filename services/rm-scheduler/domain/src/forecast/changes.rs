//! The changes that a forecast applies to a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, WorkId};

use crate::input::snapshot::{Block, BlockEffect, Demand, Node, Snapshot};

/// Any combination of changes. Names to withdraw, drain or lose that the snapshot does not have are
/// ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Work that is submitted.
    pub submissions: BTreeMap<WorkId, Demand>,
    /// Duration of one task in milliseconds, by submitted work. A missing entry stands for an hour.
    pub task_ms: BTreeMap<WorkId, u64>,
    /// Work that is withdrawn.
    pub withdraw: BTreeSet<WorkId>,
    /// Nodes that are evacuated and take no new work.
    pub drain: BTreeSet<NodeName>,
    /// Nodes that are lost.
    pub lose: BTreeSet<NodeName>,
    /// Nodes that join.
    pub add: BTreeMap<NodeName, Node>,
}

impl Changes {
    /// Applies all changes to a snapshot.
    pub fn apply(&self, snapshot: &mut Snapshot) {
        for (name, node) in &self.add {
            snapshot.nodes.insert(name.clone(), node.clone());
        }
        for name in &self.drain {
            if let Some(node) = snapshot.nodes.get_mut(name) {
                node.block = Some(Block {
                    effect: BlockEffect::Evacuate,
                    reason: "it is drained".to_owned(),
                });
            }
        }
        for name in &self.lose {
            if let Some(node) = snapshot.nodes.get_mut(name) {
                node.lost = true;
                node.takes_work = false;
            }
        }
        for work in &self.withdraw {
            snapshot.demand.remove(work);
        }
        for (work, demand) in &self.submissions {
            snapshot.demand.insert(work.clone(), demand.clone());
        }
    }
}
