//! Passing of time: deadlines of workers, silence of the owner, end of a cooldown.
//!
//! No deadline runs without an owner, because no worker could be reported then.

use crate::owner_events::EventKind;
use crate::pool::Pool;
use crate::time::Now;
use crate::worker::State;

impl Pool {
    /// Applies all effects of time up to this instant.
    pub fn tick(&mut self, now: Now) {
        self.forget_old_failures(now);
        if self.owner_is_silent(now) {
            self.unbind();
            self.record_event(
                EventKind::Info,
                None,
                "the owner lost contact and is no longer bound",
            );
        }
        if self.bound() {
            self.pass_deadlines(now);
        }
        if self
            .cooldown_until
            .is_some_and(|until| until <= now.monotonic_ms)
        {
            self.cooldown_until = None;
        }
        self.request_missing(now);
    }

    /// Next time at which [`Self::tick`] has an effect, on the monotonic clock.
    pub fn next_tick_ms(&self) -> Option<u64> {
        let deadlines = self.workers.values().filter_map(|worker| worker.deadline);
        let silence = self.bound().then(|| {
            self.owner
                .last_call_ms
                .saturating_add(self.rules.owner_lease_ms)
        });
        deadlines.chain(silence).chain(self.cooldown_until).min()
    }

    fn owner_is_silent(&self, now: Now) -> bool {
        let silent_ms = now.monotonic_ms.saturating_sub(self.owner.last_call_ms);
        self.bound() && silent_ms >= self.rules.owner_lease_ms
    }

    fn pass_deadlines(&mut self, now: Now) {
        let passed = |deadline: Option<u64>| deadline.is_some_and(|at| at <= now.monotonic_ms);
        let fresh = now.monotonic_ms + self.rules.register_deadline_ms;
        let mut late = Vec::new();
        for (id, worker) in &mut self.workers {
            if !passed(worker.deadline) {
                continue;
            }
            match worker.state {
                // It stays and counts for a while, but not forever.
                State::Started => {
                    worker.state = State::Launching;
                    worker.deadline = Some(fresh);
                }
                // It never registered: it is released, and another one is requested.
                State::Launching => {
                    worker.give_back(false);
                    late.push(id.clone());
                }
                State::Returning | State::Foreign => worker.deadline = None,
            }
        }
        for id in late {
            let text = "the worker did not register in time and is given back";
            self.record_event(EventKind::Info, Some(id), text);
        }
    }
}
