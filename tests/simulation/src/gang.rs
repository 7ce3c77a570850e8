//! Gang scheduling under fair shares: all tasks of a job run together or not at all, and preemption
//! stops the whole job. This models a gang scheduler with preemption for comparison.
//!
//! A preempted job returns to its old position in the queue of its user. It loses the work since
//! its last checkpoint. Time is in milliseconds. Rounds are ten seconds apart and run only after an
//! event.

mod round;
mod state;

use std::cmp::Reverse;

use state::State;

use crate::{
    case::{Case, Progress},
    measure::{Fairness, Moment, Results},
};

/// Milliseconds between possible rounds.
const TICK_MS: u64 = 10_000;

/// The cost of preemption, and which jobs cannot be preempted. Times are in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preemption {
    /// Interval between checkpoints of a running job in seconds. `None` means no checkpoints.
    pub checkpoint_s: Option<u64>,
    /// Run time since the last start after which a job is not preempted, in seconds. `None` means
    /// that every job can be preempted.
    pub protected_s: Option<u64>,
}

pub fn simulate(
    case: &Case,
    preemption: Preemption,
    fairness: &Fairness,
    progress: Progress,
) -> Results {
    let mut state = State::new(case, preemption, fairness);
    let first = case.jobs.first().map_or(0, |_| case.submit_s(0) * 1000);
    let mut arrivals = (0..case.jobs.len()).peekable();
    let mut tick: Option<Moment> = None;
    let mut finished = 0;
    loop {
        let arrival = arrivals.peek().map(|job| case.submit_s(*job) * 1000);
        let end = state.next_end();
        let Some(now) = [arrival, end, tick].into_iter().flatten().min() else {
            break;
        };
        state.advance(now);
        let mut has_events = false;
        while state.next_end() == Some(now) {
            if let Some(Reverse((_, job, _))) = state.ends.pop() {
                state.end(job);
                finished += 1;
                has_events = true;
                progress(finished);
            }
        }
        while let Some(job) = arrivals.next_if(|job| case.submit_s(*job) * 1000 == now) {
            state.submit(job);
            has_events = true;
        }
        if has_events && tick.is_none() {
            tick = Some(first + (now - first).div_ceil(TICK_MS) * TICK_MS);
        }
        if tick == Some(now) {
            tick = None;
            round::run(&mut state);
        }
    }
    state.close()
}

#[cfg(test)]
mod tests;
