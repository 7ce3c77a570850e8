//! Time passes: deadlines of workers, the owner's silence, the end of a cooldown.
//!
//! No deadline runs while no owner is bound: nobody could report a worker then.

use crate::owner_events::Kind;
use crate::pool::Pool;
use crate::worker::State;

/// A moment, handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The only thing time-outs are judged by; it starts anew with the process.
    pub monotonic_ms: u64,
    /// Wall time, for the window of failures, which outlives the process.
    pub unix_ms: i64,
}

impl Pool {
    /// Brings the pool to this moment.
    pub fn tick(&mut self, now: Now) {
        self.forget_old_failures(now);
        if self.owner_is_silent(now) {
            self.unbind();
            self.tell(
                Kind::Info,
                None,
                "the owner fell silent and is not bound any more",
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

    /// When [`Self::tick`] would next do something, on the monotonic clock.
    pub fn next_tick_ms(&self) -> Option<u64> {
        let deadlines = self.workers.values().filter_map(|worker| worker.deadline);
        let silence = self.bound().then(|| {
            self.owner
                .heard_ms
                .saturating_add(self.rules.owner_lease_ms)
        });
        deadlines.chain(silence).chain(self.cooldown_until).min()
    }

    fn owner_is_silent(&self, now: Now) -> bool {
        let silent_ms = now.monotonic_ms.saturating_sub(self.owner.heard_ms);
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
                // 5.3: kept and counted for a while, but not for ever.
                State::Started => {
                    worker.state = State::Launching;
                    worker.deadline = Some(fresh);
                }
                // 15.1: nobody ever saw it. Released, and the check asks for another.
                State::Launching => {
                    worker.give_back(false);
                    late.push(id.clone());
                }
                State::Returning | State::Foreign => worker.deadline = None,
            }
        }
        for id in late {
            let text = "it did not register in time and is given back";
            self.tell(Kind::Info, Some(id), text);
        }
    }
}
