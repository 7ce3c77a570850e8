//! The policy that a person names: one of the yardsticks, or a document for the real planner.

use std::path::PathBuf;
use std::{convert::Infallible, fmt, str::FromStr};

use anyhow::Context as _;
use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_simulator::batch::Discipline;
use hayward_rm_scheduler_simulator::case::Progress;
use hayward_rm_scheduler_simulator::malleable::{Fluid, Production};
use hayward_rm_scheduler_simulator::measure::{Books, Fairness};
use hayward_rm_scheduler_simulator::{Case, Node, Workload, batch, gang, malleable};

use crate::commands::policy::document::policy_of;

/// Seconds of running after which a gang has saved what it did.
const CHECKPOINT_S: u64 = 3600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    Batch(Discipline),
    Fluid,
    Gang {
        checkpoint: bool,
    },
    /// The real planner with a policy of equal users.
    Even,
    Document(PathBuf),
}

const NAMES: [(&str, Chosen); 7] = [
    ("fcfs", Chosen::Batch(Discipline::Fcfs)),
    ("easy", Chosen::Batch(Discipline::Easy)),
    ("fair-easy", Chosen::Batch(Discipline::FairEasy)),
    ("fluid", Chosen::Fluid),
    ("gang", Chosen::Gang { checkpoint: true }),
    ("gang-no-checkpoint", Chosen::Gang { checkpoint: false }),
    ("even", Chosen::Even),
];

impl FromStr for Chosen {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let known = NAMES.iter().find(|(name, _)| *name == text);
        Ok(known.map_or_else(|| Self::Document(text.into()), |(_, chosen)| chosen.clone()))
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Document(file) = self {
            return write!(f, "{}", file.display());
        }
        let name = NAMES.iter().find(|(_, chosen)| chosen == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl Chosen {
    pub fn case<'a>(&self, workload: &'a Workload, nodes: &'a [Node]) -> Case<'a> {
        match self {
            Self::Batch(_) | Self::Gang { .. } => Case::rigid(workload, nodes),
            Self::Fluid | Self::Even | Self::Document(_) => Case::malleable(workload, nodes),
        }
    }

    pub fn simulate(&self, case: &Case, progress: Progress) -> anyhow::Result<Books> {
        let users = Fairness::Users;
        Ok(match self {
            Self::Batch(discipline) => batch::simulate(case, *discipline, &users, progress),
            Self::Gang { checkpoint } => {
                let every = checkpoint.then_some(CHECKPOINT_S);
                gang::simulate(case, every, &users, progress)
            }
            Self::Fluid => {
                let mut fluid = Fluid::new(users.clone(), 1);
                malleable::simulate(case, &mut fluid, &users, progress)
            }
            Self::Even => planned(case, &Production::even(case), progress)?,
            Self::Document(file) => {
                let named = || file.display().to_string();
                let (policy, _) = policy_of(file)?;
                planned(case, &policy, progress).with_context(named)?
            }
        })
    }
}

fn planned(case: &Case, policy: &Policy, progress: Progress) -> anyhow::Result<Books> {
    let mut planner = Production::new(case, policy)?;
    let fairness = Production::fairness(policy);
    Ok(malleable::simulate(case, &mut planner, &fairness, progress))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_yardstick_and_all_else_a_file() {
        for (name, chosen) in NAMES {
            assert_eq!(name.parse::<Chosen>().unwrap(), chosen);
            assert_eq!(chosen.to_string(), name);
        }
        let file: Chosen = "policies/easy".parse().unwrap();
        assert_eq!(file, Chosen::Document("policies/easy".into()));
    }
}
