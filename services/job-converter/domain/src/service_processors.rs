//! State machine of the processors of one service: their processes, how the last process ended, and
//! the next request.
//!
//! A processor is an active, or a standby of an active. Its stored state is small: a failure
//! record, its last node, whether it has ended, and a failover in progress. The caller sets the
//! observed processes. Everything else follows from the stored state and these processes, so it
//! continues after a restart. Only the timeouts of open requests start again.

mod endings;
mod failover;
mod retries;
mod rollout;
mod settings;

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

pub use endings::{End, Ending, ProcessorEnd, classify_exit};
pub use failover::Failover;
pub use retries::{CLOCK_SKEW_MS, FailureRecord, Retries, RetryDecision, count_failure};
pub use settings::{Now, ProcessorId, ProcessorSettings, Timeouts};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The processor has no process.
    Waiting,
    /// The processor has an allocation, but its process does not run yet.
    Pending,
    Running,
    /// The processor has used up its retries.
    Failed,
    /// The process ended with status 0.
    Completed,
}

/// The process that occupies a processor. It has not ended and is not vacating.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    pub allocation: AllocationId,
    pub host: NodeName,
    /// Whether the process runs. A process that is stopping still counts as running.
    pub running: bool,
    /// Start of its uninterrupted running time, in ms of the scheduler's clock. `None` while the
    /// process does not run.
    pub up_since_ms: Option<i64>,
    /// Whether the process belongs to an older deployment.
    pub stale: bool,
}

/// Open request of a processor without a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Request {
    /// Requested node. `None` accepts any node.
    host: Option<NodeName>,
    /// Start of its timeout, by the monotonic clock in ms.
    since_ms: u64,
    /// Time of the retry, by the monotonic clock in ms.
    not_before_ms: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Processor {
    occupant: Option<Occupant>,
    /// Number of allocations that have not ended.
    alive: usize,
    last_host: Option<NodeName>,
    /// Counted failures. `None` without any.
    record: Option<FailureRecord>,
    /// Final state. `None` while the processor may start processes.
    over: Option<ProcessorEnd>,
    request: Request,
    failover: Option<Failover>,
    /// Whether this is a standby that ends so that its active can use the node.
    is_yielding: bool,
    /// Whether the processor was stopped and starts again once none of its processes is alive.
    is_restarting: bool,
    /// Whether the scheduler placed this processor after it had failed. The failure record is
    /// cleared when the processor runs.
    is_returning: bool,
}

impl Processor {
    pub fn state(&self) -> State {
        match (&self.occupant, self.over) {
            (Some(occupant), _) if occupant.running => State::Running,
            (Some(_), _) => State::Pending,
            (None, Some(ProcessorEnd::Failed)) => State::Failed,
            (None, Some(ProcessorEnd::Completed)) => State::Completed,
            (None, None) => State::Waiting,
        }
    }

    pub fn record(&self) -> Option<&FailureRecord> {
        self.record.as_ref()
    }
    pub fn over(&self) -> Option<ProcessorEnd> {
        self.over
    }
    pub fn failover(&self) -> Option<&Failover> {
        self.failover.as_ref()
    }
    /// Returns the current or last node.
    pub fn last_host(&self) -> Option<&NodeName> {
        self.last_host.as_ref()
    }
    pub fn occupant(&self) -> Option<&Occupant> {
        self.occupant.as_ref()
    }
    /// Returns true if the processor requests nothing, because it waits for a failover or for its
    /// old processes.
    fn is_held(&self) -> bool {
        self.is_yielding || self.is_restarting
    }
    /// Returns the node of the open request.
    pub fn wanted_host(&self) -> Option<&NodeName> {
        let is_open = self.occupant.is_none() && self.over.is_none() && !self.is_held();
        self.request.host.as_ref().filter(|_| is_open)
    }
}

/// Allocation and node of a process.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    pub allocation: &'a AllocationId,
    pub host: &'a NodeName,
}

/// Demand of one processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorDemand {
    /// Whether a process is wanted. `false` ends its process and starts none.
    pub wanted: bool,
    /// The only acceptable node. `None` accepts any node.
    pub host: Option<NodeName>,
}

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
        over: Option<ProcessorEnd>,
        failover: Option<Failover>,
    ) {
        if let Some(it) = self.by_slot.get_mut(slot) {
            (it.record, it.over, it.failover) = (record, over, failover);
        }
    }

    /// Restores the last node, from this deployment or an earlier one.
    pub fn restore_host(&mut self, slot: usize, host: NodeName) {
        if let Some(it) = self.by_slot.get_mut(slot) {
            it.last_host = Some(host);
        }
    }

    /// Requests every missing process at the start, and again after a restart.
    pub fn begin(&mut self, now: Now) {
        for slot in 0..self.by_slot.len() {
            let remaining_delay_ms = self.by_slot[slot]
                .record
                .map_or(0, |it| it.remaining_delay_ms(now.wall_ms));
            let failover = self.by_slot[slot].failover.clone();
            let target = failover.as_ref().map(|it| it.requested.clone());
            let host = target.unwrap_or_else(|| self.preferred_host(slot));
            self.open_request(slot, host, now, remaining_delay_ms);
            if let Some(standby) = failover.and_then(|it| it.waits_for) {
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
        let Some(it) = self.by_slot.get_mut(slot) else {
            return;
        };
        it.alive = alive;
        if it.occupant == occupant {
            return;
        }
        if let Some(occupant) = &occupant {
            let known = it.occupant.as_ref().map(|before| &before.allocation);
            if known != Some(&occupant.allocation) {
                self.closed.remove(&occupant.host);
            }
            it.is_restarting &= occupant.stale;
            if let Some(over) = it.over.take() {
                // The scheduler placed an ended processor, so it is in use again.
                it.is_returning = over == ProcessorEnd::Failed;
                self.changed.insert(slot);
            }
            if occupant.running {
                // The record is cleared, so that the next failure counts as the first.
                if std::mem::take(&mut it.is_returning) {
                    it.record = None;
                    self.changed.insert(slot);
                }
                let has_moved = it.last_host.as_ref() != Some(&occupant.host);
                if has_moved || it.failover.is_some() {
                    self.changed.insert(slot);
                }
                it.last_host = Some(occupant.host.clone());
                it.failover = None;
            }
        }
        it.occupant = occupant;
    }

    /// Records that the node is lost or accepts no new processes.
    pub fn close_host(&mut self, host: &NodeName) {
        self.closed.insert(host.clone());
    }

    /// Handles a process that is vacating for any reason. Repeating the call changes nothing.
    pub fn on_vacating(&mut self, slot: usize, lost: Placement<'_>, now: Now) {
        let Some(it) = self.by_slot.get(slot) else {
            return;
        };
        if it.occupant.is_some() || it.over.is_some() || it.is_held() {
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
    pub fn on_ended(&mut self, slot: usize, lost: Placement<'_>, ending: Ending, now: Now) {
        let Some(it) = self.by_slot.get(slot) else {
            return;
        };
        // The processor was moved, and the successor runs already.
        if it.occupant.is_some() || it.over.is_some() || it.is_held() {
            return;
        }
        match ending {
            Ending::Completed if self.settings.retries.is_some() => {
                let it = &mut self.by_slot[slot];
                (it.over, it.record, it.failover) = (Some(ProcessorEnd::Completed), None, None);
                self.changed.insert(slot);
                self.record_event(slot, "has completed");
            }
            Ending::Completed | Ending::Failure => self.on_failed(slot, lost, now),
            Ending::LaunchFailed | Ending::Lost => self.on_lost(slot, Some(lost), now),
            // The loss was handled when the process was vacated.
            Ending::Intended => {}
            Ending::Restarted => {
                let host = self.preferred_host(slot);
                self.open_request(slot, host, now, 0);
            }
        }
    }

    /// Counts a failure and plans the retry.
    fn on_failed(&mut self, slot: usize, lost: Placement<'_>, now: Now) {
        let preferred = self.preferred_host(slot);
        let retries = self.settings.retries.clone().unwrap_or(Retries::UNLIMITED);
        let decision = count_failure(
            self.by_slot[slot].record.as_ref(),
            &retries,
            now.wall_ms,
            preferred.is_some(),
        );
        let delay_ms = match decision {
            RetryDecision::Exhausted => {
                self.by_slot[slot].over = Some(ProcessorEnd::Failed);
                self.by_slot[slot].failover = None;
                self.changed.insert(slot);
                self.record_event(slot, &format!("has failed: {}", retries.describe()));
                return;
            }
            RetryDecision::Uncounted => 0,
            RetryDecision::Retry(record) => {
                self.by_slot[slot].record = Some(record);
                self.changed.insert(slot);
                record.last_delay_ms
            }
        };
        let is_active = self.settings.id_at(slot).replica.is_none();
        if let Some(preferred) = preferred.clone()
            && is_active
            && self.settings.fails_over()
        {
            // The same node is tried first. The choice is recorded, so that an expired request
            // becomes a failover.
            self.record_last_host(slot, lost.allocation, &preferred);
        }
        self.open_request(slot, preferred, now, delay_ms);
    }

    /// Returns the demand of a slot at this instant.
    pub fn demand(&self, slot: usize, now_ms: u64) -> ProcessorDemand {
        let no_demand = ProcessorDemand {
            wanted: false,
            host: None,
        };
        let Some(it) = self.by_slot.get(slot) else {
            return no_demand;
        };
        let is_waiting = it
            .failover
            .as_ref()
            .is_some_and(|it| it.waits_for.is_some());
        if it.is_held() {
            return no_demand;
        }
        if let Some(occupant) = &it.occupant {
            // An active with standbys is bound to its node. If the node is lost, the scheduler must
            // not place the active before a standby is chosen.
            let is_active = self.settings.id_at(slot).replica.is_none();
            let is_bound = is_active && self.settings.fails_over();
            return ProcessorDemand {
                wanted: true,
                host: is_bound.then(|| occupant.host.clone()),
            };
        }
        if it.over.is_some() || is_waiting || now_ms < it.request.not_before_ms {
            return no_demand;
        }
        ProcessorDemand {
            wanted: true,
            host: it.request.host.clone(),
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
        let it = &self.by_slot[slot];
        let is_waiting = it
            .failover
            .as_ref()
            .is_some_and(|it| it.waits_for.is_some());
        let is_open = it.occupant.is_none() && it.over.is_none() && !it.is_held() && !is_waiting;
        let has_host = it.request.host.is_some();
        is_open && has_host && now_ms.saturating_sub(it.request.since_ms) > timeouts.request_ms
    }

    /// Returns the next time at which [`Self::tick`] or [`Self::demand`] may change without an
    /// event.
    pub fn due_ms(&self, timeouts: Timeouts, now_ms: u64) -> Option<u64> {
        let due = |it: &Processor| {
            if it.occupant.is_some() || it.over.is_some() {
                return None;
            }
            if let Some(failover) = it.failover.as_ref().filter(|it| it.waits_for.is_some()) {
                return Some(failover.since_ms.saturating_add(timeouts.stop_ms));
            }
            if now_ms < it.request.not_before_ms {
                return Some(it.request.not_before_ms);
            }
            let has_host = it.request.host.is_some() && !it.is_held();
            let expires = it.request.since_ms.saturating_add(timeouts.request_ms + 1);
            has_host.then_some(expires)
        };
        self.by_slot.iter().filter_map(due).min()
    }

    /// Returns true if every processor runs or has completed.
    pub fn is_healthy(&self) -> bool {
        let is_up = |it: &Processor| matches!(it.state(), State::Running | State::Completed);
        self.by_slot.iter().all(is_up)
    }

    /// Returns how the service ended, if it did. Standbys end with the actives.
    pub fn end(&self) -> Option<End> {
        if let Some(violation) = &self.violation {
            return Some(End::Failed(violation.clone()));
        }
        let retries = self.settings.retries.as_ref()?;
        let failed = |slot: &usize| self.by_slot[*slot].state() == State::Failed;
        let first_failed = (0..self.by_slot.len()).find(failed);
        if retries.fail_service
            && let Some(slot) = first_failed
        {
            let (processor, reason) = (self.settings.id_at(slot), retries.describe());
            return Some(End::Failed(format!(
                "processor {processor} has failed: {reason}"
            )));
        }
        let actives = 0..self.settings.instances as usize;
        let is_over = |it: &Processor| matches!(it.state(), State::Failed | State::Completed);
        if !self.by_slot[actives.clone()].iter().all(is_over) {
            return None;
        }
        // Failed processors are final, so a service that ends with one has failed.
        let lost = actives.filter(failed).count();
        Some(match lost {
            0 => End::Completed,
            _ => End::Failed(format!(
                "{lost} of {} processors have failed, the others have completed",
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
