//! State of a worker pool, and the number of workers to request.
//!
//! `available = STARTED + REQUESTED + LAUNCHING`, without idle workers on blocked nodes. All these
//! numbers are sizes of sets, so none is negative.
//! A worker is in one map, so it has exactly one state (WP-2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_vocabulary::{AllocationId, NodeName};

use crate::failed_start_rate::FailedStartRate;
use crate::owner_events::{EventKind, OwnerEvent};
use crate::time::Now;
use crate::worker::{State, Worker};

/// Maximum number of stored dead workers, for late calls about them.
const MAX_DEAD: usize = 1_024;
/// Maximum number of stored failures in a pool with a failure window and without a failure limit.
const MAX_FAILURES: usize = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Workers are requested, launched and given back.
    Managed,
    /// The owner brings its own workers; the pool only stores the size.
    Standalone,
}

/// Final status of a stopped pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Final {
    Succeeded,
    Failed,
    Killed,
    Undefined,
}

impl Final {
    pub const ALL: [Self; 4] = [Self::Succeeded, Self::Failed, Self::Killed, Self::Undefined];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Killed => "KILLED",
            Self::Undefined => "UNDEFINED",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// `None` for a standalone pool.
    pub status: Option<Final>,
    pub message: String,
}

/// Time and count limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Milliseconds in which a granted worker must register, or else it is given back.
    pub register_deadline_ms: u64,
    /// Milliseconds in which a new owner must list a registered worker. Afterwards the worker
    /// counts as launching again.
    pub reregister_grace_ms: u64,
    /// Maximum number of failed starts per minute. Above it, requests pause for the cooldown.
    pub start_failures_per_min: u64,
    /// Milliseconds of the pause after too many failed starts.
    pub cooldown_ms: u64,
    /// Milliseconds of silence after which an owner is unbound.
    pub owner_lease_ms: u64,
    /// Milliseconds after which a failure no longer counts; 0 means never.
    pub failure_window_ms: u64,
    /// Milliseconds after a restart until the pool is ready even if not all workers have
    /// registered; 0 means at once.
    pub recovery_timeout_ms: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            register_deadline_ms: 300_000,
            reregister_grace_ms: 60_000,
            start_failures_per_min: 10,
            cooldown_ms: 3_000,
            owner_lease_ms: 60_000,
            failure_window_ms: 0,
            recovery_timeout_ms: 0,
        }
    }
}

/// The last known owner. Its epoch remains after it leaves, to fence former owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    pub epoch: u64,
    pub address: String,
    /// Increases with every connection.
    pub connection: u64,
    /// True from the connection of the owner until it leaves or is silent for too long.
    pub bound: bool,
    /// Monotonic time of the last accepted call.
    pub last_call_ms: u64,
}

/// Numbers of workers by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub requested: u64,
    pub launching: u64,
    pub started: u64,
    pub returning: u64,
    pub foreign: u64,
    /// Started workers that are idle on a blocked node and do not count.
    pub idle_blocked: u64,
}

impl Counts {
    /// Launching and started workers that count.
    pub fn granted(self) -> u64 {
        self.launching + self.started - self.idle_blocked
    }

    pub fn available(self) -> u64 {
        self.requested + self.granted()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub mode: Mode,
    pub rules: Rules,
    /// Number of workers that the owner wants.
    pub designated: u64,
    /// Increases with every change of the size.
    pub version: u64,
    /// Maximum number of tolerated failures. `None` means any number.
    pub max_failed: Option<u64>,
    pub failed_so_far: u64,
    /// Times of the failures that count, in Unix milliseconds. Empty without a failure window.
    pub failed_at: VecDeque<i64>,
    pub stopped: Option<Stopped>,
    pub owner: Owner,
    /// Numbers of the requested workers that are not granted yet. Each request has its own number.
    pub requested: BTreeSet<u64>,
    /// The last requested number.
    pub last_number: u64,
    pub workers: BTreeMap<AllocationId, Worker>,
    /// Nodes that are blocked without immediate evacuation.
    pub blocked_nodes: BTreeSet<NodeName>,
    /// Number of the last event.
    pub event_seq: u64,
    /// Monotonic time before which no worker is requested.
    pub cooldown_until: Option<u64>,
    /// Monotonic time until which the pool waits for its earlier workers after a restart.
    pub(crate) recovering_until: Option<u64>,
    pub(crate) failed_start_rate: FailedStartRate,
    /// Dead workers, newest last.
    pub(crate) dead: VecDeque<AllocationId>,
    pub(crate) events: Vec<OwnerEvent>,
}

impl Pool {
    /// Creates a pool. An absent `max_failed` means the initial size, a negative one any number.
    pub fn new(mode: Mode, initial_size: u64, max_failed: Option<i64>, rules: Rules) -> Self {
        let max_failed = match max_failed {
            None => Some(initial_size),
            Some(limit) => u64::try_from(limit).ok(),
        };
        Self {
            mode,
            rules,
            designated: initial_size,
            version: 1,
            max_failed,
            failed_so_far: 0,
            failed_at: VecDeque::new(),
            stopped: None,
            owner: Owner::default(),
            requested: BTreeSet::new(),
            last_number: 0,
            workers: BTreeMap::new(),
            blocked_nodes: BTreeSet::new(),
            event_seq: 0,
            cooldown_until: None,
            recovering_until: None,
            failed_start_rate: FailedStartRate::default(),
            dead: VecDeque::new(),
            events: Vec::new(),
        }
    }

    /// Returns true if all stored fields are equal, except those that each term of leadership
    /// resets.
    pub fn is_stored_like(&self, other: &Self) -> bool {
        let stored = |pool: &Self| {
            let numbers = (pool.designated, pool.version, pool.last_number);
            let owner = (pool.owner.epoch, pool.owner.connection);
            (numbers, owner, pool.failed_so_far, pool.event_seq)
        };
        stored(self) == stored(other)
            && self.requested == other.requested
            && self.failed_at == other.failed_at
            && self.stopped == other.stopped
    }

    /// A copy without the workers, which may be many.
    #[must_use]
    pub fn without_workers(&self) -> Self {
        Self {
            requested: self.requested.clone(),
            failed_at: self.failed_at.clone(),
            stopped: self.stopped.clone(),
            owner: self.owner.clone(),
            workers: BTreeMap::new(),
            blocked_nodes: BTreeSet::new(),
            failed_start_rate: FailedStartRate::default(),
            dead: VecDeque::new(),
            events: Vec::new(),
            ..*self
        }
    }

    pub fn is_bound(&self) -> bool {
        self.owner.bound
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            requested: self.requested.len() as u64,
            ..Counts::default()
        };
        for worker in self.workers.values() {
            counts.idle_blocked += u64::from(worker.is_idle_blocked());
            match worker.state {
                State::Launching => counts.launching += 1,
                State::Started => counts.started += 1,
                State::Returning => counts.returning += 1,
                State::Foreign => counts.foreign += 1,
            }
        }
        counts
    }

    /// Number of workers that are neither present nor requested.
    pub fn missing(&self) -> u64 {
        self.designated.saturating_sub(self.counts().available())
    }

    /// Granted part of the size in thousandths; 1000 for a size of zero.
    pub fn progress_milli(&self) -> u64 {
        (self.counts().granted() * 1_000)
            .checked_div(self.designated)
            .unwrap_or(1_000)
    }

    /// Returns true if all earlier workers have registered after a restart, or if the time for that
    /// is over.
    pub fn is_ready(&self, now: Now) -> bool {
        let is_recovering = self
            .recovering_until
            .is_some_and(|until| now.monotonic_ms < until);
        !is_recovering || self.counts().launching == 0
    }

    /// Numbers of the workers that the scheduler should grant or keep.
    pub fn wanted_numbers(&self) -> BTreeSet<u64> {
        let allocated = self.workers.values().filter(|worker| worker.is_held());
        let numbers = allocated.filter_map(|worker| worker.number);
        self.requested.iter().copied().chain(numbers).collect()
    }

    /// Removes and returns the events not delivered yet.
    pub fn take_events(&mut self) -> Vec<OwnerEvent> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn record_event(
        &mut self,
        kind: EventKind,
        worker: Option<AllocationId>,
        text: &str,
    ) {
        self.event_seq += 1;
        self.events.push(OwnerEvent {
            seq: self.event_seq,
            kind,
            worker,
            text: text.to_owned(),
        });
    }

    /// Requests exactly the missing workers. A repeated call requests none. This function never
    /// releases a worker (WP-4).
    pub(crate) fn request_missing(&mut self, now: Now) -> u64 {
        let cools_down = self
            .cooldown_until
            .is_some_and(|until| now.monotonic_ms < until);
        // No requests for a stopped pool (WP-6), and none without an owner.
        if self.stopped.is_some() || self.mode == Mode::Standalone || !self.is_bound() || cools_down
        {
            return 0;
        }
        let missing = self.missing();
        for _ in 0..missing {
            self.last_number += 1;
            self.requested.insert(self.last_number);
        }
        missing
    }

    /// Unbinds the owner; its epoch and the workers stay.
    pub(crate) fn unbind(&mut self) {
        self.owner.bound = false;
        self.owner.address.clear();
        for worker in self.workers.values_mut() {
            worker.deadline = None;
        }
    }

    /// Stops the pool: gives all workers back and withdraws all requests.
    pub(crate) fn stop_with(&mut self, status: Final, message: String, by_owner: bool) {
        self.requested.clear();
        if self.mode == Mode::Managed {
            let held = self.workers.values_mut();
            for worker in held.filter(|worker| worker.is_held()) {
                worker.give_back(by_owner);
            }
        }
        let status = (self.mode == Mode::Managed).then_some(status);
        self.stopped = Some(Stopped { status, message });
    }

    pub(crate) fn record_failure(&mut self, now: Now) {
        self.failed_so_far += 1;
        if self.rules.failure_window_ms > 0 {
            self.failed_at.push_back(now.unix_ms);
            // With a failure limit the list stays short, because the pool stops above the limit.
            if self.failed_at.len() > MAX_FAILURES && self.max_failed.is_none() {
                self.failed_at.pop_front();
                self.failed_so_far -= 1;
            }
        }
    }

    /// Drops the failures that are older than the failure window.
    pub(crate) fn forget_old_failures(&mut self, now: Now) {
        let window = i64::try_from(self.rules.failure_window_ms).unwrap_or(i64::MAX);
        let oldest = now.unix_ms.saturating_sub(window);
        while window > 0 && self.failed_at.front().is_some_and(|time| *time <= oldest) {
            self.failed_at.pop_front();
            self.failed_so_far = self.failed_so_far.saturating_sub(1);
        }
    }

    /// Records a failed start. Too many failed starts within a minute begin a cooldown.
    pub(crate) fn record_failed_start(&mut self, now: Now) {
        if self
            .failed_start_rate
            .record(now.monotonic_ms, self.rules.start_failures_per_min)
        {
            let until = now.monotonic_ms + self.rules.cooldown_ms;
            if self.cooldown_until.is_none() {
                let text = "too many failed starts in a minute; the next requests wait";
                self.record_event(EventKind::Info, None, text);
            }
            self.cooldown_until = Some(until);
        }
    }

    /// Remembers a dead worker, so that an owner that still lists it is informed. Also called when
    /// a pool is loaded from rows, for every worker reported as removed.
    pub fn remember_dead(&mut self, id: AllocationId) {
        if self.dead.len() == MAX_DEAD {
            self.dead.pop_front();
        }
        self.dead.push_back(id);
    }
}
