//! What might be done to a fleet, in the planner's words.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, WorkId};

use crate::input::snapshot::{Block, BlockEffect, Demand, Node, Snapshot};

/// Any mix of them; what is named and not there changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub submissions: BTreeMap<WorkId, Demand>,
    /// Milliseconds a task of these takes; of work that is not named, an hour.
    pub task_ms: BTreeMap<WorkId, u64>,
    pub withdraw: BTreeSet<WorkId>,
    /// Nodes that are emptied and take nothing new.
    pub drain: BTreeSet<NodeName>,
    /// Nodes that do not answer any more.
    pub lose: BTreeSet<NodeName>,
    /// Nodes that join.
    pub add: BTreeMap<NodeName, Node>,
}

impl Changes {
    /// Brings a snapshot to what it would be right after them.
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
