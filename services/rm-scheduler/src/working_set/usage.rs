//! The fairness ledger: what each user was due and received, in quantum-milliseconds (I10, G15).

use std::collections::BTreeMap;

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::shares::LedgerLine;

use hayward_rm_scheduler_outside::Trees;

use crate::store::Rows;
use crate::working_set::Ledger;

/// Milliseconds between two writings of the ledger. What a crash loses is less than this.
const WRITE_EVERY_MS: u64 = 1_000;

impl Ledger {
    /// Charges the time since the last round at the rates that round left.
    pub(crate) fn charge_usage(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let elapsed = moment.monotonic_ms.saturating_sub(self.accounted_ms);
        self.accounted_ms = moment.monotonic_ms;
        if self.rates.is_empty() {
            return;
        }
        for ((user, class), (due, held)) in &self.rates {
            let key = (user.clone(), class.clone());
            let line = self.usage.entry(key).or_insert_with(|| LedgerLine {
                user: user.clone(),
                class: class.clone(),
                due_quantum_ms: 0,
                received_quantum_ms: 0,
            });
            line.due_quantum_ms += due * elapsed;
            line.received_quantum_ms += held * elapsed;
        }
        if moment.monotonic_ms.saturating_sub(self.usage_written_ms) >= WRITE_EVERY_MS {
            self.usage_written_ms = moment.monotonic_ms;
            let touched = self.rates.keys().filter_map(|key| self.usage.get(key));
            batch.rows.usage = touched.cloned().collect();
        }
    }

    pub(crate) fn set_rates(&mut self) {
        self.rates = BTreeMap::new();
        for (class, share) in &self.rounds.sums().classes {
            for (user, share) in &share.users {
                if share.given > 0 || share.tally.held > 0 {
                    self.rates.insert(
                        (user.clone(), class.clone()),
                        (share.given, share.tally.held),
                    );
                }
            }
        }
        self.set_rates_outside_shares();
    }

    /// In a queue, and where a planner outside decides, nothing is owed by share: who works there
    /// is due what it holds.
    fn set_rates_outside_shares(&mut self) {
        let snapshot = &self.snapshot;
        if snapshot.queues.is_empty() && snapshot.outside.is_empty() {
            return;
        }
        let outside = Trees::of(snapshot);
        for allocation in snapshot.allocations.values() {
            let demand = snapshot.demand.get(&allocation.work);
            let queued = demand.is_some_and(|demand| demand.queued.is_some());
            if queued || outside.of_held(snapshot, allocation).is_some() {
                let key = (allocation.user.clone(), allocation.class.clone());
                let (due, held) = self.rates.entry(key).or_default();
                *due += allocation.order;
                *held += allocation.order;
            }
        }
    }
}
