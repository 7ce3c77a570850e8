//! Malleable jobs. A job is a divisible amount of work: tasks × run time. It progresses at a rate
//! equal to its current number of processes, which is at most its number of tasks.
//!
//! Time is in milliseconds. The policy runs every ten seconds, and only after an arrival or an end.
//! Processes start and stop at once.

mod error;
mod fleet;
mod fluid;
mod production_planner;

pub use error::SimulationError;
pub use fleet::SimulatedFleet;
pub use fluid::Fluid;
pub use production_planner::{PolicyError, ProductionPlanner};

use crate::{
    case::{Case, Progress},
    measure::{Fairness, Moment, Results, UnservedReason},
};

/// Milliseconds between rounds.
const TICK_MS: u64 = 10_000;

/// A policy that grants and preempts processes.
pub trait MalleablePolicy {
    /// Runs one round. Returns when to run the next one if no event happens until then.
    ///
    /// # Errors
    /// If the decision is not valid. None of it is applied.
    fn round(&mut self, fleet: &mut SimulatedFleet) -> Result<Option<Moment>, SimulationError>;

    /// Returns why these jobs, which never ran, still wait at the end of the simulation.
    fn why_waiting(&self, _jobs: &[usize]) -> Vec<(usize, UnservedReason)> {
        Vec::new()
    }
}

/// Simulates all jobs of the case until no event is left.
///
/// # Errors
/// If a round fails. The simulation ends there.
pub fn simulate(
    case: &Case,
    policy: &mut dyn MalleablePolicy,
    fairness: &Fairness,
    progress: Progress,
) -> Result<Results, SimulationError> {
    let mut fleet = SimulatedFleet::new(case, fairness);
    let first = fleet.now();
    let next_tick = |moment: Moment| first + (moment - first).div_ceil(TICK_MS) * TICK_MS;
    let mut arrivals = (0..case.jobs.len()).peekable();
    let mut tick: Option<Moment> = None;
    let mut finished = 0;
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
        let mut has_events = false;
        while fleet.end_one() {
            finished += 1;
            has_events = true;
            progress(finished);
        }
        while let Some(job) = arrivals.next_if(|job| case.submit_s(*job) * 1000 == now) {
            fleet.submit(job);
            has_events = true;
        }
        if has_events {
            let next = next_tick(now);
            tick = Some(tick.map_or(next, |tick| tick.min(next)));
        }
        if tick == Some(now) {
            let next_round = policy.round(&mut fleet)?;
            tick = next_round.map(|moment| next_tick(moment.max(now + 1)));
        }
    }
    for (job, reason) in policy.why_waiting(&fleet.never_started()) {
        fleet.record_waiting(job, reason);
    }
    Ok(fleet.close())
}

#[cfg(test)]
mod tests;
