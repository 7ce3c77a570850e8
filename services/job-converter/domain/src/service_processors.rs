//! State machine of the processors of one service. It decides which processes the service requests,
//! and on which nodes.
//!
//! A processor is an active, or a standby of an active. Its stored state is small: a failure
//! record, its last node, whether it has ended, and a failover in progress. The caller sets the
//! observed processes. Everything else follows from the stored state and these processes, so it
//! continues after a restart. Only the timeouts of open requests start again.

mod failover;
mod outcomes;
mod processor;
mod retries;
mod rollout;
mod settings;

use std::collections::BTreeSet;

use hayward_vocabulary::NodeName;

pub use failover::Failover;
pub use outcomes::{ProcessOutcome, ProcessorOutcome, ServiceOutcome, classify_exit};
pub use processor::{Occupant, Placement, Processor, ProcessorDemand, State};
pub use retries::{CLOCK_SKEW_MS, FailureRecord, Retries, RetryDecision, count_failure};
pub use settings::{Now, ProcessorId, ProcessorSettings, Timeouts};

use processor::Request;

#[derive(Debug, Clone)]
pub struct Processors {
    settings: ProcessorSettings,
    /// All processors, in the order of their slots.
    by_slot: Vec<Processor>,
    /// Nodes that are lost or accept no new processes. A failover does not use them.
    closed: BTreeSet<NodeName>,
    /// Text that describes a violated rule. `None` if no rule is violated.
    violation: Option<String>,
    /// Slots whose rows are not written yet.
    changed: BTreeSet<usize>,
    /// Timeline entries that are not written yet.
    events: Vec<String>,
}

impl Processors {
    pub fn new(settings: ProcessorSettings) -> Self {
        let by_slot = (0..settings.count())
            .map(|_| Processor::default())
            .collect();
        Self {
            settings,
            by_slot,
            closed: BTreeSet::new(),
            violation: None,
            changed: BTreeSet::new(),
            events: Vec::new(),
        }
    }

    pub fn settings(&self) -> &ProcessorSettings {
        &self.settings
    }
    pub fn get(&self, slot: usize) -> Option<&Processor> {
        self.by_slot.get(slot)
    }
    /// Takes the slots whose rows are not written yet.
    pub fn take_changed(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.changed)
    }
    /// Takes the timeline entries that are not written yet.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Restores a processor from its row.
    pub fn restore(
        &mut self,
        slot: usize,
        record: Option<FailureRecord>,
        outcome: Option<ProcessorOutcome>,
        failover: Option<Failover>,
    ) {
        if let Some(processor) = self.by_slot.get_mut(slot) {
            (processor.failures, processor.outcome, processor.failover) =
                (record, outcome, failover);
        }
    }

    /// Restores the last node, from this deployment or an earlier one.
    pub fn restore_host(&mut self, slot: usize, host: NodeName) {
        if let Some(processor) = self.by_slot.get_mut(slot) {
            processor.last_host = Some(host);
        }
    }

    /// Requests every missing process at the start, and again after a restart.
    pub fn open_missing_requests(&mut self, now: Now) {
        for slot in 0..self.by_slot.len() {
            let remaining_delay_ms = self.by_slot[slot]
                .failures
                .map_or(0, |record| record.remaining_delay_ms(now.wall_ms));
            let failover = self.by_slot[slot].failover.clone();
            let requested_host = failover.as_ref().map(|failover| failover.requested.clone());
            let host = requested_host.unwrap_or_else(|| self.preferred_host(slot));
            self.open_request(slot, host, now, remaining_delay_ms);
            if let Some(standby) = failover.and_then(|failover| failover.waits_for) {
                self.stop_standby(standby, now);
            }
        }
    }

    /// Returns the last node if the service has host affinity.
    fn preferred_host(&self, slot: usize) -> Option<NodeName> {
        let known = self.by_slot[slot].last_host.clone();
        known.filter(|_| self.settings.host_affinity)
    }

    fn open_request(&mut self, slot: usize, host: Option<NodeName>, now: Now, delay_ms: u64) {
        let not_before_ms = now.monotonic_ms.saturating_add(delay_ms);
        self.by_slot[slot].request = Request {
            host: host.filter(|_| self.settings.host_affinity),
            since_ms: not_before_ms,
            not_before_ms,
        };
    }

    /// Sets the observed process of a slot and the number of live allocations.
    pub fn set_occupant(&mut self, slot: usize, occupant: Option<Occupant>, alive: usize) {
        let Some(processor) = self.by_slot.get_mut(slot) else {
            return;
        };
        processor.alive = alive;
        if processor.occupant == occupant {
            return;
        }
        if let Some(occupant) = &occupant {
            let known = processor.occupant.as_ref().map(|before| &before.allocation);
            if known != Some(&occupant.allocation) {
                self.closed.remove(&occupant.host);
            }
            processor.is_restarting &= occupant.stale;
            if let Some(outcome) = processor.outcome.take() {
                // The scheduler placed an ended processor, so it is in use again.
                processor.is_returning = outcome == ProcessorOutcome::Failed;
                self.changed.insert(slot);
            }
            if occupant.running {
                // The record is cleared, so that the next failure counts as the first.
                if std::mem::take(&mut processor.is_returning) {
                    processor.failures = None;
                    self.changed.insert(slot);
                }
                let has_moved = processor.last_host.as_ref() != Some(&occupant.host);
                if has_moved || processor.failover.is_some() {
                    self.changed.insert(slot);
                }
                processor.last_host = Some(occupant.host.clone());
                processor.failover = None;
            }
        }
        processor.occupant = occupant;
    }

    /// Records that the node is lost or accepts no new processes.
    pub fn close_host(&mut self, host: &NodeName) {
        self.closed.insert(host.clone());
    }

    /// Handles a process that is vacating for any reason. Repeating the call changes nothing.
    pub fn on_vacating(&mut self, slot: usize, lost: Placement<'_>, now: Now) {
        let Some(processor) = self.by_slot.get(slot) else {
            return;
        };
        if processor.occupant.is_some() || processor.outcome.is_some() || processor.is_held() {
            return;
        }
        self.on_lost(slot, Some(lost), now);
    }

    /// Handles a loss that is not the fault of the process. With host affinity, an active that has
    /// standbys fails over. Any other processor requests any node.
    fn on_lost(&mut self, slot: usize, lost: Option<Placement<'_>>, now: Now) {
        let is_active = self.settings.id_at(slot).replica.is_none();
        if is_active && self.settings.fails_over() {
            self.fail_over(slot, lost, now);
        } else {
            self.open_request(slot, None, now, 0);
        }
    }

    /// Handles the end of a process. Call [`Self::set_occupant`] first with the process that
    /// remains.
    pub fn on_ended(
        &mut self,
        slot: usize,
        lost: Placement<'_>,
        outcome: ProcessOutcome,
        now: Now,
    ) {
        let Some(processor) = self.by_slot.get(slot) else {
            return;
        };
        // The processor was moved, and the successor runs already.
        if processor.occupant.is_some() || processor.outcome.is_some() || processor.is_held() {
            return;
        }
        match outcome {
            ProcessOutcome::Completed if self.settings.retries.is_some() => {
                let processor = &mut self.by_slot[slot];
                (processor.outcome, processor.failures, processor.failover) =
                    (Some(ProcessorOutcome::Completed), None, None);
                self.changed.insert(slot);
                self.record_event(slot, "has completed");
            }
            ProcessOutcome::Completed | ProcessOutcome::Failed => self.on_failed(slot, lost, now),
            ProcessOutcome::LaunchFailed | ProcessOutcome::Lost => {
                self.on_lost(slot, Some(lost), now);
            }
            // The loss was handled when the process was vacated.
            ProcessOutcome::Intended => {}
            ProcessOutcome::Restarted => {
                let host = self.preferred_host(slot);
                self.open_request(slot, host, now, 0);
            }
        }
    }

    /// Counts a failure and plans the retry.
    fn on_failed(&mut self, slot: usize, lost: Placement<'_>, now: Now) {
        let preferred_host = self.preferred_host(slot);
        let retries = self.settings.retries.clone().unwrap_or(Retries::UNLIMITED);
        let decision = count_failure(
            self.by_slot[slot].failures.as_ref(),
            &retries,
            now.wall_ms,
            preferred_host.is_some(),
        );
        let delay_ms = match decision {
            RetryDecision::Exhausted => {
                self.by_slot[slot].outcome = Some(ProcessorOutcome::Failed);
                self.by_slot[slot].failover = None;
                self.changed.insert(slot);
                self.record_event(slot, &format!("has failed: {}", retries.describe()));
                return;
            }
            RetryDecision::Uncounted => 0,
            RetryDecision::Retry(record) => {
                self.by_slot[slot].failures = Some(record);
                self.changed.insert(slot);
                record.last_delay_ms
            }
        };
        let is_active = self.settings.id_at(slot).replica.is_none();
        if let Some(host) = preferred_host.clone()
            && is_active
            && self.settings.fails_over()
        {
            // The same node is tried first. The choice is recorded, so that an expired request
            // becomes a failover.
            self.record_last_host(slot, lost.allocation, &host);
        }
        self.open_request(slot, preferred_host, now, delay_ms);
    }

    /// Returns the demand of a slot at this instant.
    pub fn demand(&self, slot: usize, now_ms: u64) -> ProcessorDemand {
        let no_demand = ProcessorDemand {
            wanted: false,
            host: None,
        };
        let Some(processor) = self.by_slot.get(slot) else {
            return no_demand;
        };
        let waits_for_standby = processor
            .failover
            .as_ref()
            .is_some_and(|failover| failover.waits_for.is_some());
        if processor.is_held() {
            return no_demand;
        }
        if let Some(occupant) = &processor.occupant {
            // An active with standbys is bound to its node. If the node is lost, the scheduler must
            // not place the active before a standby is chosen.
            let is_active = self.settings.id_at(slot).replica.is_none();
            let is_bound = is_active && self.settings.fails_over();
            return ProcessorDemand {
                wanted: true,
                host: is_bound.then(|| occupant.host.clone()),
            };
        }
        if processor.outcome.is_some()
            || waits_for_standby
            || now_ms < processor.request.not_before_ms
        {
            return no_demand;
        }
        ProcessorDemand {
            wanted: true,
            host: processor.request.host.clone(),
        }
    }

    /// Handles expired requests and standbys that have ended.
    pub fn tick(&mut self, timeouts: Timeouts, now: Now) {
        for slot in 0..self.by_slot.len() {
            self.continue_failover(slot, timeouts, now);
            self.restart_stopped(slot, now);
            if !self.is_expired(slot, timeouts, now.monotonic_ms) {
                continue;
            }
            let is_active = self.settings.id_at(slot).replica.is_none();
            if is_active && self.settings.fails_over() {
                // The failover chooses again, without the nodes used before.
                self.choose_host(slot, now);
            } else {
                self.open_request(slot, None, now, 0);
            }
        }
    }

    /// Returns true if a request for one node is open for longer than the timeout.
    fn is_expired(&self, slot: usize, timeouts: Timeouts, now_ms: u64) -> bool {
        let processor = &self.by_slot[slot];
        let waits_for_standby = processor
            .failover
            .as_ref()
            .is_some_and(|failover| failover.waits_for.is_some());
        let is_open = processor.occupant.is_none()
            && processor.outcome.is_none()
            && !processor.is_held()
            && !waits_for_standby;
        let has_host = processor.request.host.is_some();
        is_open
            && has_host
            && now_ms.saturating_sub(processor.request.since_ms) > timeouts.request_ms
    }

    /// Returns the next time at which [`Self::tick`] or [`Self::demand`] may change without an
    /// event.
    pub fn due_ms(&self, timeouts: Timeouts, now_ms: u64) -> Option<u64> {
        let due = |processor: &Processor| {
            if processor.occupant.is_some() || processor.outcome.is_some() {
                return None;
            }
            if let Some(failover) = processor
                .failover
                .as_ref()
                .filter(|failover| failover.waits_for.is_some())
            {
                return Some(failover.since_ms.saturating_add(timeouts.stop_ms));
            }
            if now_ms < processor.request.not_before_ms {
                return Some(processor.request.not_before_ms);
            }
            let has_host = processor.request.host.is_some() && !processor.is_held();
            let expires = processor
                .request
                .since_ms
                .saturating_add(timeouts.request_ms + 1);
            has_host.then_some(expires)
        };
        self.by_slot.iter().filter_map(due).min()
    }

    /// Returns true if every processor runs or has completed.
    pub fn is_healthy(&self) -> bool {
        let is_up =
            |processor: &Processor| matches!(processor.state(), State::Running | State::Completed);
        self.by_slot.iter().all(is_up)
    }

    /// Returns how the service ended, if it did. Standbys end with the actives.
    pub fn service_outcome(&self) -> Option<ServiceOutcome> {
        if let Some(violation) = &self.violation {
            return Some(ServiceOutcome::Failed(violation.clone()));
        }
        let retries = self.settings.retries.as_ref()?;
        let has_failed = |slot: &usize| self.by_slot[*slot].state() == State::Failed;
        let first_failed = (0..self.by_slot.len()).find(has_failed);
        if retries.fail_service
            && let Some(slot) = first_failed
        {
            let (processor, reason) = (self.settings.id_at(slot), retries.describe());
            return Some(ServiceOutcome::Failed(format!(
                "processor {processor} has failed: {reason}"
            )));
        }
        let actives = 0..self.settings.instances as usize;
        let is_over =
            |processor: &Processor| matches!(processor.state(), State::Failed | State::Completed);
        if !self.by_slot[actives.clone()].iter().all(is_over) {
            return None;
        }
        // Failed processors are final, so a service that ends with one has failed.
        let failed_count = actives.filter(has_failed).count();
        Some(match failed_count {
            0 => ServiceOutcome::Completed,
            _ => ServiceOutcome::Failed(format!(
                "{failed_count} of {} processors have failed, the others have completed",
                self.settings.instances
            )),
        })
    }

    fn record_event(&mut self, slot: usize, event: &str) {
        let processor = self.settings.id_at(slot);
        self.events.push(format!("processor {processor} {event}"));
    }
}

#[cfg(test)]
mod tests;
