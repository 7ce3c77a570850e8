//! News of rm-scheduler: how far the emptying of nodes is.
//!
//! Nothing of it is stored: after a restart everything is read anew, and until then a drain stays
//! where it was.

use hayward_publication::{Batch, Change, Moment, Update};
use hayward_rm_scheduler_api::evidence::{CLEARINGS, ClearingEntry};
use hayward_vocabulary::NodeName;

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
}
