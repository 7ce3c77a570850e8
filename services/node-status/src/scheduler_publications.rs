//! Applies the publications of rm-scheduler: `clearings` with the progress of drains, and
//! `machines` with the node pool of each node by policy.
//!
//! The publications are not stored, and are read again after a restart. Until then a drain stays in
//! its stage, and the brake counts a node in the pool that its agent names.

use hayward_publication::{Batch, Change, Moment, Update};
use hayward_rm_scheduler_api::node_publications::{
    CLEARINGS, ClearingEntry, MACHINES, MachineEntry,
};
use hayward_vocabulary::NodeName;

use crate::command_handlers::Cause;
use crate::ledger::Ledger;
use crate::store::Rows;

impl Ledger {
    /// Applies the progress of drains, and judges the drains that it concerns.
    pub(crate) fn apply_clearings(
        &mut self,
        update: Update<ClearingEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.clearings.absorb(update, moment.monotonic_ms);
        batch.record_position(CLEARINGS, self.clearings.cursor());
        for change in changes {
            let (Change::Set { key, .. } | Change::Removed { key, .. }) = change;
            // Keys without this prefix are about evacuations of blocklist.
            let name = key.strip_prefix("drain/").map(NodeName::new);
            if let Some(Ok(name)) = name {
                self.judge_drain(&name, moment, batch);
            }
        }
    }

    /// Applies the node pools by policy.
    pub(crate) fn apply_machines(
        &mut self,
        update: Update<MachineEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.scheduler_nodes.absorb(update, moment.monotonic_ms);
        batch.record_position(MACHINES, self.scheduler_nodes.cursor());
        for change in changes {
            let (Change::Set { key, .. } | Change::Removed { key, .. }) = change;
            if let Ok(name) = NodeName::new(key) {
                self.set_policy_pool(&name, moment, batch);
            }
        }
    }

    /// Moves a node to the pool of the policy, for the brake and the limits of drains.
    fn set_policy_pool(&mut self, name: &NodeName, moment: &Moment, batch: &mut Batch<Rows>) {
        let policy_pool = self.scheduler_nodes.get(name.as_str());
        let policy_pool = policy_pool.map(|machine| machine.pool.clone());
        let Some(node) = self
            .nodes
            .get_mut(name)
            .filter(|node| node.policy_pool != policy_pool)
        else {
            return;
        };
        let before = node.brake_pool().to_owned();
        node.policy_pool = policy_pool;
        self.update_pool_counts(name, &before);
        self.judge_node(name, Cause::default(), moment, batch);
    }
}
