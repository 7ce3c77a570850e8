//! Applies events to the processors of services and stores what changed.

use std::collections::BTreeSet;

use hayward_job_converter_api::WorkState;
use hayward_job_converter_domain::Pace;
use hayward_job_converter_domain::processors::{
    End, Ending, Now, Occupant, Patience, Placement, Processors, ending,
};
use hayward_publication::committer::{Batch, Moment};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason};
use hayward_vocabulary::{Timestamp, UserName};
use uuid::Uuid;

use super::Ledger;
use super::absorb::is_moved;
use super::last_hosts::LastHosts;
use crate::config::Settings;
use crate::store::Rows;
use crate::store::processors::{LocalityRow, ProcessorRow};
use crate::work::processors::{failover_text, over_name};
use crate::work::projections::FinalState;
use crate::work::{Process, Slot, What, Work};

pub fn now(moment: &Moment) -> Now {
    Now {
        wall_ms: moment.now.unix_ms(),
        monotonic_ms: moment.monotonic_ms,
    }
}

pub fn patience(settings: &Settings) -> Patience {
    Patience {
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
fn occupant(slot: &Slot, deployed: u32) -> Option<Occupant> {
    let stays = |(_, process): &(_, &Process)| process.alive() && !process.vacating;
    let staying = slot.processes.iter().filter(stays);
    let (allocation, process) = staying.min_by_key(|(_, process)| process.incarnation)?;
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
        stale: process.deployed != deployed,
    })
}

/// Returns the slots whose process failed in this deployment and has not run long enough since.
/// Also returns the time when the first of them has.
fn shaky(slots: &[Slot], processors: &Processors, now_ms: u64) -> (BTreeSet<usize>, Option<u64>) {
    let mut found = (BTreeSet::new(), None);
    for (number, slot) in slots.iter().enumerate() {
        let it = processors.get(number);
        let failed = slot.brake.strikes() > 0 || it.is_some_and(|it| it.record().is_some());
        let occupant = it.and_then(|it| it.occupant());
        let process = occupant.and_then(|occupant| slot.processes.get(&occupant.allocation));
        let Some(since_ms) = process
            .and_then(|it| it.running_since_ms)
            .filter(|_| failed)
        else {
            continue;
        };
        let sure_ms = since_ms.saturating_add(Pace::WELL_AFTER_MS);
        if now_ms < sure_ms {
            found.0.insert(number);
            found.1 = Some(found.1.map_or(sure_ms, |first: u64| first.min(sure_ms)));
        }
    }
    found
}

/// Returns true if the node is lost or is being emptied, so that standbys on it leave as well.
fn closes_its_host(entry: &AllocationEntry) -> bool {
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

impl What {
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
    pub fn observe(&mut self, slot: usize) {
        let (Some(processors), Some(state)) = (&mut self.processors, self.slots.get(slot)) else {
            return;
        };
        let deployed = self.version.deployed;
        processors.set_occupant(slot, occupant(state, deployed), state.alive());
        // The process ends because its demand was withdrawn, in this term or an earlier one. The
        // processor waits for its end. A standby chosen for a failover is an exception.
        let active = processors.terms().id_at(slot).replica.is_none();
        let given_up = |process: &Process| {
            let chosen = active || process.deployed != deployed;
            process.alive() && process.dismissed && chosen
        };
        if state.processes.values().any(given_up) {
            processors.renews(slot);
        }
    }

    pub fn processor_leaves(&mut self, slot: usize, entry: &AllocationEntry, moment: &Moment) {
        if let Some(processors) = &mut self.processors {
            if closes_its_host(entry) {
                processors.closes(&entry.node);
            }
            processors.leaves(slot, placement(entry), now(moment));
        }
    }

    /// Records an end. The vacate may become visible only with the end: a lost node sets both at
    /// once, and publications may skip states in between.
    pub fn processor_ended(&mut self, slot: usize, entry: &AllocationEntry, moment: &Moment) {
        let moved = is_moved(entry);
        if entry.vacate.is_some() && !moved {
            return self.processor_leaves(slot, entry, moment);
        }
        if let Some(processors) = &mut self.processors {
            let how = if moved {
                Ending::Restarted
            } else {
                ending(entry.exit.as_ref(), false)
            };
            processors.ended(slot, placement(entry), how, now(moment));
        }
    }

    /// Returns true if the end uses a counted retry, which replaces the brake. A failed launch is
    /// no retry, so the brake paces it.
    pub fn counts_retries(&self, entry: &AllocationEntry) -> bool {
        let retries = |it: &hayward_job_converter_domain::processors::Terms| {
            it.retries
                .as_ref()
                .is_some_and(|retries| retries.count >= 0)
        };
        let counted = self
            .processors
            .as_ref()
            .is_some_and(|it| retries(it.terms()));
        let how = ending(entry.exit.as_ref(), entry.vacate.is_some());
        counted && how != Ending::LaunchFailed
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
        let patience = patience(settings);
        processors.tick(patience, now(moment));
        let (shaky, sure_ms) = shaky(&self.slots, processors, moment.monotonic_ms);
        processors.roll(self.what.rollout_limit(), &shaky);
        let end = processors.end().map(|end| match end {
            End::Completed => FinalState {
                state: WorkState::Completed,
                reason: None,
            },
            End::Failed(why) => FinalState {
                state: WorkState::Failed,
                reason: Some(why),
            },
        });
        let due_ms = processors.due_ms(patience, moment.monotonic_ms);
        (end, due_ms.into_iter().chain(sure_ms).min())
    }

    /// Starts the processors with the last nodes stored under the service's name.
    pub fn begin_processors(&mut self, last_hosts: &LastHosts, moment: &Moment) {
        let name = self
            .host_key()
            .map(|host_key| (self.user.clone(), host_key));
        let Some(processors) = &mut self.processors else {
            return;
        };
        for slot in 0..processors.terms().count() {
            let place = processors.terms().id_at(slot).to_string();
            let known = name.as_ref().and_then(|name| last_hosts.host(name, &place));
            if let Some(host) = known {
                processors.restore_host(slot, host.clone());
            }
        }
        processors.begin(now(moment));
    }

    fn processor_row(&self, slot: usize) -> Option<ProcessorRow> {
        let it = self.processors.as_ref()?.get(slot)?;
        Some(ProcessorRow {
            slot: self.slot_id(slot).to_string(),
            work: self.uuid,
            failures: it.record().map(|record| {
                let count = i32::try_from(record.count).unwrap_or(i32::MAX);
                let delay = i64::try_from(record.last_delay_ms).unwrap_or(i64::MAX);
                (count, record.last_failure_ms, delay)
            }),
            ended: it.over().map(over_name),
            failover: it.failover().and_then(failover_text),
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
        let (changed, in_timeline) = (processors.take_changed(), processors.take_events());
        for line in in_timeline {
            work.record_event(line, moment, batch);
        }
        let name: Option<(UserName, String)> = work
            .host_key()
            .map(|host_key| (work.user.clone(), host_key));
        for slot in changed {
            batch.rows.processors.extend(work.processor_row(slot));
            let place = work.place(slot).map(|place| place.to_string());
            let processor = work.processors.as_ref().and_then(|it| it.get(slot));
            let host = processor.and_then(|it| it.last_host());
            if let (Some(name), Some(place), Some(host)) = (&name, place, host)
                && self.last_hosts.set(name, &place, host)
            {
                batch.rows.localities.push(LocalityRow {
                    user: name.0.to_string(),
                    service: name.1.clone(),
                    processor: place,
                    node: host.to_string(),
                    at_ms: moment.now.unix_ms(),
                });
            }
        }
    }
}
