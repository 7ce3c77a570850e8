//! Commands of the owner or an operator. A command of a former owner is fenced off: it is refused
//! because of its old epoch or connection. A refused command changes nothing (WP-7).

use std::collections::BTreeSet;

use hayward_vocabulary::AllocationId;

use crate::owner_events::EventKind;
use crate::pool::{Final, Mode, Pool};
use crate::time::Now;
use crate::worker::{State, Worker};

/// Maximum number of stored foreign workers: workers that the owner reports and the scheduler did
/// not grant. All workers of a standalone pool are foreign. Further ones are acknowledged and not
/// stored.
pub const MAX_FOREIGN: usize = 10_000;

/// Caller of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// The owner, current or former.
    Owner { epoch: u64, connection: u64 },
    /// An operator of the fleet, without a connection.
    Operator,
}

impl Caller {
    /// Returns true for the owner. It gets no event about workers that it gives back itself (WP-8).
    fn is_owner(self) -> bool {
        matches!(self, Self::Owner { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("epoch {received} is not the epoch of the owner, which is {current}")]
    StaleEpoch { received: u64, current: u64 },
    #[error("no owner is connected; connect with the epoch and all workers first")]
    NotConnected,
    #[error("connection {received} was followed by {current}")]
    StaleConnection { received: u64, current: u64 },
    #[error("the pool is stopped")]
    Stopped,
    #[error("the pool is at version {current}, not {received}")]
    OtherVersion { received: u64, current: u64 },
    #[error("the pool knows no worker {0}")]
    UnknownWorker(AllocationId),
}

/// Result of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectResult {
    pub connection: u64,
    /// Listed workers that the pool knows and counts.
    pub accepted: Vec<AllocationId>,
    /// Listed workers that the pool does not know.
    pub foreign: Vec<AllocationId>,
    /// Listed workers that are already being given back.
    pub returning: Vec<AllocationId>,
    /// Events with a higher number are newer than the list.
    pub event_seq: u64,
}

/// A request for another size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SizeRequest {
    pub size: u64,
    /// If true, surplus workers are released.
    pub release: bool,
    /// Workers to release first.
    pub unwanted: Vec<AllocationId>,
    /// The request is refused if the pool has another version. `None`: any version.
    pub if_version: Option<u64>,
}

/// Result of a size request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResizeResult {
    /// Number of workers that this call requested.
    pub requested_now: u64,
    /// Number of pending requests that this call withdrew.
    pub withdrawn_now: u64,
    pub released: Vec<AllocationId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckResult {
    /// Number of missing workers before the call.
    pub missing: u64,
    /// Number of workers that this call requested.
    pub requested_now: u64,
}

impl Pool {
    /// Checks a call. An accepted call counts as contact with the owner.
    ///
    /// # Errors
    /// When the pool is stopped, or the caller is not its current owner.
    pub fn fence(&mut self, from: Caller, now: Now) -> Result<(), Refusal> {
        self.check_caller(from)?;
        if from.is_owner() {
            self.owner.last_call_ms = now.monotonic_ms;
        }
        Ok(())
    }

    fn check_caller(&self, from: Caller) -> Result<(), Refusal> {
        if self.stopped.is_some() {
            return Err(Refusal::Stopped);
        }
        let Caller::Owner { epoch, connection } = from else {
            return Ok(());
        };
        let (current, is_bound) = (self.owner.epoch, self.is_bound());
        if epoch < current {
            return Err(Refusal::StaleEpoch {
                received: epoch,
                current,
            });
        }
        // A later epoch belongs to an owner that must connect first.
        if !is_bound || epoch > current {
            return Err(Refusal::NotConnected);
        }
        if connection != self.owner.connection {
            return Err(Refusal::StaleConnection {
                received: connection,
                current: self.owner.connection,
            });
        }
        Ok(())
    }

    /// Unbinds the owner. The epoch of the caller must match, its connection need not.
    ///
    /// # Errors
    /// When the caller is not the owner.
    pub fn leave(&mut self, epoch: u64) -> Result<(), Refusal> {
        if self.stopped.is_some() {
            return Err(Refusal::Stopped);
        }
        let current = self.owner.epoch;
        if epoch != current {
            return Err(Refusal::StaleEpoch {
                received: epoch,
                current,
            });
        }
        if self.is_bound() {
            self.unbind();
            self.record_event(EventKind::Info, None, "the owner has left");
        }
        Ok(())
    }

    /// Sets the size. A lower size withdraws surplus requests, and releases workers only with
    /// `release`.
    ///
    /// # Errors
    /// When the call is fenced off, or names another version.
    pub fn set_size(
        &mut self,
        from: Caller,
        request: &SizeRequest,
        now: Now,
    ) -> Result<ResizeResult, Refusal> {
        self.check_caller(from)?;
        let current = self.version;
        if let Some(received) = request.if_version.filter(|received| *received != current) {
            return Err(Refusal::OtherVersion { received, current });
        }
        self.fence(from, now)?;
        if self.designated != request.size {
            self.designated = request.size;
            self.version += 1;
        }
        let mut result = ResizeResult::default();
        if request.release && self.mode == Mode::Managed {
            self.release_surplus(from, &request.unwanted, &mut result);
        } else {
            result.withdrawn_now = self.withdraw(self.count_surplus());
        }
        result.requested_now = self.request_missing(now);
        Ok(result)
    }

    /// Registers a worker that the owner reports. Returns true if the pool knows the worker. The
    /// owner may use the worker in any case.
    ///
    /// # Errors
    /// When the call is fenced off.
    pub fn register_worker(
        &mut self,
        from: Caller,
        id: &AllocationId,
        now: Now,
    ) -> Result<bool, Refusal> {
        self.fence(from, now)?;
        let epoch = self.owner.epoch;
        if self.mode == Mode::Standalone {
            return Ok(self.accept(id));
        }
        let before = self.idle_blocked();
        let known = match self.workers.get_mut(id) {
            Some(worker) if worker.is_held() => {
                worker.mark_started(epoch);
                true
            }
            Some(worker) => {
                worker.reported_by = Some(epoch);
                false
            }
            None => {
                self.report_unknown_worker(id);
                false
            }
        };
        if self.report_idle_blocked(&before) {
            self.request_missing(now);
        }
        Ok(known)
    }

    /// A standalone pool accepts every reported worker, up to the limit.
    pub(crate) fn accept(&mut self, id: &AllocationId) -> bool {
        if !self.workers.contains_key(id) && self.is_at_limit() {
            return false;
        }
        let new_worker = || Worker::new(State::Started);
        let worker = self.workers.entry(id.clone()).or_insert_with(new_worker);
        worker.mark_started(self.owner.epoch);
        true
    }

    fn is_at_limit(&self) -> bool {
        let size = usize::try_from(self.designated).unwrap_or(0);
        self.workers.len() >= MAX_FOREIGN + size
    }

    /// Handles a reported worker that the pool does not know. If the worker is dead, the owner gets
    /// an event at once. Otherwise the worker is stored as foreign, up to the limit.
    pub(crate) fn report_unknown_worker(&mut self, id: &AllocationId) {
        if self.dead.contains(id) {
            let text = "the worker was dead before it was reported";
            self.record_event(EventKind::ResourceRemoved, Some(id.clone()), text);
        } else if !self.is_at_limit() {
            let mut worker = Worker::new(State::Foreign);
            worker.reported_by = Some(self.owner.epoch);
            self.workers.insert(id.clone(), worker);
        }
    }

    /// Gives one worker back and keeps the size, so that it is replaced. A repeated call changes
    /// nothing.
    ///
    /// # Errors
    /// When the call is fenced off, or the worker is unknown.
    pub fn remove(&mut self, from: Caller, id: &AllocationId, now: Now) -> Result<(), Refusal> {
        self.fence(from, now)?;
        let is_standalone = self.mode == Mode::Standalone;
        match self.workers.get_mut(id) {
            Some(_) if is_standalone => {
                // The process stays; only the id is removed.
                self.workers.remove(id);
                if !from.is_owner() {
                    // The owner did not order this, and must stop using the worker (WP-8).
                    let text = "an operator removed the worker from the list";
                    self.record_event(EventKind::ResourceRemoved, Some(id.clone()), text);
                }
                Ok(())
            }
            Some(worker) if worker.is_held() => {
                worker.give_back(from.is_owner());
                Ok(())
            }
            Some(worker) if worker.state == State::Returning => {
                worker.ordered |= from.is_owner();
                Ok(())
            }
            _ => Err(Refusal::UnknownWorker(id.clone())),
        }
    }

    /// Requests the missing workers.
    ///
    /// # Errors
    /// When the call is fenced off.
    pub fn check(&mut self, from: Caller, now: Now) -> Result<CheckResult, Refusal> {
        self.fence(from, now)?;
        Ok(CheckResult {
            missing: self.missing(),
            requested_now: self.request_missing(now),
        })
    }

    /// Stops the pool. Returns false if it was already stopped.
    ///
    /// # Errors
    /// When the call is fenced off.
    pub fn stop(
        &mut self,
        from: Caller,
        status: Final,
        message: &str,
        now: Now,
    ) -> Result<bool, Refusal> {
        if self.stopped.is_some() {
            return Ok(false);
        }
        self.fence(from, now)?;
        self.stop_with(status, message.to_owned(), from.is_owner());
        self.record_event(EventKind::Info, None, "the pool is stopped");
        Ok(true)
    }

    fn count_surplus(&self) -> u64 {
        self.counts().available().saturating_sub(self.designated)
    }

    /// Withdraws up to `limit` requests, the newest first.
    fn withdraw(&mut self, limit: u64) -> u64 {
        let mut withdrawn = 0;
        while withdrawn < limit && self.requested.pop_last().is_some() {
            withdrawn += 1;
        }
        withdrawn
    }

    /// Releases unwanted workers, requests, unregistered and registered workers, in this order,
    /// until the size fits.
    fn release_surplus(
        &mut self,
        from: Caller,
        unwanted: &[AllocationId],
        result: &mut ResizeResult,
    ) {
        let unwanted: BTreeSet<&AllocationId> = unwanted.iter().collect();
        let by_owner = from.is_owner();
        // Uncounted workers are surplus at any size.
        for (id, worker) in &mut self.workers {
            if worker.is_idle_blocked() && unwanted.contains(id) {
                worker.give_back(by_owner);
                result.released.push(id.clone());
            }
        }
        self.release(by_owner, |id, _| unwanted.contains(id), result);
        result.withdrawn_now = self.withdraw(self.count_surplus());
        self.release(by_owner, |_, state| state == State::Launching, result);
        self.release(by_owner, |_, state| state == State::Started, result);
    }

    /// Releases surplus workers for which `is_chosen` is true. Newer workers leave first, because
    /// they lose less work.
    fn release(
        &mut self,
        by_owner: bool,
        is_chosen: impl Fn(&AllocationId, State) -> bool,
        result: &mut ResizeResult,
    ) {
        let mut surplus = self.count_surplus();
        for (id, worker) in self.workers.iter_mut().rev() {
            if surplus == 0 {
                return;
            }
            let is_counted = worker.is_held() && !worker.is_idle_blocked();
            if is_counted && is_chosen(id, worker.state) {
                worker.give_back(by_owner);
                result.released.push(id.clone());
                surplus -= 1;
            }
        }
    }
}
