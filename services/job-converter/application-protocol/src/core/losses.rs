//! A node is gone, with all that stood on it (5.6). Nobody has to confirm what no longer is.

use hayward_vocabulary::{NodeName, Timestamp};

use crate::core::application::{Application, Step};
use crate::ids::TaskId;
use crate::messages::{Termination, ToFront};
use crate::reason::{Reason, Refused};

impl Application {
    pub(super) fn node_lost(
        &mut self,
        node: &NodeName,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refused> {
        self.unlink(node);
        let stood = self.allocations.iter().filter(|(_, it)| it.node == *node);
        let keys: Vec<TaskId> = stood.map(|(key, _)| key.clone()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        step.tell(ToFront::Release {
            keys: keys.clone(),
            termination: Termination::Unknown,
        });
        for key in keys {
            // Ending one may end all of them, where the gang is released whole.
            if self.allocations.contains_key(&key) {
                self.ended(&key, Termination::Unknown, now, step)?;
            }
        }
        Ok(())
    }

    /// One allocation is gone by itself. A real ask on its way into its place waits again.
    pub(super) fn lost_one(
        &mut self,
        key: &TaskId,
        termination: Termination,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refused> {
        if !self.allocations.contains_key(key) {
            return Err(self.refused(Reason::NotAllocated, &"Lost"));
        }
        self.unlink_one(key);
        step.tell(ToFront::Release {
            keys: vec![key.clone()],
            termination,
        });
        self.ended(key, termination, now, step)
    }

    /// The place goes by another way than the exchange, so who was to take it waits again.
    pub(super) fn unlink_one(&mut self, key: &TaskId) {
        let Some(held) = self.allocations.get_mut(key) else {
            return;
        };
        if let Some((ask, _)) = held.successor.take() {
            held.released = None;
            self.pending.insert(ask.key.clone(), ask);
        }
    }

    /// Real asks that were on their way to the node wait again, and where their placeholder stands
    /// elsewhere it is kept and can be used.
    fn unlink(&mut self, node: &NodeName) {
        for held in self.allocations.values_mut() {
            let linked = held.successor.take_if(|(_, on)| on == node);
            if let Some((ask, _)) = linked {
                held.released = None;
                self.pending.insert(ask.key.clone(), ask);
            }
        }
    }
}
