//! The fairness ledger: how much each user was entitled to, and how much it received. The unit is a
//! quantum for one millisecond (I10).

use std::collections::BTreeMap;

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::shares::LedgerLine;
use hayward_rm_scheduler_external_planner::ExternalPoolTrees;
use hayward_vocabulary::UserName;

use crate::store::Rows;
use crate::working_set::Ledger;

/// Minimum number of milliseconds between two writes. A crash loses the charges since the last
/// write.
const WRITE_EVERY_MS: u64 = 1_000;

type UserAndClass = (UserName, String);

/// Entitlement and use of one user in a class, in quanta.
#[derive(Clone, Copy, Default)]
struct Rate {
    /// Quanta that the user is entitled to.
    due: u64,
    /// Quanta that the user holds.
    held: u64,
}

pub(crate) struct Usage {
    rows: BTreeMap<UserAndClass, LedgerLine>,
    /// Rates that the last round set.
    rates: BTreeMap<UserAndClass, Rate>,
    /// Monotonic milliseconds up to which time is charged.
    charged_ms: u64,
    /// Monotonic milliseconds of the last write.
    written_ms: u64,
}

impl Usage {
    pub fn new(rows: Vec<LedgerLine>, now_ms: u64) -> Self {
        let by_user_and_class = rows
            .into_iter()
            .map(|row| ((row.user.clone(), row.class.clone()), row));
        Self {
            rows: by_user_and_class.collect(),
            rates: BTreeMap::new(),
            charged_ms: now_ms,
            written_ms: now_ms,
        }
    }

    pub fn rows(&self) -> Vec<LedgerLine> {
        self.rows.values().cloned().collect()
    }

    /// Charges the time since the last call. Returns the rows to write, or none if the last write
    /// is too recent.
    fn charge(&mut self, now_ms: u64) -> Vec<LedgerLine> {
        let elapsed = now_ms.saturating_sub(self.charged_ms);
        self.charged_ms = now_ms;
        if self.rates.is_empty() {
            return Vec::new();
        }
        for ((user, class), rate) in &self.rates {
            let key = (user.clone(), class.clone());
            let row = self.rows.entry(key).or_insert_with(|| LedgerLine {
                user: user.clone(),
                class: class.clone(),
                due_quantum_ms: 0,
                received_quantum_ms: 0,
            });
            row.due_quantum_ms += rate.due * elapsed;
            row.received_quantum_ms += rate.held * elapsed;
        }
        if now_ms.saturating_sub(self.written_ms) < WRITE_EVERY_MS {
            return Vec::new();
        }
        self.written_ms = now_ms;
        let charged_rows = self.rates.keys().filter_map(|key| self.rows.get(key));
        charged_rows.cloned().collect()
    }
}

impl Ledger {
    /// Charges the time since the last round, at the rates of that round.
    pub(crate) fn charge_usage(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let rows = self.usage.charge(moment.monotonic_ms);
        if !rows.is_empty() {
            batch.rows.usage = rows;
        }
    }

    /// Sets the rates at which time is charged, from the shares of the newest round.
    pub(crate) fn set_rates(&mut self) {
        let mut rates = BTreeMap::new();
        for (class, share) in &self.planning.sums().classes {
            for (user, share) in &share.users {
                if share.assigned > 0 || share.tally.held > 0 {
                    let rate = Rate {
                        due: share.assigned,
                        held: share.tally.held,
                    };
                    rates.insert((user.clone(), class.clone()), rate);
                }
            }
        }
        self.add_rates_outside_shares(&mut rates);
        self.usage.rates = rates;
    }

    /// Adds the rates of work in queues and of work with an external planner. Such work has no
    /// entitlement by shares, so a user counts as entitled to what it holds.
    fn add_rates_outside_shares(&self, rates: &mut BTreeMap<UserAndClass, Rate>) {
        let snapshot = &self.snapshot;
        if snapshot.queues.is_empty() && snapshot.external_planners.is_empty() {
            return;
        }
        let trees = ExternalPoolTrees::new(snapshot);
        for allocation in snapshot.allocations.values() {
            let demand = snapshot.demand.get(&allocation.work);
            let is_queued = demand.is_some_and(|demand| demand.queued.is_some());
            if is_queued || trees.top_of_allocation(snapshot, allocation).is_some() {
                let key = (allocation.user.clone(), allocation.class.clone());
                let rate = rates.entry(key).or_default();
                rate.due += allocation.quanta;
                rate.held += allocation.quanta;
            }
        }
    }
}
