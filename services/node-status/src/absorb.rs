//! News of rm-scheduler: how far the emptying of nodes is, and in which pools the policy puts them.
//!
//! Nothing of it is stored: after a restart everything is read anew. Until then a drain stays where
//! it was, and brakes count a node in the pool that its agent names.

use hayward_publication::{Batch, Change, Moment, Update};
use hayward_rm_scheduler_api::evidence::{CLEARINGS, ClearingEntry, MACHINES, MachineEntry};
use hayward_vocabulary::NodeName;

use crate::commands::Cause;
use crate::ledger::Ledger;
use crate::store::Rows;

impl Ledger {
    pub(crate) fn absorb_clearings(
        &mut self,
        update: Update<ClearingEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.clearings.absorb(update, moment.monotonic_ms);
        batch.followed(CLEARINGS, self.clearings.cursor());
        for change in changes {
            let (Change::Set { key, .. } | Change::Removed { key, .. }) = change;
            // The others are of blocks, which are not ours.
            let name = key.strip_prefix("drain/").map(NodeName::new);
            if let Some(Ok(name)) = name {
                self.judge_drain(&name, moment, batch);
            }
        }
    }

    pub(crate) fn absorb_machines(
        &mut self,
        update: Update<MachineEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.machines.absorb(update, moment.monotonic_ms);
        batch.followed(MACHINES, self.machines.cursor());
        for change in changes {
            let (Change::Set { key, .. } | Change::Removed { key, .. }) = change;
            if let Ok(name) = NodeName::new(key) {
                self.place(&name, moment, batch);
            }
        }
    }

    /// Counts a node where the policy puts it.
    fn place(&mut self, name: &NodeName, moment: &Moment, batch: &mut Batch<Rows>) {
        let placed = self.machines.get(name.as_str());
        let placed = placed.map(|machine| machine.pool.clone());
        let Some(node) = self
            .nodes
            .get_mut(name)
            .filter(|node| node.placed != placed)
        else {
            return;
        };
        let before = node.counted_in().to_owned();
        node.placed = placed;
        self.moved(name, &before);
        self.settle(name, Cause::default(), moment, batch);
    }
}
