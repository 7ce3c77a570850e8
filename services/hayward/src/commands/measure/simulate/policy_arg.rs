//! A policy argument: the name of a baseline, or a policy document for the planner of real fleets.
//! A baseline is a reference scheduler for comparison, for example `easy`.

use std::path::PathBuf;
use std::{convert::Infallible, fmt, str::FromStr};

use anyhow::{Context as _, bail};
use hayward_rm_scheduler_api::policy::Policy;
use hayward_simulation::case::Progress;
use hayward_simulation::malleable::{self, ProductionPlanner};
use hayward_simulation::measure::Results;
use hayward_simulation::{Baseline, Case, Node, Workload};

use crate::commands::operate::policy::document::read_policy;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyArg {
    Baseline(Baseline),
    Document(PathBuf),
}

impl FromStr for PolicyArg {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(
            Baseline::find_by_name(text)
                .map_or_else(|| Self::Document(text.into()), Self::Baseline),
        )
    }
}

impl fmt::Display for PolicyArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Baseline(baseline) => baseline.fmt(f),
            Self::Document(file) => file.display().fmt(f),
        }
    }
}

impl PolicyArg {
    /// Returns the jobs that can be simulated on these nodes.
    pub fn case<'a>(&self, workload: &'a Workload, nodes: &'a [Node]) -> Case<'a> {
        match self {
            Self::Baseline(baseline) => baseline.case(workload, nodes),
            Self::Document(_) => Case::malleable(workload, nodes),
        }
    }

    /// Runs the simulation. `queue` is the queue of jobs that name none.
    pub fn simulate(
        &self,
        case: &Case,
        queue: Option<&str>,
        progress: Progress,
    ) -> anyhow::Result<Results> {
        match self {
            Self::Baseline(baseline) if queue.is_some() => {
                bail!("{baseline} has no queues: leave out --queue, or name a policy document")
            }
            Self::Baseline(baseline) => Ok(baseline.simulate(case, progress)?),
            Self::Document(file) => {
                let file_name = || file.display().to_string();
                let (policy, _) = read_policy(file)?;
                simulate_planner(case, &policy, queue, progress).with_context(file_name)
            }
        }
    }
}

/// Runs the planner of real fleets with this policy.
fn simulate_planner(
    case: &Case,
    policy: &Policy,
    queue: Option<&str>,
    progress: Progress,
) -> anyhow::Result<Results> {
    let mut planner = ProductionPlanner::with_queue(case, policy, queue)?;
    let fairness = ProductionPlanner::fairness(policy);
    Ok(malleable::simulate(
        case,
        &mut planner,
        &fairness,
        progress,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_is_a_baseline_and_any_other_is_a_file() {
        let Ok(named) = "easy".parse::<PolicyArg>();
        assert!(matches!(named, PolicyArg::Baseline(_)), "{named:?}");
        assert_eq!(named.to_string(), "easy");
        let Ok(file) = "policies/easy".parse::<PolicyArg>();
        assert_eq!(file, PolicyArg::Document("policies/easy".into()));
    }
}
