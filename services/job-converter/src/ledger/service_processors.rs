//! Applies observed processes, ends and time to the processors of services, and stores what
//! changed. The rules are in `hayward_job_converter_domain::service_processors`.

use std::collections::BTreeSet;

use hayward_job_converter_api::WorkState;
use hayward_job_converter_domain::BackoffPolicy;
use hayward_job_converter_domain::service_processors::{
    Now, Occupant, Placement, ProcessOutcome, Processors, ServiceOutcome, Timeouts, classify_exit,
};
use hayward_publication::committer::{Batch, Moment};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason};
use hayward_vocabulary::{Timestamp, UserName};
use uuid::Uuid;

use super::Ledger;
use super::last_hosts::LastHosts;
use super::scheduler_updates::is_moved;
use crate::config::Settings;
use crate::store::Rows;
use crate::store::processors::{FailureColumns, LastHostRow, ProcessorRow};
use crate::work::published_entries::FinalState;
use crate::work::service_processors::{failover_text, outcome_name};
use crate::work::{Process, Slot, Work, WorkSpec};

pub fn now(moment: &Moment) -> Now {
    Now {
        wall_ms: moment.now.unix_ms(),
        monotonic_ms: moment.monotonic_ms,
    }
}

pub fn timeouts(settings: &Settings) -> Timeouts {
    Timeouts {
        request_ms: settings.request_timeout_ms,
        stop_ms: settings.stop_timeout_ms,
    }
}

fn placement(entry: &AllocationEntry) -> Placement<'_> {
    Placement {
        allocation: &entry.id,
        host: &entry.node,
    }
}

/// Returns the process that occupies a slot: the oldest that is not vacating.
fn occupant(slot: &Slot, deployment_number: u32) -> Option<Occupant> {
    let is_not_vacating = |(_, process): &(_, &Process)| process.is_alive() && !process.vacating;
    let candidates = slot.processes.iter().filter(is_not_vacating);
    let (allocation, process) = candidates.min_by_key(|(_, process)| process.incarnation)?;
    let running = match process.state {
        AllocationState::Running | AllocationState::Stopping => true,
        AllocationState::Unreachable => process.running_since_ms.is_some(),
        _ => false,
    };
    Some(Occupant {
        allocation: allocation.clone(),
        host: process.node.clone(),
        running,
        up_since_ms: process.up_since.map(Timestamp::unix_ms),
        stale: process.deployment_number != deployment_number,
    })
}

/// Returns the unstable slots: they failed in this deployment, and their process has not yet run
/// for the healthy time. Also returns when the first of these processes has.
fn unstable_slots(
    slots: &[Slot],
    processors: &Processors,
    now_ms: u64,
) -> (BTreeSet<usize>, Option<u64>) {
    let (mut unstable, mut first_stable_at_ms) = (BTreeSet::new(), None);
    for (number, slot) in slots.iter().enumerate() {
        let processor = processors.get(number);
        let failed =
            slot.backoff.failures() > 0 || processor.is_some_and(|it| it.failures().is_some());
        let occupant = processor.and_then(|it| it.occupant());
        let process = occupant.and_then(|occupant| slot.processes.get(&occupant.allocation));
        let Some(since_ms) = process
            .and_then(|it| it.running_since_ms)
            .filter(|_| failed)
        else {
            continue;
        };
        let stable_at_ms = since_ms.saturating_add(BackoffPolicy::HEALTHY_AFTER_MS);
        if now_ms < stable_at_ms {
            unstable.insert(number);
            let first = first_stable_at_ms.unwrap_or(stable_at_ms);
            first_stable_at_ms = Some(stable_at_ms.min(first));
        }
    }
    (unstable, first_stable_at_ms)
}

/// Returns true if the node is lost or is being emptied. Standbys on such a node leave as well, so
/// no failover goes there.
fn closes_host(entry: &AllocationEntry) -> bool {
    let reason = entry.vacate.as_ref().map(|vacate| vacate.reason);
    reason.is_some_and(|reason| {
        matches!(
            reason,
            VacateReason::NodeLost
                | VacateReason::NodeOffline
                | VacateReason::Blocked
                | VacateReason::Drained
        )
    })
}

impl WorkSpec {
    /// Returns the number of processes that a rolling deployment may stop at one time. It is one,
    /// unless the submission sets a limit.
    fn rollout_limit(&self) -> u64 {
        match self {
            Self::Service(service) => service.disruption_limit.unwrap_or(1),
            _ => 0,
        }
    }
}

impl Work {
    /// Updates a processor from the processes in its slot.
    pub fn update_processor(&mut self, slot: usize) {
        let (Some(processors), Some(state)) = (&mut self.processors, self.slots.get(slot)) else {
            return;
        };
        let deployment_number = self.version.deployment_number;
        processors.set_occupant(slot, occupant(state, deployment_number), state.live_count());
        // The process ends because its demand was withdrawn, in this term or an earlier one. The
        // processor waits for its end. A standby chosen for a failover is an exception.
        let active = processors.settings().id_at(slot).replica.is_none();
        let waits_for_end = |process: &Process| {
            let must_end = active || process.deployment_number != deployment_number;
            process.is_alive() && process.dismissed && must_end
        };
        if state.processes.values().any(waits_for_end) {
            processors.mark_stopped(slot);
        }
    }

    pub fn vacate_processor(&mut self, slot: usize, entry: &AllocationEntry, moment: &Moment) {
        if let Some(processors) = &mut self.processors {
            if closes_host(entry) {
                processors.close_host(&entry.node);
            }
            processors.on_vacating(slot, placement(entry), now(moment));
        }
    }

    /// Records the end of a process. If the process was vacated, the vacate is applied instead. It
    /// may arrive only with the end, because publications may skip states in between.
    pub fn end_processor(&mut self, slot: usize, entry: &AllocationEntry, moment: &Moment) {
        let moved = is_moved(entry);
        if entry.vacate.is_some() && !moved {
            return self.vacate_processor(slot, entry, moment);
        }
        if let Some(processors) = &mut self.processors {
            let outcome = if moved {
                ProcessOutcome::Restarted
            } else {
                classify_exit(entry.exit.as_ref(), false)
            };
            processors.on_ended(slot, placement(entry), outcome, now(moment));
        }
    }

    /// Returns true if the end uses a counted retry, which replaces the backoff. A failed launch
    /// uses no retry, so the backoff delays the next start.
    pub fn uses_counted_retry(&self, entry: &AllocationEntry) -> bool {
        let counts_retries =
            |it: &hayward_job_converter_domain::service_processors::ProcessorSettings| {
                it.retries
                    .as_ref()
                    .is_some_and(|retries| retries.count >= 0)
            };
        let has_counted_retries = self
            .processors
            .as_ref()
            .is_some_and(|it| counts_retries(it.settings()));
        let outcome = classify_exit(entry.exit.as_ref(), entry.vacate.is_some());
        has_counted_retries && outcome != ProcessOutcome::LaunchFailed
    }

    /// Advances the processors with time. Returns how the service ended, if it did, and when to
    /// check again.
    pub fn advance_processors(
        &mut self,
        settings: &Settings,
        moment: &Moment,
    ) -> (Option<FinalState>, Option<u64>) {
        let Some(processors) = &mut self.processors else {
            return (None, None);
        };
        let timeouts = timeouts(settings);
        processors.tick(timeouts, now(moment));
        let (unstable, stable_at_ms) = unstable_slots(&self.slots, processors, moment.monotonic_ms);
        processors.roll_out(self.spec.rollout_limit(), &unstable);
        let final_state = processors.service_outcome().map(|outcome| match outcome {
            ServiceOutcome::Completed => FinalState {
                state: WorkState::Completed,
                reason: None,
            },
            ServiceOutcome::Failed(reason) => FinalState::failed(reason),
        });
        let due_ms = processors.due_ms(timeouts, moment.monotonic_ms);
        (final_state, due_ms.into_iter().chain(stable_at_ms).min())
    }

    /// Starts the processors with the last nodes stored under the service's name.
    pub fn begin_processors(&mut self, last_hosts: &LastHosts, moment: &Moment) {
        let name = self
            .host_key()
            .map(|host_key| (self.user.clone(), host_key));
        let Some(processors) = &mut self.processors else {
            return;
        };
        for slot in 0..processors.settings().count() {
            let processor_id = processors.settings().id_at(slot).to_string();
            let last_host = name
                .as_ref()
                .and_then(|name| last_hosts.last_host(name, &processor_id));
            if let Some(host) = last_host {
                processors.restore_host(slot, host.clone());
            }
        }
        processors.open_missing_requests(now(moment));
    }

    fn processor_row(&self, slot: usize) -> Option<ProcessorRow> {
        let processor = self.processors.as_ref()?.get(slot)?;
        Some(ProcessorRow {
            slot: self.slot_id(slot).to_string(),
            work: self.uuid,
            failures: processor.failures().map(|record| FailureColumns {
                count: i32::try_from(record.count).unwrap_or(i32::MAX),
                last_failure_ms: record.last_failure_ms,
                last_delay_ms: i64::try_from(record.last_delay_ms).unwrap_or(i64::MAX),
            }),
            ended: processor.outcome().map(outcome_name),
            failover: processor.failover().and_then(failover_text),
        })
    }
}

impl Ledger {
    /// Stores changed processors and adds their events to the timeline.
    pub(super) fn store_processors(
        &mut self,
        uuid: Uuid,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        let Some(processors) = &mut work.processors else {
            return;
        };
        let (changed_slots, events) = (processors.take_changed(), processors.take_events());
        for event in events {
            work.record_event(event, moment, batch);
        }
        let service_key: Option<(UserName, String)> = work
            .host_key()
            .map(|host_key| (work.user.clone(), host_key));
        for slot in changed_slots {
            batch.rows.processors.extend(work.processor_row(slot));
            let processor_id = work.processor_id(slot).map(|id| id.to_string());
            let processor = work.processors.as_ref().and_then(|it| it.get(slot));
            let host = processor.and_then(|it| it.last_host());
            if let (Some(service_key), Some(processor_id), Some(host)) =
                (&service_key, processor_id, host)
                && self.last_hosts.set(service_key, &processor_id, host)
            {
                let (user, service_name) = service_key;
                batch.rows.last_hosts.push(LastHostRow {
                    user: user.to_string(),
                    service: service_name.clone(),
                    processor: processor_id,
                    node: host.to_string(),
                    at_ms: moment.now.unix_ms(),
                });
            }
        }
    }
}
