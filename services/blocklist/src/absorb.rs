//! News of rm-scheduler: which machines there are, how work fared on them, and how far it is with
//! what it was told to avoid.

use hayward_blocklist_domain as domain;
use hayward_publication::{Batch, Change, Moment, Update};
use hayward_rm_scheduler_api::evidence::{
    CLEARINGS, ClearingEntry, FAILURES, FactEntry, MACHINES, MachineEntry, What,
};

use crate::ledger::Ledger;
use crate::store::Rows;

impl Ledger {
    pub(crate) fn absorb_machines(
        &mut self,
        update: Update<MachineEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let fresh = self.machines.absorb(update, moment.monotonic_ms);
        batch.rows.machines.extend(fresh);
        batch.followed(MACHINES, self.machines.cursor());
    }

    /// A fact is taken note of once; that it goes means nothing.
    pub(crate) fn absorb_facts(
        &mut self,
        update: Update<FactEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.failures.absorb(update, moment.monotonic_ms);
        batch.followed(FAILURES, self.failures.cursor());
        for change in changes {
            let Change::Set { key, .. } = change else {
                continue;
            };
            let Some(entry) = self.failures.get(&key).cloned() else {
                continue;
            };
            let Some(what) = what(entry.what) else {
                tracing::warn!(key, "a fact of a later version is not understood");
                continue;
            };
            let node = entry.node.clone();
            self.take_note(&node, fact(key, what, entry), moment, batch);
        }
    }

    pub(crate) fn absorb_clearings(
        &mut self,
        update: Update<ClearingEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        self.clearings.absorb(update, moment.monotonic_ms);
        batch.followed(CLEARINGS, self.clearings.cursor());
        let now = self.clearings.iter();
        let now = now.map(|(key, entry)| (key.clone(), entry.clone()));
        *self.context.clearings.write() = now.collect();
    }
}

fn what(what: What) -> Option<domain::What> {
    match what {
        What::Failed => Some(domain::What::Failed),
        What::Worked => Some(domain::What::Worked),
        What::Silenced => Some(domain::What::Silenced),
        What::Heard => Some(domain::What::Heard),
        What::Unknown => None,
    }
}

fn fact(key: String, what: domain::What, entry: FactEntry) -> domain::Fact {
    domain::Fact {
        key,
        what,
        at: entry.at,
        attempt: entry.attempt.map(|attempt| domain::Attempt {
            work: attempt.work,
            user: attempt.user,
            cause: attempt.cause,
            code: attempt.cause_code,
            ran: attempt.ran,
            held_ms: attempt.held_ms,
        }),
        spent: false,
    }
}
