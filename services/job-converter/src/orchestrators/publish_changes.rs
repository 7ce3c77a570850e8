//! Publishes the entries of work that changed. Each entry is computed from the whole state of one
//! piece of work.

use std::collections::BTreeMap;

use hayward_job_converter_api::DEMAND;
use hayward_job_converter_api::orchestrators::{Allotted, ORCHESTRATED, ORCHESTRATORS};
use hayward_publication::committer::{Batch, Moment};
use hayward_rm_scheduler_api::VerdictEntry;
use hayward_vocabulary::UserName;
use uuid::Uuid;

use super::published_entries::{self, Faults};
use super::{OrchestratorRecord, Orchestrators, WORK_KEY_PREFIX};
use crate::accounts::Accounts;
use crate::store::Rows;

/// State of the service that published entries depend on.
pub struct RefreshContext<'a> {
    /// Whether the first update of `allocations` has arrived. Allocations are unknown before.
    pub synced: bool,
    pub verdicts: &'a BTreeMap<String, VerdictEntry>,
    pub accounts: &'a Accounts,
    pub stop_grace_ms: u64,
}

impl Orchestrators {
    pub fn refresh(
        &mut self,
        context: &RefreshContext<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        for uuid in std::mem::take(&mut self.dirty) {
            if self
                .works
                .get(&uuid)
                .is_some_and(|work| work.retired.is_some())
            {
                self.refresh_retired(uuid, context.synced, batch);
            } else {
                self.refresh_one(uuid, context, moment, batch);
            }
        }
        for name in std::mem::take(&mut self.dirty_views) {
            match self.by_name.get(&name) {
                Some(record) => {
                    let view = published_entries::orchestrator_view(&name, record);
                    batch.publish(ORCHESTRATORS, "", name.as_str(), &view);
                }
                None => batch.withdraw(ORCHESTRATORS, "", name.as_str()),
            }
        }
    }

    fn refresh_retired(&mut self, uuid: Uuid, synced: bool, batch: &mut Batch<Rows>) {
        let Some(work) = self.works.get(&uuid) else {
            return;
        };
        batch.withdraw(DEMAND, "", work.id.as_str());
        if synced && work.allocations.is_empty() {
            if let Some(mut work) = self.works.remove(&uuid) {
                work.clear_backoff(uuid, batch);
            }
            batch.rows.orchestrators.remove_work(uuid);
        } else if self.by_name.contains_key(&work.orchestrator) {
            self.publish_allocations(uuid, batch);
        }
    }

    fn refresh_one(
        &mut self,
        uuid: Uuid,
        context: &RefreshContext<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        let Some(record) = self.by_name.get_mut(&work.orchestrator) else {
            return;
        };
        let verdict = context.verdicts.get(work.id.as_str());
        let is_known_open = |record: &OrchestratorRecord| {
            record
                .map
                .get(&work.name)
                .is_some_and(|it| it.end_reason.is_none())
        };
        let refused = verdict.filter(|verdict| verdict.refused);
        if let Some(verdict) =
            refused.filter(|_| context.synced && work.live_count() == 0 && is_known_open(record))
        {
            // Refused work is not requested again. It stays known while its map names it.
            record.map.refuse(&work.name);
            work.refusal_reason = Some(published_entries::refusal_text(verdict));
            if let Some(known) = record.map.get(&work.name) {
                batch
                    .rows
                    .orchestrators
                    .set_work(uuid, work.row(&known.entry, known.end_reason));
            }
        }
        let Some(known) = record.map.get(&work.name) else {
            return;
        };
        let grace_ms = context.stop_grace_ms;
        let is_open = known.end_reason.is_none();
        let demand =
            published_entries::demand_entry(work, &known.entry, moment.monotonic_ms, grace_ms);
        match demand.filter(|_| is_open) {
            Some(mut demand) => {
                context.accounts.add_to(&mut demand, &mut batch.rows);
                batch.publish(DEMAND, "", work.id.as_str(), &demand);
            }
            None => batch.withdraw(DEMAND, "", work.id.as_str()),
        }
        if context.synced {
            let fault = record.faults.get(&work.name);
            let state =
                published_entries::work_entry(work, &known.entry, known.end_reason, verdict, fault);
            let key = format!("{WORK_KEY_PREFIX}{}", work.name);
            let entry = Allotted::Work(state);
            batch.publish(ORCHESTRATED, work.orchestrator.as_str(), &key, &entry);
            self.publish_allocations(uuid, batch);
        }
    }

    fn publish_allocations(&self, uuid: Uuid, batch: &mut Batch<Rows>) {
        let Some(work) = self.works.get(&uuid) else {
            return;
        };
        for allocation in work.allocations.values() {
            let scope = work.orchestrator.as_str();
            // A settled allocation is no longer shown, although the scheduler has not removed it
            // yet.
            if work.settled.contains(&allocation.id) {
                batch.withdraw(ORCHESTRATED, scope, allocation.id.as_str());
                continue;
            }
            let entry = Allotted::Share(published_entries::allocation_entry(work, allocation));
            batch.publish(ORCHESTRATED, scope, allocation.id.as_str(), &entry);
        }
    }

    /// Publishes refused entries for which no work exists.
    pub(super) fn publish_refused(
        &mut self,
        name: &UserName,
        record: &OrchestratorRecord,
        faults_before: &Faults,
        batch: &mut Batch<Rows>,
    ) {
        for id in faults_before.keys().chain(record.faults.keys()) {
            if let Some(uuid) = record.uuid_by_entry.get(id) {
                self.dirty.insert(*uuid);
            } else if !record.faults.contains_key(id) {
                batch.withdraw(
                    ORCHESTRATED,
                    name.as_str(),
                    &format!("{WORK_KEY_PREFIX}{id}"),
                );
            }
        }
        let idle = record.faults.keys();
        for id in idle.filter(|id| !record.uuid_by_entry.contains_key(*id)) {
            let entry = Allotted::Work(published_entries::idle_entry(id, record.faults.get(id)));
            batch.publish(
                ORCHESTRATED,
                name.as_str(),
                &format!("{WORK_KEY_PREFIX}{id}"),
                &entry,
            );
        }
    }
}
