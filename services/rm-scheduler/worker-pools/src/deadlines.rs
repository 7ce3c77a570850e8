//! Effects of time: deadlines of workers, silence of the owner, and the end of a cooldown.
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
        if self.is_owner_silent(now) {
            self.unbind();
            self.record_event(
                EventKind::Info,
                None,
                "the owner lost contact and is no longer bound",
            );
        }
        if self.is_bound() {
            self.apply_deadlines(now);
        }
        if self
            .cooldown_until
            .is_some_and(|until| until <= now.monotonic_ms)
        {
            self.cooldown_until = None;
        }
        self.request_missing(now);
    }

    /// Returns the next time at which [`Self::tick`] has an effect, on the monotonic clock.
    pub fn next_tick_ms(&self) -> Option<u64> {
        let deadlines = self.workers.values().filter_map(|worker| worker.deadline);
        let silence = self.is_bound().then(|| {
            self.owner
                .last_call_ms
                .saturating_add(self.rules.owner_lease_ms)
        });
        deadlines.chain(silence).chain(self.cooldown_until).min()
    }

    fn is_owner_silent(&self, now: Now) -> bool {
        let silent_ms = now.monotonic_ms.saturating_sub(self.owner.last_call_ms);
        self.is_bound() && silent_ms >= self.rules.owner_lease_ms
    }

    fn apply_deadlines(&mut self, now: Now) {
        let has_passed =
            |deadline: Option<u64>| deadline.is_some_and(|time| time <= now.monotonic_ms);
        let register_deadline = now.monotonic_ms + self.rules.register_deadline_ms;
        let mut unregistered = Vec::new();
        for (id, worker) in &mut self.workers {
            if !has_passed(worker.deadline) {
                continue;
            }
            match worker.state {
                // The new owner did not list the worker. It counts as launching for a second
                // deadline.
                State::Started => {
                    worker.state = State::Launching;
                    worker.deadline = Some(register_deadline);
                }
                // The worker never registered. It is given back, and another one is requested.
                State::Launching => {
                    worker.give_back(false);
                    unregistered.push(id.clone());
                }
                State::Returning | State::Foreign => worker.deadline = None,
            }
        }
        for id in unregistered {
            let text = "the worker did not register in time and is given back";
            self.record_event(EventKind::Info, Some(id), text);
        }
    }
}
