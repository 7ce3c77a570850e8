//! What the owner asks, each call fenced by epoch and connection (sections 4, 6, 8, 10, 13).
//!
//! A refused call changes nothing (W7).

use std::collections::BTreeSet;

use hayward_vocabulary::AllocationId;

use crate::owner_events::Kind;
use crate::pool::{Final, Mode, Pool};
use crate::time::Now;
use crate::worker::{State, Worker};

/// Workers kept beyond those that are wished: strangers, and all of a standalone pool. More are
/// acknowledged and not kept.
pub const MOST_FOREIGN: usize = 10_000;

/// In whose name a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The owner, or somebody who believes to be it.
    Owner { epoch: u64, connection: u64 },
    /// An operator of the fleet, who needs no connection.
    Operator,
}

impl Speaker {
    /// What the owner itself gives up it need not be told of (W8).
    fn is_owner(self) -> bool {
        matches!(self, Self::Owner { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("epoch {given} is not that of the owner, which is {known}")]
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

/// The answer to a connection (5.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    pub connection: u64,
    /// Of the list, what the pool knows and counts.
    pub accepted: Vec<AllocationId>,
    /// Of the list, what it left alone.
    pub foreign: Vec<AllocationId>,
    /// Of the list, what is being given back already.
    pub returning: Vec<AllocationId>,
    /// The list is older than news with a higher number.
    pub event_seq: u64,
}

/// A wish for another size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    pub size: u64,
    /// Give up what is over, in the order of 15.4.
    pub release: bool,
    /// To be given up first.
    pub unwanted: Vec<AllocationId>,
    pub if_version: Option<u64>,
}

/// The answer to it.
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
    /// Lets a call through, or says why not. A call that is let through is a sign of life.
    ///
    /// # Errors
    /// When the pool is stopped, or the caller is not its owner of now.
    pub fn fence(&mut self, from: Speaker, now: Now) -> Result<(), Refusal> {
        self.admits(from)?;
        if from.is_owner() {
            self.owner.heard_ms = now.monotonic_ms;
        }
        Ok(())
    }

    fn admits(&self, from: Speaker) -> Result<(), Refusal> {
        if self.stopped.is_some() {
            return Err(Refusal::Stopped);
        }
        let Speaker::Owner { epoch, connection } = from else {
            return Ok(());
        };
        let (known, bound) = (self.owner.epoch, self.bound());
        if epoch < known {
            return Err(Refusal::StaleEpoch {
                given: epoch,
                known,
            });
        }
        // A later epoch is an owner that has yet to connect.
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

    /// The owner says that it goes; its epoch has to match, its connection need not be told.
    ///
    /// # Errors
    /// When it is not the owner.
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
            self.tell(Kind::Info, None, "the owner has left");
        }
        Ok(())
    }

    /// Sets the size. Lowering it withdraws surplus requests; workers go only where `release` says
    /// so (sections 6, 10, 15.4).
    ///
    /// # Errors
    /// When the call is fenced off or was made from another version.
    pub fn set_size(&mut self, from: Speaker, wish: &Wish, now: Now) -> Result<Resized, Refusal> {
        self.admits(from)?;
        let known = self.version;
        if let Some(given) = wish.if_version.filter(|given| *given != known) {
            return Err(Refusal::OtherVersion { given, known });
        }
        self.fence(from, now)?;
        if self.designated != wish.size {
            self.designated = wish.size;
            self.version += 1;
        }
        let mut done = Resized::default();
        if wish.release && self.mode == Mode::Managed {
            self.release_surplus(from, &wish.unwanted, &mut done);
        } else {
            done.withdrawn_now = self.withdraw(self.surplus());
        }
        done.requested_now = self.request_missing(now);
        Ok(done)
    }

    /// A worker has registered with its owner; true when it is one of ours (section 8). The answer
    /// vetoes nothing.
    ///
    /// # Errors
    /// When the call is fenced off.
    pub fn started(&mut self, from: Speaker, id: &AllocationId, now: Now) -> Result<bool, Refusal> {
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
                self.meet_stranger(id);
                false
            }
        };
        if self.tell_of_idle(&before) {
            self.request_missing(now);
        }
        Ok(known)
    }

    /// Section 11: standalone accepts every worker it is told of, while it has room to keep it.
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
        self.workers.len() >= MOST_FOREIGN + wished
    }

    /// Race 5: a stranger that is known to be dead is told of at once, any other is left alone.
    pub(crate) fn meet_stranger(&mut self, id: &AllocationId) {
        if self.dead.contains(id) {
            let text = "it was dead before it was reported";
            self.tell(Kind::ResourceRemoved, Some(id.clone()), text);
        } else if !self.is_full() {
            let mut worker = Worker::new(State::Foreign);
            worker.reported_by = Some(self.owner.epoch);
            self.workers.insert(id.clone(), worker);
        }
    }

    /// Gives one worker back, without any change of the size: so it is replaced once it is gone
    /// (section 10). Asking again for one that is on its way changes nothing.
    ///
    /// # Errors
    /// When the call is fenced off, or the worker is not one of ours.
    pub fn remove(&mut self, from: Speaker, id: &AllocationId, now: Now) -> Result<(), Refusal> {
        self.fence(from, now)?;
        let standalone = self.mode == Mode::Standalone;
        match self.workers.get_mut(id) {
            Some(_) if standalone => {
                // The process stays; only the id is forgotten.
                self.workers.remove(id);
                if !from.is_owner() {
                    // W8: its owner did not order this and has to stop using it.
                    let text = "an operator took it off the list";
                    self.tell(Kind::ResourceRemoved, Some(id.clone()), text);
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
    pub fn check(&mut self, from: Speaker, now: Now) -> Result<Checked, Refusal> {
        self.fence(from, now)?;
        Ok(Checked {
            missing: self.missing(),
            requested_now: self.request_missing(now),
        })
    }

    /// Ends the pool; false when it was over already (section 13).
    ///
    /// # Errors
    /// When the call is fenced off.
    pub fn stop(
        &mut self,
        from: Speaker,
        (status, message): (Final, &str),
        now: Now,
    ) -> Result<bool, Refusal> {
        if self.stopped.is_some() {
            return Ok(false);
        }
        self.fence(from, now)?;
        self.stop_with(status, message.to_owned(), from.is_owner());
        self.tell(Kind::Info, None, "the pool is stopped");
        Ok(true)
    }

    fn surplus(&self) -> u64 {
        self.counts().available().saturating_sub(self.designated)
    }

    /// Withdraws up to so many requests, the newest first.
    fn withdraw(&mut self, most: u64) -> u64 {
        let mut withdrawn = 0;
        while withdrawn < most && self.requested.pop_last().is_some() {
            withdrawn += 1;
        }
        withdrawn
    }

    /// 15.4: the unwanted, requests, unregistered workers, registered workers, until it fits.
    fn release_surplus(&mut self, from: Speaker, unwanted: &[AllocationId], done: &mut Resized) {
        let unwanted: BTreeSet<&AllocationId> = unwanted.iter().collect();
        let ordered = from.is_owner();
        // What is not counted is over, whatever the size.
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

    /// Newest first: the younger, the less is lost.
    fn release(
        &mut self,
        ordered: bool,
        which: impl Fn(&AllocationId, State) -> bool,
        done: &mut Resized,
    ) {
        let mut surplus = self.surplus();
        for (id, worker) in self.workers.iter_mut().rev() {
            if surplus == 0 {
                return;
            }
            let counted = worker.is_held() && !worker.is_idle_blocked();
            if counted && which(id, worker.state) {
                worker.give_back(ordered);
                done.released.push(id.clone());
                surplus -= 1;
            }
        }
    }
}
