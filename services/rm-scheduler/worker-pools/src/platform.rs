//! What the platform tells: grants, workers it takes off, workers that ended, and what it still has
//! after a restart (sections 7, 9, 14).

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

use crate::owner_events::Kind;
use crate::pool::{Final, Mode, Pool};
use crate::time::Now;
use crate::worker::{State, Worker};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Room was given for the worker of this number.
    Granted {
        id: AllocationId,
        number: u64,
        node: NodeName,
    },
    /// The platform takes it off by itself: an evacuation, others that are due the room.
    Leaving { id: AllocationId, text: String },
    /// It is proven gone.
    Ended {
        id: AllocationId,
        ending: Ending,
        text: String,
    },
}

/// Whose doing an end was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its own, or its node's: a failure of the pool.
    Died,
    /// The machine refused to start it: not a failure, but a failed start.
    Refused,
    /// The platform's own doing: neither.
    Intended,
}

impl Pool {
    /// Takes in a batch of news, then judges failures, then checks (section 9).
    pub fn told(&mut self, batch: impl IntoIterator<Item = Told>, now: Now) {
        for told in batch {
            match told {
                Told::Granted { id, number, node } => self.granted(id, number, node, now),
                Told::Leaving { id, text } => self.leaving(&id, &text),
                Told::Ended { id, ending, text } => self.ended(id, ending, &text, now),
            }
        }
        self.request_missing(now);
    }

    /// Read again by a new leader, which knows these allocations of the pool to hold: the owner has
    /// to connect again, and what it had registered waits for it as launching (section 14).
    pub fn restarted(&mut self, held: &BTreeSet<AllocationId>, now: Now) {
        self.unbind();
        if self.stopped.is_none() {
            let text = "the scheduler has restarted: connect again";
            self.tell(Kind::ReconnectRequested, None, text);
        }
        if self.mode == Mode::Standalone {
            return;
        }
        let lost: Vec<AllocationId> = self
            .workers
            .iter()
            .filter(|(id, worker)| worker.state != State::Foreign && !held.contains(*id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            // No completion was delivered, so it is no failure (E1).
            let text = "it was gone when the scheduler came back";
            self.ended(id, Ending::Intended, text, now);
        }
        for worker in self.workers.values_mut() {
            if worker.state == State::Started {
                worker.state = State::Launching;
            }
        }
        let wait = self.rules.recovery_timeout_ms;
        self.recovering_until = (wait > 0).then(|| now.monotonic_ms + wait);
    }

    fn granted(&mut self, id: AllocationId, number: u64, node: NodeName, now: Now) {
        if !self.requested.remove(&number) {
            // More grants than requests: one request less, clamped at none (race 13).
            self.requested.pop_last();
        }
        let fits = self.stopped.is_none()
            && self.mode == Mode::Managed
            && self.counts().granted() < self.designated;
        let met = self.workers.get(&id).and_then(|worker| worker.reported_by);
        let mut worker = Worker::new(State::Launching);
        worker.marked = self.marked.contains(&node);
        (worker.number, worker.node, worker.reported_by) = (Some(number), Some(node), met);
        match met {
            _ if !fits => worker.give_back(false),
            Some(epoch) => worker.started(epoch),
            None => {
                let until = now.monotonic_ms + self.rules.register_deadline_ms;
                worker.deadline = self.bound().then_some(until);
            }
        }
        self.workers.insert(id, worker);
    }

    /// Not counted from now on, so that the check asks for another at once (section 22).
    fn leaving(&mut self, id: &AllocationId, text: &str) {
        let Some(worker) = self.workers.get_mut(id).filter(|worker| worker.is_held()) else {
            return;
        };
        worker.give_back(false);
        self.tell(
            Kind::Info,
            Some(id.clone()),
            &format!("it is taken off: {text}"),
        );
    }

    fn ended(&mut self, id: AllocationId, ending: Ending, text: &str, now: Now) {
        // What the owner knows and the pool never asked for is not ours to count.
        let ours = |worker: &Worker| worker.state != State::Foreign;
        if !self.workers.get(&id).is_some_and(ours) {
            return;
        }
        let Some(worker) = self.workers.remove(&id) else {
            return;
        };
        self.note_dead(id.clone());
        // W8: also for one that was registered before a restart or a change of owners.
        if worker.reported_by.is_some() && !worker.ordered {
            self.tell(Kind::ResourceRemoved, Some(id), text);
        }
        if worker.state == State::Returning || ending == Ending::Intended {
            return;
        }
        // 15.2: one that was registered once did start.
        if worker.state == State::Launching && worker.reported_by.is_none() {
            self.note_failed_start(now);
        }
        if ending == Ending::Died {
            self.note_failure(now);
            self.stop_for_failures(now);
        }
    }

    /// Reaching the limit is tolerated, passing it is not. The rest of the batch finds a stopped
    /// pool, in which nothing is a failure any more.
    fn stop_for_failures(&mut self, now: Now) {
        self.forget_old_failures(now);
        let Some(limit) = self.max_failed.filter(|limit| self.failed_so_far > *limit) else {
            return;
        };
        let failed = self.failed_so_far;
        let text = format!("{failed} workers failed, {limit} are tolerated");
        self.stop_with(Final::Failed, text.clone(), false);
        self.tell(Kind::PoolFailed, None, &text);
    }
}
