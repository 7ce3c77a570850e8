//! Handles lost allocations: all allocations of a lost node, or a single one. The core removes them
//! at once and does not wait for a confirmation.

use hayward_vocabulary::{NodeName, Timestamp};

use crate::core::application::{Application, Step};
use crate::ids::TaskId;
use crate::messages::{Termination, ToFront};
use crate::no_change_reason::{Reason, Refusal};

impl Application {
    pub(super) fn on_node_lost(
        &mut self,
        node: &NodeName,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        self.unlink_successors_on(node);
        let on_node = self.allocations.iter().filter(|(_, it)| it.node == *node);
        let keys: Vec<TaskId> = on_node.map(|(key, _)| key.clone()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        step.send(ToFront::Release {
            keys: keys.clone(),
            termination: Termination::Unknown,
        });
        for key in keys {
            // Ending one allocation may release the whole gang.
            if self.allocations.contains_key(&key) {
                self.on_ended(&key, Termination::Unknown, now, step)?;
            }
        }
        Ok(())
    }

    /// Removes a lost allocation. An ask that was replacing it waits again.
    pub(super) fn on_allocation_lost(
        &mut self,
        key: &TaskId,
        termination: Termination,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        if !self.allocations.contains_key(key) {
            return Err(self.refusal(Reason::NotAllocated, &"Lost"));
        }
        self.unlink_successor(key);
        step.send(ToFront::Release {
            keys: vec![key.clone()],
            termination,
        });
        self.on_ended(key, termination, now, step)
    }

    /// Makes the successor of a placeholder wait again, because the placeholder ends before the
    /// exchange.
    pub(super) fn unlink_successor(&mut self, key: &TaskId) {
        let Some(allocation) = self.allocations.get_mut(key) else {
            return;
        };
        if let Some((ask, _)) = allocation.successor.take() {
            allocation.released = None;
            self.pending.insert(ask.key.clone(), ask);
        }
    }

    /// Cancels the replacements that were to run on this node. Their asks wait again, and their
    /// placeholders can be replaced again.
    fn unlink_successors_on(&mut self, node: &NodeName) {
        for allocation in self.allocations.values_mut() {
            let linked = allocation.successor.take_if(|(_, on)| on == node);
            if let Some((ask, _)) = linked {
                allocation.released = None;
                self.pending.insert(ask.key.clone(), ask);
            }
        }
    }
}
