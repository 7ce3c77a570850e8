//! Events of the platform: grants, vacated workers, ended workers, and the workers known after a
//! restart.

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

use crate::owner_events::EventKind;
use crate::pool::{Final, Mode, Pool};
use crate::time::Now;
use crate::worker::{State, Worker};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformEvent {
    /// The worker with this number was granted.
    Granted {
        id: AllocationId,
        number: u64,
        node: NodeName,
    },
    /// The platform vacates the worker, for an evacuation or for other work.
    Leaving { id: AllocationId, text: String },
    /// The worker has ended.
    Ended {
        id: AllocationId,
        ending: Ending,
        text: String,
    },
}

/// Cause of the end of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The worker or its node failed. Counts as a failure of the pool.
    Died,
    /// The node could not start the worker. Counts only as a failed start.
    Refused,
    /// The platform ended the worker. Counts as neither.
    Intended,
}

impl Pool {
    /// Applies a batch of events, and then requests the missing workers.
    pub fn apply_events(&mut self, batch: impl IntoIterator<Item = PlatformEvent>, now: Now) {
        for event in batch {
            match event {
                PlatformEvent::Granted { id, number, node } => {
                    self.apply_granted(id, number, node, now);
                }
                PlatformEvent::Leaving { id, text } => self.apply_leaving(&id, &text),
                PlatformEvent::Ended { id, ending, text } => {
                    self.apply_ended(id, ending, &text, now);
                }
            }
        }
        self.request_missing(now);
    }

    /// Restores the pool for a new leader that knows these allocations. The owner must connect
    /// again, and its registered workers count as launching until then.
    pub fn recover(&mut self, held: &BTreeSet<AllocationId>, now: Now) {
        self.unbind();
        if self.stopped.is_none() {
            let text = "the scheduler has restarted; connect again";
            self.record_event(EventKind::ReconnectRequested, None, text);
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
            // No completion was delivered, so it is not a failure.
            let text = "the worker was gone when the scheduler returned";
            self.apply_ended(id, Ending::Intended, text, now);
        }
        for worker in self.workers.values_mut() {
            if worker.state == State::Started {
                worker.state = State::Launching;
            }
        }
        let timeout_ms = self.rules.recovery_timeout_ms;
        self.recovering_until = (timeout_ms > 0).then(|| now.monotonic_ms + timeout_ms);
    }

    fn apply_granted(&mut self, id: AllocationId, number: u64, node: NodeName, now: Now) {
        if !self.requested.remove(&number) {
            // The grant has no request, for example after a withdrawal. It replaces another
            // request.
            self.requested.pop_last();
        }
        let is_needed = self.stopped.is_none()
            && self.mode == Mode::Managed
            && self.counts().granted() < self.designated;
        let reporting_epoch = self.workers.get(&id).and_then(|worker| worker.reported_by);
        let mut worker = Worker::new(State::Launching);
        worker.is_node_blocked = self.blocked_nodes.contains(&node);
        (worker.number, worker.node, worker.reported_by) =
            (Some(number), Some(node), reporting_epoch);
        match reporting_epoch {
            _ if !is_needed => worker.give_back(false),
            Some(epoch) => worker.mark_started(epoch),
            None => {
                let deadline = now.monotonic_ms + self.rules.register_deadline_ms;
                worker.deadline = self.is_bound().then_some(deadline);
            }
        }
        self.workers.insert(id, worker);
    }

    /// A leaving worker no longer counts, so that another one is requested at once.
    fn apply_leaving(&mut self, id: &AllocationId, text: &str) {
        let Some(worker) = self.workers.get_mut(id).filter(|worker| worker.is_held()) else {
            return;
        };
        worker.give_back(false);
        self.record_event(
            EventKind::Info,
            Some(id.clone()),
            &format!("the worker is vacated: {text}"),
        );
    }

    fn apply_ended(&mut self, id: AllocationId, ending: Ending, text: &str, now: Now) {
        // The platform did not grant foreign workers, so their end is not counted.
        let is_own = |worker: &Worker| worker.state != State::Foreign;
        if !self.workers.get(&id).is_some_and(is_own) {
            return;
        }
        let Some(worker) = self.workers.remove(&id) else {
            return;
        };
        self.remember_dead(id.clone());
        // This includes workers registered before a restart or a change of the owner (WP-8).
        if worker.reported_by.is_some() && !worker.ordered {
            self.record_event(EventKind::ResourceRemoved, Some(id), text);
        }
        if worker.state == State::Returning || ending == Ending::Intended {
            return;
        }
        // A worker that registered once did start.
        if worker.state == State::Launching && worker.reported_by.is_none() {
            self.record_failed_start(now);
        }
        if ending == Ending::Died {
            self.record_failure(now);
            self.stop_for_failures(now);
        }
    }

    /// Stops the pool if more workers failed than `max_failed` tolerates. In a stopped pool no end
    /// counts as a failure.
    fn stop_for_failures(&mut self, now: Now) {
        self.forget_old_failures(now);
        let Some(limit) = self.max_failed.filter(|limit| self.failed_so_far > *limit) else {
            return;
        };
        let failed = self.failed_so_far;
        let text = format!("{failed} workers failed, {limit} are tolerated");
        self.stop_with(Final::Failed, text.clone(), false);
        self.record_event(EventKind::PoolFailed, None, &text);
    }
}
