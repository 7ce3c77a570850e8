//! The pool itself: its numbers, and how many workers to ask for (sections 3 and 6).
//!
//! `available = STARTED + REQUESTED + LAUNCHING`. All three are sizes of sets here, so none can be
//! negative, and a worker is in exactly one state (W2) because it is in one map once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_vocabulary::{AllocationId, NodeName};

use crate::failed_start_rate::Meter;
use crate::owner_events::{Kind, News};
use crate::time::Now;
use crate::worker::{State, Worker};

/// Dead workers remembered, for calls about them that were on the way.
const DEAD_KEPT: usize = 1_024;
/// Failures kept by time where a window is set and no limit.
const FAILURES_KEPT: usize = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Workers are asked for, launched and given back.
    Managed,
    /// The owner brings its own; the pool keeps the numbers and does nothing (section 11).
    Standalone,
}

/// What a final status is to the platform (section 13).
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
    /// Absent in standalone, which reports nothing.
    pub status: Option<Final>,
    pub message: String,
}

/// Times and limits (section 19).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub register_deadline_ms: u64,
    pub reregister_grace_ms: u64,
    /// Failed starts in a minute that are still tolerated.
    pub start_failures_per_min: u64,
    pub cooldown_ms: u64,
    /// An owner that is not heard for so long is not bound any more.
    pub owner_lease_ms: u64,
    /// Failures older than this count no more; 0: they count for ever.
    pub failure_window_ms: u64,
    /// After a restart the pool is ready once all have registered, or after this time; 0: at once.
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

/// Who owns the pool, as far as is known. The epoch stays when the owner goes: it fences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    pub epoch: u64,
    pub address: String,
    /// Grows with every connection.
    pub connection: u64,
    pub bound: bool,
    pub heard_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub requested: u64,
    pub launching: u64,
    pub started: u64,
    pub returning: u64,
    pub foreign: u64,
    /// Of the started ones, those that are idle on a marked node: there, and not counted.
    pub idle_blocked: u64,
}

impl Counts {
    /// Launching and started, as far as they count.
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
    pub designated: u64,
    /// Grows with every change of the size.
    pub version: u64,
    /// Failures that are tolerated; absent: any number.
    pub max_failed: Option<u64>,
    pub failed_so_far: u64,
    /// When the failures that count were, where a window is set.
    pub failed_at: VecDeque<i64>,
    pub stopped: Option<Stopped>,
    pub owner: Owner,
    /// Numbers that were asked for and not granted.
    pub requested: BTreeSet<u64>,
    /// The last number ever asked for.
    pub last_number: u64,
    pub workers: BTreeMap<AllocationId, Worker>,
    /// Nodes that are blocked and not emptied at once, as far as workers are there.
    pub marked: BTreeSet<NodeName>,
    /// Number of the last news.
    pub event_seq: u64,
    /// No requests before this moment of the monotonic clock.
    pub cooldown_until: Option<u64>,
    /// Waits for the workers it had before a restart, until then.
    pub(crate) recovering_until: Option<u64>,
    pub(crate) meter: Meter,
    /// Newest last.
    pub(crate) dead: VecDeque<AllocationId>,
    pub(crate) news: Vec<News>,
}

impl Pool {
    /// `max_failed` absent: as many as the initial size; negative: any number (section 9).
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
            marked: BTreeSet::new(),
            event_seq: 0,
            cooldown_until: None,
            recovering_until: None,
            meter: Meter::default(),
            dead: VecDeque::new(),
            news: Vec::new(),
        }
    }

    /// All that is worth keeping in rows is the same; what begins anew with a term does not count.
    pub fn is_kept_like(&self, other: &Self) -> bool {
        let kept = |pool: &Self| {
            let numbers = (pool.designated, pool.version, pool.last_number);
            let owner = (pool.owner.epoch, pool.owner.connection);
            (numbers, owner, pool.failed_so_far, pool.event_seq)
        };
        kept(self) == kept(other)
            && self.requested == other.requested
            && self.failed_at == other.failed_at
            && self.stopped == other.stopped
    }

    /// A copy of all but the workers, which may be many.
    #[must_use]
    pub fn without_workers(&self) -> Self {
        Self {
            requested: self.requested.clone(),
            failed_at: self.failed_at.clone(),
            stopped: self.stopped.clone(),
            owner: self.owner.clone(),
            workers: BTreeMap::new(),
            marked: BTreeSet::new(),
            meter: Meter::default(),
            dead: VecDeque::new(),
            news: Vec::new(),
            ..*self
        }
    }

    pub fn bound(&self) -> bool {
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

    /// Workers that are neither there nor on their way.
    pub fn missing(&self) -> u64 {
        self.designated.saturating_sub(self.counts().available())
    }

    /// Thousandths of the size that are granted; all of them when nothing is wished.
    pub fn progress_milli(&self) -> u64 {
        (self.counts().granted() * 1_000)
            .checked_div(self.designated)
            .unwrap_or(1_000)
    }

    /// All workers of before a restart have registered, or the time for it is over (15.5).
    pub fn ready(&self, now: Now) -> bool {
        let waits = self
            .recovering_until
            .is_some_and(|at| now.monotonic_ms < at);
        !waits || self.counts().launching == 0
    }

    /// The numbers of the workers the platform should give or keep giving.
    pub fn wants(&self) -> BTreeSet<u64> {
        let there = self.workers.values().filter(|worker| worker.is_held());
        let held = there.filter_map(|worker| worker.number);
        self.requested.iter().copied().chain(held).collect()
    }

    /// What was not told yet.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    pub(crate) fn tell(&mut self, kind: Kind, worker: Option<AllocationId>, text: &str) {
        self.event_seq += 1;
        self.news.push(News {
            seq: self.event_seq,
            kind,
            worker,
            text: text.to_owned(),
        });
    }

    /// Section 6: requests exactly what is missing. Running it twice requests nothing the second
    /// time; it never releases (W4).
    pub(crate) fn request_missing(&mut self, now: Now) -> u64 {
        let cools = self
            .cooldown_until
            .is_some_and(|until| now.monotonic_ms < until);
        // W6; and nobody owns what an unbound pool would start.
        if self.stopped.is_some() || self.mode == Mode::Standalone || !self.bound() || cools {
            return 0;
        }
        let missing = self.missing();
        for _ in 0..missing {
            self.last_number += 1;
            self.requested.insert(self.last_number);
        }
        missing
    }

    /// Forgets the owner but not its epoch, nor anything that runs (5.5).
    pub(crate) fn unbind(&mut self) {
        self.owner.bound = false;
        self.owner.address.clear();
        for worker in self.workers.values_mut() {
            worker.deadline = None;
        }
    }

    /// Gives everything back and asks for nothing more.
    pub(crate) fn stop_with(&mut self, status: Final, message: String, ordered: bool) {
        self.requested.clear();
        if self.mode == Mode::Managed {
            let held = self.workers.values_mut();
            for worker in held.filter(|worker| worker.is_held()) {
                worker.give_back(ordered);
            }
        }
        let status = (self.mode == Mode::Managed).then_some(status);
        self.stopped = Some(Stopped { status, message });
    }

    pub(crate) fn note_failure(&mut self, now: Now) {
        self.failed_so_far += 1;
        if self.rules.failure_window_ms > 0 {
            self.failed_at.push_back(now.unix_ms);
            // More than the limit is never needed: the pool is stopped then.
            if self.failed_at.len() > FAILURES_KEPT && self.max_failed.is_none() {
                self.failed_at.pop_front();
                self.failed_so_far -= 1;
            }
        }
    }

    pub(crate) fn forget_old_failures(&mut self, now: Now) {
        let window = i64::try_from(self.rules.failure_window_ms).unwrap_or(i64::MAX);
        let old = now.unix_ms.saturating_sub(window);
        while window > 0 && self.failed_at.front().is_some_and(|at| *at <= old) {
            self.failed_at.pop_front();
            self.failed_so_far = self.failed_so_far.saturating_sub(1);
        }
    }

    pub(crate) fn note_failed_start(&mut self, now: Now) {
        if self
            .meter
            .mark(now.monotonic_ms, self.rules.start_failures_per_min)
        {
            let until = now.monotonic_ms + self.rules.cooldown_ms;
            if self.cooldown_until.is_none() {
                let text = "too many failed starts in a minute: the next requests wait";
                self.tell(Kind::Info, None, text);
            }
            self.cooldown_until = Some(until);
        }
    }

    /// Remembers that this worker is proven dead, so that its owner is told again if it still lists
    /// or reports it (race 5). Whoever reads a pool from rows says it of those that were told.
    pub fn note_dead(&mut self, id: AllocationId) {
        if self.dead.len() == DEAD_KEPT {
            self.dead.pop_front();
        }
        self.dead.push_back(id);
    }
}
