//! Scenarios: the production planner driven cycle by cycle, without a fleet.
//!
//! A scenario is a JSON document (`hayward-scenario/1`) that tells of nodes and work, one cycle
//! after the other. [`Scenario::read`] refuses what it does not know, [`Scenario::run`] plans each
//! cycle with the planner of the service, carries the plan out on a pretended fleet and gives one
//! [`Outcome`] per cycle, and [`Scenario::check`] compares outcomes with what the document expects.
//!
//! It owns nothing and serves `hayward plan`, the tests of the rules, and whoever wants to discuss
//! one. It reads no file and no clock: the same document gives the same outcomes everywhere.

mod amounts;
mod document;
mod events;
mod expect;
mod fleet;
mod outcome;
mod policy;

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
    #[error("{0}")]
    Policy(String),
}

/// A document that was read and found good.
#[derive(Debug)]
pub struct Scenario {
    document: document::Document,
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
        Ok(Self {
            document,
            expectations,
        })
    }

    /// # Errors
    /// When an event or the policy says something that cannot be.
    pub fn run(&self, shown: Shown) -> Result<Vec<Outcome>, Error> {
        let mut fleet = fleet::Fleet::new(&self.document)?;
        let mut outcomes = Vec::new();
        let mut next = 1;
        for (place, cycle) in self.document.cycles.iter().enumerate() {
            let number = cycle.cycle.unwrap_or(next);
            if number < next && place > 0 {
                let what = "cycles are told in ascending order".to_owned();
                return Err(Error::Event {
                    cycle: number,
                    what,
                });
            }
            // Cycles that nothing is told of pass all the same.
            let first = if place == 0 { number } else { next };
            for quiet in first..number {
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
