//! Changes a running service: its counts, its settings, and the program of its processes.
//!
//! Only a change to what the processes run makes a new deployment. Other counts, retry settings and
//! labels do not. [`Processors`] derives the next steps from the current state, as after a restart.
//!
//! [`Processors`]: hayward_job_converter_domain::service_processors::Processors

use std::collections::BTreeMap;

use hayward_job_converter_api::DEMAND;
use hayward_job_converter_api::submission::ServiceSubmission;
use hayward_job_converter_domain::service_processors::ProcessorId;
use hayward_publication::committer::{Batch, Moment};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::WorkId;
use uuid::Uuid;

use super::Ledger;
use super::scheduler_updates::WorkSlot;
use super::service_processors::now;
use crate::command::{ChangeService, ServiceChangeResult};
use crate::error::Refusal;
use crate::store::Rows;
use crate::store::backoffs::BackoffRow;
use crate::store::processors::ProcessorRow;
use crate::store::work::ChangedServiceRow;
use crate::work::service_processors::processor_settings;
use crate::work::{Process, Slot, Work, WorkSpec, parse_work_id};

/// New submission of a service.
struct ServiceChange {
    service: Box<ServiceSubmission>,
    redeployed: bool,
}

/// Returns the submission without counts, labels, retries and limits. A change of any other field
/// makes a new deployment.
fn deployed_fields(service: &ServiceSubmission) -> ServiceSubmission {
    ServiceSubmission {
        instances: None,
        standbys: None,
        host_affinity: None,
        retries: None,
        labels: BTreeMap::new(),
        disruption_limit: None,
        ..service.clone()
    }
}

/// Refuses a change based on an old generation, and changes of fixed fields.
fn check_change(
    before: &ServiceSubmission,
    request: &ChangeService,
    generation: u32,
) -> Result<(), Refusal> {
    if request.base_generation != generation {
        return Err(Refusal::ChangedMeanwhile(generation));
    }
    // Last nodes are stored by the name of the service, and fair shares are computed per class.
    if request.service.name != before.name {
        return Err(Refusal::FixedField("name"));
    }
    if request.service.class != before.class {
        return Err(Refusal::FixedField("class"));
    }
    Ok(())
}

impl Ledger {
    /// Applies a change of a service, if it is based on the current generation.
    pub(super) fn change_service(
        &mut self,
        request: ChangeService,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<ServiceChangeResult, Refusal> {
        let missing = || Refusal::NoSuchWork(request.id.clone());
        let (_, uuid, _) = parse_work_id(&request.id).ok_or_else(missing)?;
        if let Some(final_work) = self.final_works.get(&uuid) {
            let is_owner = final_work.user.as_str() == request.user && final_work.id == request.id;
            let refusal = is_owner.then(|| Refusal::Ended(request.id.clone()));
            return Err(refusal.unwrap_or_else(missing));
        }
        let work = self.works.get_mut(&uuid).ok_or_else(missing)?;
        let is_owner = work.user.as_str() == request.user && work.id == request.id;
        let before = match &work.spec {
            WorkSpec::Service(before) if is_owner => before,
            _ => return Err(missing()),
        };
        if work.cancelled {
            return Err(Refusal::Ended(request.id));
        }
        // The caller repeats the change because it lost the response. The service is already in
        // this state.
        if request.service == *before {
            return Ok(ServiceChangeResult::unchanged(work.version));
        }
        check_change(before, &request, work.version.generation)?;
        let redeployed = deployed_fields(&request.service) != deployed_fields(before);
        let host_key = work.host_key();
        let version = work.version.next(redeployed);
        if batch.is_dry_run() {
            return Ok(ServiceChangeResult {
                version,
                changed: true,
                redeployed,
            });
        }
        work.version = version;
        let change = ServiceChange {
            service: request.service,
            redeployed,
        };
        let added = self.replace_slots(uuid, change, moment, batch);
        self.update_host_key(uuid, host_key, batch);
        self.readopt_allocations(&added, moment, batch);
        batch.rows.changed_services.push(ChangedServiceRow {
            id: uuid,
            submission: request.text,
            generation: i32::try_from(version.generation).unwrap_or(i32::MAX),
            deployed: i32::try_from(version.deployment_number).unwrap_or(i32::MAX),
        });
        Ok(ServiceChangeResult {
            version,
            changed: true,
            redeployed,
        })
    }

    /// Replaces the slots. Slots that remain keep their state. Returns the ids of new slots.
    fn replace_slots(
        &mut self,
        uuid: Uuid,
        change: ServiceChange,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<WorkId> {
        let Some(work) = self.works.get_mut(&uuid) else {
            return Vec::new();
        };
        let redeployed = change.redeployed;
        let settings = processor_settings(&change.service);
        let event = describe_change(work, &settings, redeployed);
        work.spec = WorkSpec::Service(change.service);
        let Some(processors) = &mut work.processors else {
            return Vec::new();
        };
        let before = processors.settings().clone();
        let new_slots = processors.amend(settings.clone(), redeployed, now(moment));
        let slots = std::mem::take(&mut work.slots).into_iter().enumerate();
        let mut old_slots: BTreeMap<ProcessorId, Slot> =
            slots.map(|(slot, it)| (before.id_at(slot), it)).collect();
        let existing_or_new = |slot| old_slots.remove(&settings.id_at(slot)).unwrap_or_default();
        work.slots = (0..settings.count()).map(existing_or_new).collect();
        for (processor, slot) in old_slots {
            work.withdraw_slot(processor, slot, batch);
        }
        for slot in 0..work.slots.len() {
            if redeployed {
                work.clear_backoff(slot, batch);
            }
            work.update_processor(slot);
        }
        work.record_event(event, moment, batch);
        self.dirty.insert(uuid);
        new_slots
            .into_iter()
            .map(|slot| work.slot_id(slot))
            .collect()
    }

    /// Updates the name under which last nodes are stored. A service has such a name while it has
    /// host affinity.
    fn update_host_key(&mut self, uuid: Uuid, before: Option<String>, batch: &mut Batch<Rows>) {
        let Some(work) = self.works.get(&uuid) else {
            return;
        };
        match (before, work.host_key()) {
            (None, Some(host_key)) => self.last_hosts.add_service((work.user.clone(), host_key)),
            (Some(host_key), None)
                if self
                    .last_hosts
                    .remove_service(&(work.user.clone(), host_key.clone())) =>
            {
                let deleted = (work.user.to_string(), host_key);
                batch.rows.deleted_last_hosts.push(deleted);
            }
            _ => {}
        }
    }

    /// Gives a new slot the remaining allocations of an earlier slot with the same id. These
    /// allocations must end before the slot requests a process.
    fn readopt_allocations(&mut self, added: &[WorkId], moment: &Moment, batch: &mut Batch<Rows>) {
        if added.is_empty() {
            return;
        }
        let entries = self.allocations.iter().map(|(_, entry)| entry);
        let remaining: Vec<AllocationEntry> = entries
            .filter(|entry| added.contains(&entry.work))
            .cloned()
            .collect();
        for entry in remaining {
            let Some(WorkSlot { work: uuid, slot }) = self.work_slot(&entry.work) else {
                continue;
            };
            if let Some(work) = self.works.get_mut(&uuid) {
                work.leaving.remove(&entry.id);
            }
            self.apply_allocation(&entry, false, moment, batch);
            if let Some(work) = self.works.get_mut(&uuid)
                && let Some(processors) = &mut work.processors
            {
                processors.mark_stopped(slot);
            }
        }
    }

    /// Handles a change of a process whose slot was removed.
    pub(super) fn update_removed_slot(&mut self, entry: &AllocationEntry) {
        let Some((_, uuid, Some(_))) = parse_work_id(&entry.work) else {
            return;
        };
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        if work.processors.is_some() {
            let process = Process::from_entry(entry);
            if process.is_alive() {
                work.leaving.insert(entry.id.clone(), process);
            } else {
                work.leaving.remove(&entry.id);
            }
            self.dirty.insert(uuid);
        }
    }

    /// Handles a removed allocation whose slot was removed earlier.
    pub(super) fn clear_removed_slot(&mut self, before: &AllocationEntry) {
        let Some((_, uuid, _)) = parse_work_id(&before.work) else {
            return;
        };
        let work = self.works.get_mut(&uuid);
        if work.is_some_and(|work| work.leaving.remove(&before.id).is_some()) {
            self.dirty.insert(uuid);
        }
    }
}

/// Describes the change in one line, for the timeline.
fn describe_change(
    work: &Work,
    after: &hayward_job_converter_domain::service_processors::ProcessorSettings,
    redeployed: bool,
) -> String {
    let generation = work.version.generation;
    let before = work.processors.as_ref().map(|it| it.settings());
    let counts = before.map(|it| {
        (
            (it.instances, after.instances),
            (it.standbys, after.standbys),
        )
    });
    let summary = if redeployed {
        format!("deployed as {}", work.deployment())
    } else {
        "changed; running processes are not affected".to_owned()
    };
    let ((instances_before, instances_after), (standbys_before, standbys_after)) =
        counts.unwrap_or_default();
    let instances = (instances_before != instances_after)
        .then(|| format!("{instances_before} → {instances_after} instances"));
    let standbys = (standbys_before != standbys_after)
        .then(|| format!("{standbys_before} → {standbys_after} standbys each"));
    let parts: Vec<String> = [Some(summary), instances, standbys]
        .into_iter()
        .flatten()
        .collect();
    format!("{} (generation {generation})", parts.join("; "))
}

impl Work {
    /// Removes a slot with its demand and rows. Its live processes must end.
    fn withdraw_slot(&mut self, processor: ProcessorId, slot: Slot, batch: &mut Batch<Rows>) {
        let id = self.processor_work_id(processor);
        batch.withdraw(DEMAND, "", id.as_str());
        let settled = slot.settled.iter().map(ToString::to_string);
        batch.rows.deleted_settled.extend(settled);
        batch.rows.backoffs.push(BackoffRow {
            slot: id.to_string(),
            work: self.uuid,
            strikes: 0,
        });
        batch.rows.processors.push(ProcessorRow {
            slot: id.to_string(),
            work: self.uuid,
            failures: None,
            ended: None,
            failover: None,
        });
        let alive = slot.processes.into_iter().filter(|(_, it)| it.is_alive());
        self.leaving.extend(alive);
    }

    /// Clears the backoff of a slot, because a new deployment starts without failures.
    fn clear_backoff(&mut self, slot: usize, batch: &mut Batch<Rows>) {
        let (id, work) = (self.slot_id(slot).to_string(), self.uuid);
        let state = &mut self.slots[slot];
        state.hold_reason = None;
        if state.backoff.failures() > 0 {
            state.backoff.clear();
            batch.rows.backoffs.push(BackoffRow {
                slot: id,
                work,
                strikes: 0,
            });
        }
    }
}
