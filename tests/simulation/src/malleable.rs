//! Malleable jobs. A job is a divisible amount of work: tasks × run time. It progresses at a rate
//! equal to its current number of processes, which is at most its number of tasks.
//!
//! Time is in milliseconds. The policy runs every ten seconds, and only after an arrival or an end.
//! Processes start and stop at once.

mod fleet;
mod fluid;
mod production;
mod unsound;

pub use fleet::SimulatedFleet;
pub use fluid::Fluid;
pub use production::{BadPolicy, Production};
pub use unsound::Unsound;

use crate::{
    case::{Case, Progress},
    measure::{Fairness, Moment, Refused, Results},
};

/// Milliseconds between rounds.
const TICK_MS: u64 = 10_000;

/// A policy that grants and preempts processes.
pub trait Sharing {
    /// Runs one round. Returns when to run the next one if no event happens until then.
    ///
    /// # Errors
    /// If the decision is not valid. None of it is applied.
    fn round(&mut self, fleet: &mut SimulatedFleet) -> Result<Option<Moment>, Unsound>;

    /// Returns why these jobs, which never ran, still wait at the end of the simulation.
    fn why_waiting(&self, _jobs: &[usize]) -> Vec<(usize, Refused)> {
        Vec::new()
    }
}

/// # Errors
/// If a round fails. The simulation ends there.
pub fn simulate(
    case: &Case,
    sharing: &mut dyn Sharing,
    fairness: &Fairness,
    progress: Progress,
) -> Result<Results, Unsound> {
    let mut fleet = SimulatedFleet::new(case, fairness);
    let first = fleet.now();
    let next_tick = |at: Moment| first + (at - first).div_ceil(TICK_MS) * TICK_MS;
    let mut arrivals = (0..case.jobs.len()).peekable();
    let mut tick: Option<Moment> = None;
    let mut done = 0;
    loop {
        let arrival = arrivals.peek().map(|job| case.submit_s(*job) * 1000);
        let Some(now) = [arrival, fleet.next_end(), tick]
            .into_iter()
            .flatten()
            .min()
        else {
            break;
        };
        fleet.advance(now);
        let mut news = false;
        while fleet.end_one() {
            done += 1;
            news = true;
            progress(done);
        }
        while let Some(job) = arrivals.next_if(|job| case.submit_s(*job) * 1000 == now) {
            fleet.submit(job);
            news = true;
        }
        if news {
            let next = next_tick(now);
            tick = Some(tick.map_or(next, |tick| tick.min(next)));
        }
        if tick == Some(now) {
            let again = sharing.round(&mut fleet)?;
            tick = again.map(|at| next_tick(at.max(now + 1)));
        }
    }
    for (job, why) in sharing.why_waiting(&fleet.never_started()) {
        fleet.still_waits(job, why);
    }
    Ok(fleet.close())
}

#[cfg(test)]
mod tests;
