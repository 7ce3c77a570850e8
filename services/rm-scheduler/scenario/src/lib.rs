//! Runs the production planner cycle by cycle, without a fleet.
//!
//! A scenario is a JSON document (`hayward-scenario/1`) with nodes and work for each cycle.
//! [`Scenario::read`] rejects unknown fields. [`Scenario::run`] plans each cycle, applies the plan
//! to a simulated fleet and returns one [`Outcome`] per cycle. [`Scenario::check`] compares the
//! outcomes with the expectations of the document.
//!
//! It is used by `hayward plan` and by the tests of the rules. It has no state and reads no file
//! and no clock, so the same document always gives the same outcomes.

mod amounts;
mod document;
mod events;
mod expect;
mod fleet;
mod outcome;
mod policy;
mod validate;

use serde_json::Value;
use thiserror::Error;

pub use outcome::{JobOutcome, Outcome, Shown};

#[derive(Debug, Error)]
pub enum Error {
    #[error("it is not JSON")]
    Syntax(#[source] serde_json::Error),
    #[error("at {at}")]
    Field {
        at: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("its format is {0:?}; this program reads \"hayward-scenario/1\"")]
    Format(String),
    #[error("cycle {cycle}: {what}")]
    Event { cycle: u64, what: String },
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
    /// Numbers of its cycles, in order.
    numbers: Vec<u64>,
    expectations: Vec<expect::Expectation>,
}

impl Scenario {
    /// # Errors
    /// If it is no scenario or has an unknown field.
    pub fn read(text: &str) -> Result<Self, Error> {
        let mut value: Value = serde_json::from_str(text).map_err(Error::Syntax)?;
        let expectations = expect::gather(&value);
        document::strip(&mut value);
        let document: document::Document =
            serde_path_to_error::deserialize(value).map_err(|error| Error::Field {
                at: error.path().to_string(),
                source: error.into_inner(),
            })?;
        if let Some(format) = document.format.as_ref()
            && format != document::FORMAT
        {
            return Err(Error::Format(format.clone()));
        }
        let numbers = numbered(&document.cycles)?;
        Ok(Self {
            document,
            numbers,
            expectations,
        })
    }

    /// # Errors
    /// If an event or the policy is invalid.
    pub fn run(&self, shown: Shown) -> Result<Vec<Outcome>, Error> {
        let mut fleet = fleet::Fleet::new(&self.document)?;
        let mut outcomes = Vec::new();
        let cycles = self.numbers.iter().copied().zip(&self.document.cycles);
        let mut next = self.numbers.first().copied().unwrap_or(1);
        for (number, cycle) in cycles {
            // Cycles without events are planned as well.
            for quiet in next..number {
                outcomes.push(run_cycle(&mut fleet, quiet, &[], shown)?);
            }
            outcomes.push(run_cycle(&mut fleet, number, &cycle.events, shown)?);
            next = number + 1;
        }
        Ok(outcomes)
    }

    /// Differences between outcomes and expectations, one sentence each.
    pub fn check(&self, outcomes: &[Outcome]) -> Vec<String> {
        self.expectations
            .iter()
            .flat_map(|expectation| expectation.differences(outcomes))
            .collect()
    }

    /// Number of expectations of the document.
    pub fn expects(&self) -> usize {
        self.expectations.len()
    }
}

fn run_cycle(
    fleet: &mut fleet::Fleet,
    number: u64,
    events: &[document::Event],
    shown: Shown,
) -> Result<Outcome, Error> {
    let plan = fleet.cycle(number, events)?;
    let outcome = outcome::for_cycle(fleet, &plan, shown);
    fleet.finish(plan);
    Ok(outcome)
}

/// Number of each cycle. A cycle without a number follows the previous one.
fn numbered(cycles: &[document::CycleDocument]) -> Result<Vec<u64>, Error> {
    let mut numbers: Vec<u64> = Vec::with_capacity(cycles.len());
    for (at, cycle) in cycles.iter().enumerate() {
        let next = numbers.last().map_or(1, |last| last.saturating_add(1));
        let number = cycle.cycle.unwrap_or(next);
        let first = numbers.first().copied().unwrap_or(number);
        if number < next && at > 0 {
            let what = format!("cycles[{at}].cycle is {number}: must be at least {next}");
            return Err(Error::Cycles(what));
        }
        if number.saturating_sub(first) >= MAX_CYCLES || number > u64::from(u32::MAX) {
            let what = format!(
                "cycles[{at}].cycle is {number}: a scenario has at most {MAX_CYCLES} cycles, \
                 including cycles without events, and no number above {}",
                u32::MAX
            );
            return Err(Error::Cycles(what));
        }
        numbers.push(number);
    }
    Ok(numbers)
}
