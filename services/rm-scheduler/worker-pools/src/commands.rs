//! Calls of the owner, each fenced by epoch and connection. A refused call changes nothing (WP-7).

use std::collections::BTreeSet;

use hayward_vocabulary::AllocationId;

use crate::owner_events::EventKind;
use crate::pool::{Final, Mode, Pool};
use crate::time::Now;
use crate::worker::{State, Worker};

/// Most foreign workers remembered, including all of a standalone pool. Further ones are
/// acknowledged and forgotten.
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
    /// True for the owner, which gets no event for workers that it gives up itself (WP-8).
    fn is_owner(self) -> bool {
        matches!(self, Self::Owner { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("epoch {given} is not the epoch of the owner, which is {known}")]
    StaleEpoch { given: u64, known: u64 },
    #[error("no owner is connected; connect with the epoch and all workers first")]
    NotConnected,
    #[error("connection {given} was followed by {known}")]
    StaleConnection { given: u64, known: u64 },
    #[error("the pool is stopped")]
    Stopped,
    #[error("the pool is at version {known}, not {given}")]
    OtherVersion { given: u64, known: u64 },
    #[error("the pool knows no worker {0}")]
    UnknownWorker(AllocationId),
}

/// Answer to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
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
    /// True releases surplus workers.
    pub release: bool,
    /// Workers to release first.
    pub unwanted: Vec<AllocationId>,
    pub if_version: Option<u64>,
}

/// Answer to a size request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resized {
    pub requested_now: u64,
    pub withdrawn_now: u64,
    pub released: Vec<AllocationId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    pub missing: u64,
    pub requested_now: u64,
}

impl Pool {
    /// Checks a call. An accepted call counts as contact with the owner.
    ///
    /// # Errors
    /// When the pool is stopped, or the caller is not its current owner.
    pub fn fence(&mut self, from: Caller, now: Now) -> Result<(), Refusal> {
        self.admits(from)?;
        if from.is_owner() {
            self.owner.last_call_ms = now.monotonic_ms;
        }
        Ok(())
    }

    fn admits(&self, from: Caller) -> Result<(), Refusal> {
        if self.stopped.is_some() {
            return Err(Refusal::Stopped);
        }
        let Caller::Owner { epoch, connection } = from else {
            return Ok(());
        };
        let (known, bound) = (self.owner.epoch, self.bound());
        if epoch < known {
            return Err(Refusal::StaleEpoch {
                given: epoch,
                known,
            });
        }
        // A later epoch belongs to an owner that must connect first.
        if !bound || epoch > known {
            return Err(Refusal::NotConnected);
        }
        if connection != self.owner.connection {
            return Err(Refusal::StaleConnection {
                given: connection,
                known: self.owner.connection,
            });
        }
        Ok(())
    }

    /// The owner leaves. Its epoch must match, not its connection.
    ///
    /// # Errors
    /// When the caller is not the owner.
    pub fn leave(&mut self, epoch: u64) -> Result<(), Refusal> {
        if self.stopped.is_some() {
            return Err(Refusal::Stopped);
        }
        let known = self.owner.epoch;
        if epoch != known {
            return Err(Refusal::StaleEpoch {
                given: epoch,
                known,
            });
        }
        if self.bound() {
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
    ) -> Result<Resized, Refusal> {
        self.admits(from)?;
        let known = self.version;
        if let Some(given) = request.if_version.filter(|given| *given != known) {
            return Err(Refusal::OtherVersion { given, known });
        }
        self.fence(from, now)?;
        if self.designated != request.size {
            self.designated = request.size;
            self.version += 1;
        }
        let mut done = Resized::default();
        if request.release && self.mode == Mode::Managed {
            self.release_surplus(from, &request.unwanted, &mut done);
        } else {
            done.withdrawn_now = self.withdraw(self.surplus());
        }
        done.requested_now = self.request_missing(now);
        Ok(done)
    }

    /// A worker registered with its owner; true when the pool knows it. The owner may use it in any
    /// case.
    ///
    /// # Errors
    /// When the call is fenced off.
    pub fn started(&mut self, from: Caller, id: &AllocationId, now: Now) -> Result<bool, Refusal> {
        self.fence(from, now)?;
        let epoch = self.owner.epoch;
        if self.mode == Mode::Standalone {
            return Ok(self.accept(id));
        }
        let before = self.idle_blocked();
        let known = match self.workers.get_mut(id) {
            Some(worker) if worker.is_held() => {
                worker.started(epoch);
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
        if !self.workers.contains_key(id) && self.is_full() {
            return false;
        }
        let fresh = || Worker::new(State::Started);
        let worker = self.workers.entry(id.clone()).or_insert_with(fresh);
        worker.started(self.owner.epoch);
        true
    }

    fn is_full(&self) -> bool {
        let wished = usize::try_from(self.designated).unwrap_or(0);
        self.workers.len() >= MAX_FOREIGN + wished
    }

    /// A reported worker that is known to be dead is reported as removed at once; any other unknown
    /// one is ignored.
    pub(crate) fn report_unknown_worker(&mut self, id: &AllocationId) {
        if self.dead.contains(id) {
            let text = "the worker was dead before it was reported";
            self.record_event(EventKind::ResourceRemoved, Some(id.clone()), text);
        } else if !self.is_full() {
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
        let standalone = self.mode == Mode::Standalone;
        match self.workers.get_mut(id) {
            Some(_) if standalone => {
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

    /// # Errors
    /// When the call is fenced off.
    pub fn check(&mut self, from: Caller, now: Now) -> Result<Checked, Refusal> {
        self.fence(from, now)?;
        Ok(Checked {
            missing: self.missing(),
            requested_now: self.request_missing(now),
        })
    }

    /// Stops the pool; false when it was already stopped.
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

    fn surplus(&self) -> u64 {
        self.counts().available().saturating_sub(self.designated)
    }

    /// Withdraws up to `most` requests, the newest first.
    fn withdraw(&mut self, most: u64) -> u64 {
        let mut withdrawn = 0;
        while withdrawn < most && self.requested.pop_last().is_some() {
            withdrawn += 1;
        }
        withdrawn
    }

    /// Releases unwanted workers, requests, unregistered and registered workers, in this order,
    /// until the size fits.
    fn release_surplus(&mut self, from: Caller, unwanted: &[AllocationId], done: &mut Resized) {
        let unwanted: BTreeSet<&AllocationId> = unwanted.iter().collect();
        let ordered = from.is_owner();
        // Uncounted workers are surplus at any size.
        for (id, worker) in &mut self.workers {
            if worker.is_idle_blocked() && unwanted.contains(id) {
                worker.give_back(ordered);
                done.released.push(id.clone());
            }
        }
        self.release(ordered, |id, _| unwanted.contains(id), done);
        done.withdrawn_now = self.withdraw(self.surplus());
        self.release(ordered, |_, state| state == State::Launching, done);
        self.release(ordered, |_, state| state == State::Started, done);
    }

    /// Newest first, because the least work is lost.
    fn release(
        &mut self,
        ordered: bool,
        is_chosen: impl Fn(&AllocationId, State) -> bool,
        done: &mut Resized,
    ) {
        let mut surplus = self.surplus();
        for (id, worker) in self.workers.iter_mut().rev() {
            if surplus == 0 {
                return;
            }
            let counted = worker.is_held() && !worker.is_idle_blocked();
            if counted && is_chosen(id, worker.state) {
                worker.give_back(ordered);
                done.released.push(id.clone());
                surplus -= 1;
            }
        }
    }
}
