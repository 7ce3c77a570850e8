//! The processors of one service: what stands of each, how the last one ended, and what is asked
//! for next (container placement, sections 9 to 11).
//!
//! A processor is an active or stands by for one. Its own memory is small: a failure record, the
//! host it was last seen on, whether it is over, and for an active a failover while one is under
//! way. What stands is told from outside, again and again; everything else follows from it, so that
//! a restart that reads the rows back goes on where it was. Only the times of open requests begin
//! anew with each manager.

mod endings;
mod failover;
mod retries;
mod rollout;
mod terms;

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

pub use endings::{Ending, ending};
pub use failover::Failover;
pub use retries::{Counted, Record, Retries, SKEW_MS, account};
pub use terms::{Now, Patience, Place, Terms};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing of it is there.
    Waiting,
    /// It has its place and is not up yet.
    Pending,
    Running,
    /// Its retries are exhausted.
    Failed,
    /// It ended with status 0.
    Completed,
}

/// What stands of a processor: not ended and not told to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    pub allocation: AllocationId,
    pub host: NodeName,
    /// It runs, or is ending by itself.
    pub running: bool,
    /// While it is up and its node answers: since when, by the clock of the scheduler.
    pub up_since_ms: Option<i64>,
    /// It was started as an older deployment says.
    pub stale: bool,
}

/// How it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Failed,
    Completed,
}

/// What is asked for while nothing stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Request {
    /// Absent: any.
    host: Option<NodeName>,
    /// When it counts from (7.4).
    since_ms: u64,
    /// A retry that waits for its time.
    not_before_ms: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Processor {
    seat: Option<Seat>,
    /// Allocations that have not ended, whatever they do.
    alive: usize,
    last_host: Option<NodeName>,
    record: Option<Record>,
    over: Option<Over>,
    request: Request,
    failover: Option<Failover>,
    /// A standby that makes place for its active.
    yields: bool,
    /// It was taken off, to be started anew once nothing of it is alive.
    renews: bool,
    /// It was FAILED and was given a place by an action; its record goes when it runs.
    returns: bool,
}

impl Processor {
    pub fn state(&self) -> State {
        match (&self.seat, self.over) {
            (Some(seat), _) if seat.running => State::Running,
            (Some(_), _) => State::Pending,
            (None, Some(Over::Failed)) => State::Failed,
            (None, Some(Over::Completed)) => State::Completed,
            (None, None) => State::Waiting,
        }
    }

    pub fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }
    pub fn over(&self) -> Option<Over> {
        self.over
    }
    pub fn failover(&self) -> Option<&Failover> {
        self.failover.as_ref()
    }
    /// Where it is, or was last seen.
    pub fn last_host(&self) -> Option<&NodeName> {
        self.last_host.as_ref()
    }
    pub fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }
    /// Nothing is asked for, for what becomes of others or of what was there before.
    fn is_held(&self) -> bool {
        self.yields || self.renews
    }
    /// The host that is asked for, while one is.
    pub fn wanted_host(&self) -> Option<&NodeName> {
        let open = self.seat.is_none() && self.over.is_none() && !self.is_held();
        self.request.host.as_ref().filter(|_| open)
    }
}

/// What is asked of the scheduler for one processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// False takes off what there is, and starts nothing.
    pub wanted: bool,
    /// The one host that will do now.
    pub host: Option<NodeName>,
}

/// How the whole of it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Completed,
    Failed(String),
}

#[derive(Debug, Clone)]
pub struct Processors {
    terms: Terms,
    all: Vec<Processor>,
    /// Hosts that something of this was lost with or taken off, and was given no new place on: no
    /// failover goes there.
    closed: BTreeSet<NodeName>,
    /// What broke a rule that must not be broken (11.4).
    breach: Option<String>,
    /// Slots whose rows have to be written.
    changed: BTreeSet<usize>,
    /// Lines for people.
    told: Vec<String>,
}

impl Processors {
    pub fn new(terms: Terms) -> Self {
        let all = (0..terms.count()).map(|_| Processor::default()).collect();
        Self {
            terms,
            all,
            closed: BTreeSet::new(),
            breach: None,
            changed: BTreeSet::new(),
            told: Vec::new(),
        }
    }

    pub fn terms(&self) -> &Terms {
        &self.terms
    }
    pub fn get(&self, slot: usize) -> Option<&Processor> {
        self.all.get(slot)
    }
    /// Slots whose rows have to be written, once.
    pub fn take_changed(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.changed)
    }
    /// Lines for the history, once.
    pub fn take_told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    /// Puts back what a row says.
    pub fn restore(
        &mut self,
        slot: usize,
        (record, over): (Option<Record>, Option<Over>),
        failover: Option<Failover>,
    ) {
        if let Some(it) = self.all.get_mut(slot) {
            (it.record, it.over, it.failover) = (record, over, failover);
        }
    }

    /// Puts back where a processor was last seen, in this deployment or one before it.
    pub fn restore_host(&mut self, slot: usize, host: NodeName) {
        if let Some(it) = self.all.get_mut(slot) {
            it.last_host = Some(host);
        }
    }

    /// Begins, or goes on after a restart: what nobody has yet is asked for now.
    pub fn begin(&mut self, now: Now) {
        for slot in 0..self.all.len() {
            let waits_ms = self.all[slot]
                .record
                .map_or(0, |it| it.waits_ms(now.wall_ms));
            let failover = self.all[slot].failover.clone();
            let target = failover.as_ref().map(|it| it.asked.clone());
            let host = target.unwrap_or_else(|| self.last_seen(slot));
            self.ask_for(slot, host, now, waits_ms);
            if let Some(standby) = failover.and_then(|it| it.waits_for) {
                self.yield_place(standby, now);
            }
        }
    }

    /// Affinity on and a host known: that host; else any (10.6).
    fn last_seen(&self, slot: usize) -> Option<NodeName> {
        let known = self.all[slot].last_host.clone();
        known.filter(|_| self.terms.host_affinity)
    }

    fn ask_for(&mut self, slot: usize, host: Option<NodeName>, now: Now, delay_ms: u64) {
        let not_before_ms = now.monotonic_ms.saturating_add(delay_ms);
        self.all[slot].request = Request {
            host: host.filter(|_| self.terms.host_affinity),
            since_ms: not_before_ms,
            not_before_ms,
        };
    }

    /// What stands of a processor now, and how much of it has not ended.
    pub fn stands(&mut self, slot: usize, seat: Option<Seat>, alive: usize) {
        let Some(it) = self.all.get_mut(slot) else {
            return;
        };
        it.alive = alive;
        if it.seat == seat {
            return;
        }
        if let Some(seat) = &seat {
            let known = it.seat.as_ref().map(|before| &before.allocation);
            if known != Some(&seat.allocation) {
                self.closed.remove(&seat.host);
            }
            it.renews &= seat.stale;
            if let Some(over) = it.over.take() {
                // 6.6: a place it was given by an action takes it out of FAILED.
                it.returns = over == Over::Failed;
                self.changed.insert(slot);
            }
            if seat.running {
                // 6.6: so that its next failure is the first.
                if std::mem::take(&mut it.returns) {
                    it.record = None;
                    self.changed.insert(slot);
                }
                let moved = it.last_host.as_ref() != Some(&seat.host);
                if moved || it.failover.is_some() {
                    self.changed.insert(slot);
                }
                it.last_host = Some(seat.host.clone());
                it.failover = None;
            }
        }
        it.seat = seat;
    }

    /// Its node was lost, or takes nothing new.
    pub fn closes(&mut self, host: &NodeName) {
        self.closed.insert(host.clone());
    }

    /// It was told to leave, by whomever and for whatever reason. Told again, it changes nothing.
    pub fn leaves(
        &mut self,
        slot: usize,
        (allocation, host): (&AllocationId, &NodeName),
        now: Now,
    ) {
        let Some(it) = self.all.get(slot) else { return };
        if it.seat.is_some() || it.over.is_some() || it.is_held() {
            return;
        }
        self.lost(slot, Some((allocation, host)), now);
    }

    /// It is gone through no fault of its own: a failover where something stands by, else any host
    /// (9, −100 to −102).
    fn lost(&mut self, slot: usize, what: Option<(&AllocationId, &NodeName)>, now: Now) {
        let is_active = self.terms.place(slot).replica.is_none();
        if is_active && self.terms.fails_over() {
            self.fail_over(slot, what, now);
        } else {
            self.ask_for(slot, None, now, 0);
        }
    }

    /// It ended. Call [`Self::stands`] before with what stands without it.
    pub fn ended(
        &mut self,
        slot: usize,
        (allocation, host): (&AllocationId, &NodeName),
        ending: Ending,
        now: Now,
    ) {
        let Some(it) = self.all.get(slot) else { return };
        // Something else stands in its place already: it was moved (9: consult the action first).
        if it.seat.is_some() || it.over.is_some() || it.is_held() {
            return;
        }
        match ending {
            Ending::Completed if self.terms.retries.is_some() => {
                let it = &mut self.all[slot];
                (it.over, it.record, it.failover) = (Some(Over::Completed), None, None);
                self.changed.insert(slot);
                self.tell(slot, "has completed");
            }
            Ending::Completed | Ending::Failure => self.failed(slot, (allocation, host), now),
            Ending::LaunchFailed | Ending::Lost => self.lost(slot, Some((allocation, host)), now),
            // Told to leave: that was taken note of when it was told.
            Ending::Intended => {}
            Ending::Restarted => {
                let host = self.last_seen(slot);
                self.ask_for(slot, host, now, 0);
            }
        }
    }

    /// Section 10.
    fn failed(&mut self, slot: usize, (allocation, host): (&AllocationId, &NodeName), now: Now) {
        let preferred = self.last_seen(slot);
        let retries = self.terms.retries.clone().unwrap_or(Retries::FOR_EVER);
        let counted = account(
            self.all[slot].record.as_ref(),
            &retries,
            now.wall_ms,
            preferred.is_some(),
        );
        let delay_ms = match counted {
            Counted::Exhausted => {
                self.all[slot].over = Some(Over::Failed);
                self.all[slot].failover = None;
                self.changed.insert(slot);
                self.tell(slot, &format!("has failed: {}", retries.in_words()));
                return;
            }
            Counted::Uncounted => 0,
            Counted::Retry(record) => {
                self.all[slot].record = Some(record);
                self.changed.insert(slot);
                record.last_delay_ms
            }
        };
        let is_active = self.terms.place(slot).replica.is_none();
        if let Some(preferred) = preferred.clone()
            && is_active
            && self.terms.fails_over()
        {
            // 11.4: the same host first, recorded, so that its expiry becomes a failover.
            self.record_first(slot, (allocation, host), &preferred);
        }
        self.ask_for(slot, preferred, now, delay_ms);
    }

    /// What is asked of the scheduler for a processor at this instant.
    pub fn ask(&self, slot: usize, now_ms: u64) -> Ask {
        let nothing = Ask {
            wanted: false,
            host: None,
        };
        let Some(it) = self.all.get(slot) else {
            return nothing;
        };
        let waits = it
            .failover
            .as_ref()
            .is_some_and(|it| it.waits_for.is_some());
        if it.is_held() {
            return nothing;
        }
        if let Some(seat) = &it.seat {
            // While it stands, an active with standbys is wanted where it is: lost with its node,
            // it must not be put anywhere before a standby was chosen.
            let is_active = self.terms.place(slot).replica.is_none();
            let pinned = is_active && self.terms.fails_over();
            return Ask {
                wanted: true,
                host: pinned.then(|| seat.host.clone()),
            };
        }
        if it.over.is_some() || waits || now_ms < it.request.not_before_ms {
            return nothing;
        }
        Ask {
            wanted: true,
            host: it.request.host.clone(),
        }
    }

    /// Time passed, or what stands changed: expired requests, standbys that made place.
    pub fn tick(&mut self, patience: Patience, now: Now) {
        for slot in 0..self.all.len() {
            self.go_on_over(slot, patience, now);
            self.go_on_anew(slot, now);
            if !self.is_expired(slot, patience, now.monotonic_ms) {
                continue;
            }
            let is_active = self.terms.place(slot).replica.is_none();
            if is_active && self.terms.fails_over() {
                // 11.5: choose again, used ones excluded.
                self.choose(slot, now);
            } else {
                self.ask_for(slot, None, now, 0);
            }
        }
    }

    /// 7.4: strictly more than the timeout, from when it might first be served.
    fn is_expired(&self, slot: usize, patience: Patience, now_ms: u64) -> bool {
        let it = &self.all[slot];
        let waits = it
            .failover
            .as_ref()
            .is_some_and(|it| it.waits_for.is_some());
        let open = it.seat.is_none() && it.over.is_none() && !it.is_held() && !waits;
        let asks = it.request.host.is_some();
        open && asks && now_ms.saturating_sub(it.request.since_ms) > patience.request_ms
    }

    /// When [`Self::tick`] or [`Self::ask`] may answer differently though no news came.
    pub fn due_ms(&self, patience: Patience, now_ms: u64) -> Option<u64> {
        let due = |it: &Processor| {
            if it.seat.is_some() || it.over.is_some() {
                return None;
            }
            if let Some(failover) = it.failover.as_ref().filter(|it| it.waits_for.is_some()) {
                return Some(failover.since_ms.saturating_add(patience.stop_ms));
            }
            if now_ms < it.request.not_before_ms {
                return Some(it.request.not_before_ms);
            }
            let asks = it.request.host.is_some() && !it.is_held();
            let expires = it.request.since_ms.saturating_add(patience.request_ms + 1);
            asks.then_some(expires)
        };
        self.all.iter().filter_map(due).min()
    }

    /// Every processor runs, or has completed.
    pub fn is_healthy(&self) -> bool {
        let good = |it: &Processor| matches!(it.state(), State::Running | State::Completed);
        self.all.iter().all(good)
    }

    /// How it is over, when it is. What stands by is over with the actives.
    pub fn end(&self) -> Option<End> {
        if let Some(breach) = &self.breach {
            return Some(End::Failed(breach.clone()));
        }
        let retries = self.terms.retries.as_ref()?;
        let failed = |slot: &usize| self.all[*slot].state() == State::Failed;
        let first_failed = (0..self.all.len()).find(failed);
        if retries.fail_service
            && let Some(slot) = first_failed
        {
            let (place, why) = (self.terms.place(slot), retries.in_words());
            return Some(End::Failed(format!("processor {place} has failed: {why}")));
        }
        let actives = 0..self.terms.instances as usize;
        let over = |it: &Processor| matches!(it.state(), State::Failed | State::Completed);
        if !self.all[actives.clone()].iter().all(over) {
            return None;
        }
        // Section 10, end: FAILED is terminal, and what went on without it ends FAILED.
        let lost = actives.filter(failed).count();
        Some(match lost {
            0 => End::Completed,
            _ => End::Failed(format!(
                "{lost} of {} processors have failed, the others have completed",
                self.terms.instances
            )),
        })
    }

    fn tell(&mut self, slot: usize, what: &str) {
        let place = self.terms.place(slot);
        self.told.push(format!("processor {place} {what}"));
    }
}

#[cfg(test)]
mod tests;
