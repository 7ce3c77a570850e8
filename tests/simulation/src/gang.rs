//! Gangs under fair shares: all tasks of a job run together or not at all, and a whole job may have
//! to go. A model of a gang scheduler with preemption, to be compared with.
//!
//! A preempted job returns to its place in its user's queue and has lost the work since its last
//! checkpoint. Time is in milliseconds; rounds are ten seconds apart and only where something
//! happened.

mod round;
mod state;

use std::cmp::Reverse;

use state::State;

use crate::{
    case::{Case, Progress},
    measure::{Books, Fairness, Moment},
};

/// Milliseconds between rounds.
const TICK_MS: u64 = 10_000;

/// What preemption costs a job, and whom it spares; seconds of running since its last start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preemption {
    /// After so long a job has saved what it did; absent means never.
    pub checkpoint_s: Option<u64>,
    /// A job that has run for longer is not preempted any more; absent means any may be.
    pub protected_s: Option<u64>,
}

pub fn simulate(
    case: &Case,
    preemption: Preemption,
    fairness: &Fairness,
    progress: Progress,
) -> Books {
    let mut state = State::new(case, preemption, fairness);
    let first = case.jobs.first().map_or(0, |_| case.submit_s(0) * 1000);
    let mut arrivals = (0..case.jobs.len()).peekable();
    let mut tick: Option<Moment> = None;
    let mut done = 0;
    loop {
        let arrival = arrivals.peek().map(|job| case.submit_s(*job) * 1000);
        let end = state.next_end();
        let Some(now) = [arrival, end, tick].into_iter().flatten().min() else {
            break;
        };
        state.advance(now);
        let mut news = false;
        while state.next_end() == Some(now) {
            if let Some(Reverse((_, job, _))) = state.ends.pop() {
                state.end(job);
                done += 1;
                news = true;
                progress(done);
            }
        }
        while let Some(job) = arrivals.next_if(|job| case.submit_s(*job) * 1000 == now) {
            state.submit(job);
            news = true;
        }
        if news && tick.is_none() {
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
