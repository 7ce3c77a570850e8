//! Runs the production planner round by round, without a fleet.
//!
//! A scenario is a JSON document (`hayward-scenario/1`) with nodes and work for each round. The
//! document calls a round a *cycle*.
//! [`Scenario::read`] rejects unknown fields. [`Scenario::run`] plans each cycle, applies the plan
//! to a simulated fleet and returns one [`Outcome`] per cycle. [`Scenario::check`] compares the
//! outcomes with the expectations of the document.
//! `hayward plan` and the tests of the rules use this crate. It has no state and reads no file and
//! no clock, so the same document always gives the same outcomes.

mod amounts;
mod document;
mod events;
mod expectations;
mod fleet;
mod outcome;
mod policy;
mod validate;

use serde_json::Value;
use thiserror::Error;

pub use outcome::{JobOutcome, Outcome, OutcomeOptions};

#[derive(Debug, Error)]
pub enum Error {
    #[error("it is not JSON")]
    Syntax(#[source] serde_json::Error),
    #[error("at {path}")]
    Field {
        path: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("its format is {0:?}; this program reads \"hayward-scenario/1\"")]
    Format(String),
    #[error("cycle {cycle}: {message}")]
    Event { cycle: u64, message: String },
    #[error("its policy has {} fault(s):\n  {}", .0.len(), .0.join("\n  "))]
    Policy(Vec<String>),
    #[error("{0}")]
    Cycles(String),
}

/// Maximum number of cycles, including those without events: each costs a round.
const MAX_CYCLES: u64 = 100_000;

/// A valid document.
#[derive(Debug)]
pub struct Scenario {
    document: document::Document,
    /// Numbers of the cycles in the document, in order.
    cycle_numbers: Vec<u64>,
    expectations: Vec<expectations::Expectation>,
}

impl Scenario {
    /// Parses a scenario.
    ///
    /// # Errors
    /// If the text is no scenario or has an unknown field.
    pub fn read(text: &str) -> Result<Self, Error> {
        let mut value: Value = serde_json::from_str(text).map_err(Error::Syntax)?;
        let expectations = expectations::collect_expectations(&value);
        document::remove_annotations(&mut value);
        let document: document::Document =
            serde_path_to_error::deserialize(value).map_err(|error| Error::Field {
                path: error.path().to_string(),
                source: error.into_inner(),
            })?;
        if let Some(format) = document.format.as_ref()
            && format != document::FORMAT
        {
            return Err(Error::Format(format.clone()));
        }
        let cycle_numbers = number_cycles(&document.cycles)?;
        Ok(Self {
            document,
            cycle_numbers,
            expectations,
        })
    }

    /// Plans all cycles and returns their outcomes.
    ///
    /// # Errors
    /// If an event or the policy is invalid.
    pub fn run(&self, options: OutcomeOptions) -> Result<Vec<Outcome>, Error> {
        let mut fleet = fleet::SimulatedFleet::new(&self.document)?;
        let mut outcomes = Vec::new();
        let cycles = self
            .cycle_numbers
            .iter()
            .copied()
            .zip(&self.document.cycles);
        let mut next = self.cycle_numbers.first().copied().unwrap_or(1);
        for (number, cycle) in cycles {
            // Cycles without events are planned as well.
            for empty_cycle in next..number {
                outcomes.push(run_cycle(&mut fleet, empty_cycle, &[], options)?);
            }
            outcomes.push(run_cycle(&mut fleet, number, &cycle.events, options)?);
            next = number + 1;
        }
        Ok(outcomes)
    }

    /// Returns the differences between outcomes and expectations, one sentence each.
    pub fn check(&self, outcomes: &[Outcome]) -> Vec<String> {
        self.expectations
            .iter()
            .flat_map(|expectation| expectation.differences(outcomes))
            .collect()
    }

    /// Returns the number of expectations of the document.
    pub fn expectation_count(&self) -> usize {
        self.expectations.len()
    }
}

fn run_cycle(
    fleet: &mut fleet::SimulatedFleet,
    number: u64,
    events: &[document::Event],
    options: OutcomeOptions,
) -> Result<Outcome, Error> {
    let plan = fleet.plan_round(number, events)?;
    let outcome = outcome::for_cycle(fleet, &plan, options);
    fleet.finish_round(plan);
    Ok(outcome)
}

/// Returns the number of each cycle. A cycle without a number follows the previous one.
fn number_cycles(cycles: &[document::CycleDocument]) -> Result<Vec<u64>, Error> {
    let mut numbers: Vec<u64> = Vec::with_capacity(cycles.len());
    for (index, cycle) in cycles.iter().enumerate() {
        let next = numbers.last().map_or(1, |last| last.saturating_add(1));
        let number = cycle.cycle.unwrap_or(next);
        let first = numbers.first().copied().unwrap_or(number);
        if number < next && index > 0 {
            let message = format!("cycles[{index}].cycle is {number}: must be at least {next}");
            return Err(Error::Cycles(message));
        }
        if number.saturating_sub(first) >= MAX_CYCLES || number > u64::from(u32::MAX) {
            let message = format!(
                "cycles[{index}].cycle is {number}: a scenario has at most {MAX_CYCLES} cycles, \
                 including cycles without events, and no number above {}",
                u32::MAX
            );
            return Err(Error::Cycles(message));
        }
        numbers.push(number);
    }
    Ok(numbers)
}
