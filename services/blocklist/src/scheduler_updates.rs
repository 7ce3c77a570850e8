//! Applies updates of the publications of rm-scheduler: the nodes, the facts about work on them,
//! and the progress of evacuations.

use hayward_blocklist_domain as domain;
use hayward_publication::{Batch, Change, Moment, Update};
use hayward_rm_scheduler_api::node_publications::{
    CLEARINGS, ClearingEntry, FAILURES, FactEntry, FactKind, MACHINES, MachineEntry,
};

use crate::ledger::Ledger;
use crate::store::Rows;

impl Ledger {
    /// Applies an update of `machines`. Names of new nodes are stored.
    pub(crate) fn apply_node_update(
        &mut self,
        update: Update<MachineEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let new_names = self.nodes.absorb(update, moment.monotonic_ms);
        batch.rows.new_nodes.extend(new_names);
        batch.record_position(MACHINES, self.nodes.cursor());
    }

    /// Applies an update of `failures`. Each fact is added once. The removal of a fact from the
    /// publication is ignored.
    pub(crate) fn apply_fact_update(
        &mut self,
        update: Update<FactEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.failures.absorb(update, moment.monotonic_ms);
        batch.record_position(FAILURES, self.failures.cursor());
        for change in changes {
            let Change::Set { key, .. } = change else {
                continue;
            };
            let Some(entry) = self.failures.get(&key).cloned() else {
                continue;
            };
            let Some(kind) = to_domain_kind(entry.what) else {
                tracing::warn!(key, "ignored a fact of an unknown kind");
                continue;
            };
            let node = entry.node.clone();
            self.add_fact(&node, to_domain_fact(key, kind, entry), moment, batch);
        }
    }

    /// Applies an update of `clearings`, and shares the progress with the handlers.
    pub(crate) fn apply_evacuation_update(
        &mut self,
        update: Update<ClearingEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        self.evacuations.absorb(update, moment.monotonic_ms);
        batch.record_position(CLEARINGS, self.evacuations.cursor());
        let entries = self.evacuations.iter();
        let entries = entries.map(|(key, entry)| (key.clone(), entry.clone()));
        *self.context.evacuations.write() = entries.collect();
    }
}

fn to_domain_kind(what: FactKind) -> Option<domain::FactKind> {
    match what {
        FactKind::Failed => Some(domain::FactKind::Failure),
        FactKind::Worked => Some(domain::FactKind::Success),
        FactKind::Silenced => Some(domain::FactKind::LostContact),
        FactKind::Heard => Some(domain::FactKind::Contact),
        FactKind::Unknown => None,
    }
}

fn to_domain_fact(key: String, kind: domain::FactKind, entry: FactEntry) -> domain::Fact {
    domain::Fact {
        key,
        kind,
        at: entry.at,
        attempt: entry.attempt.map(|attempt| domain::Attempt {
            work: attempt.work,
            user: attempt.user,
            cause: attempt.cause,
            cause_class: attempt.cause_code,
            has_run: attempt.ran,
            occupied_ms: attempt.held_ms,
        }),
        spent: false,
    }
}
