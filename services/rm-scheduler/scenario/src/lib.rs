//! Scenarios: the production planner driven cycle by cycle, without a fleet.
//!
//! A scenario is a JSON document (`hayward-scenario/1`) that tells of nodes and work, one cycle
//! after the other. [`Scenario::read`] refuses what it does not know, [`Scenario::run`] plans each
//! cycle with the planner of the service, carries the plan out on a pretended fleet and gives one
//! [`Outcome`] per cycle, and [`Scenario::check`] compares outcomes with what the document expects.
//!
//! It owns nothing, serves `hayward plan`, the tests of the rules, and whoever wants to discuss
//! one. It reads no file and no clock: the same document gives the same outcomes everywhere.

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

/// Cycles one document may drive, those that nothing is told of among them: each costs a round.
const MOST_CYCLES: u64 = 100_000;

/// A document that was read and found good.
#[derive(Debug)]
pub struct Scenario {
    document: document::Document,
    /// Of its cycles, one after the other.
    numbers: Vec<u64>,
    expectations: Vec<expect::Expectation>,
}

impl Scenario {
    /// # Errors
    /// When it is no scenario, or has a field that is not known.
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
    /// When an event or the policy says something that cannot be.
    pub fn run(&self, shown: Shown) -> Result<Vec<Outcome>, Error> {
        let mut fleet = fleet::Fleet::new(&self.document)?;
        let mut outcomes = Vec::new();
        let told = self.numbers.iter().copied().zip(&self.document.cycles);
        let mut next = self.numbers.first().copied().unwrap_or(1);
        for (number, cycle) in told {
            // Cycles that nothing is told of pass all the same.
            for quiet in next..number {
                outcomes.push(fleet.cycle(quiet, &[], shown)?);
            }
            outcomes.push(fleet.cycle(number, &cycle.events, shown)?);
            next = number + 1;
        }
        Ok(outcomes)
    }

    /// What the outcomes have other than the document expects, one sentence each.
    pub fn check(&self, outcomes: &[Outcome]) -> Vec<String> {
        self.expectations
            .iter()
            .flat_map(|expectation| expectation.differences(outcomes))
            .collect()
    }

    /// Expectations the document carries.
    pub fn expects(&self) -> usize {
        self.expectations.len()
    }
}

/// The number of each cycle; one without follows the one before.
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
        if number.saturating_sub(first) >= MOST_CYCLES || number > u64::from(u32::MAX) {
            let what = format!(
                "cycles[{at}].cycle is {number}: a scenario has at most {MOST_CYCLES} cycles, \
                 those that nothing is told of among them, and none beyond {}",
                u32::MAX
            );
            return Err(Error::Cycles(what));
        }
        numbers.push(number);
    }
    Ok(numbers)
}
