//! Schedulers that can be selected by name: reference models for comparison, and the planner of
//! real fleets with the simplest policy documents.

use std::{collections::BTreeMap, fmt};

use crate::{
    batch::{self, Discipline},
    case::{Case, Progress},
    gang::{self, Preemption},
    malleable::{self, Fluid, PolicyError, ProductionPlanner},
    measure::{Fairness, Results},
    trace::{Node, Workload},
};

/// Seconds of running after which a gang has a checkpoint.
const CHECKPOINT_S: u64 = 3600;
const HOUR_S: u64 = 3600;
/// Weights of the classes of gaia2014, for the baselines that divide by class first.
const CLASS_WEIGHTS: [(&str, u64); 3] = [("interactive", 200), ("normal", 100), ("besteffort", 25)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    Batch(Discipline),
    /// Fluid shares. The number is how many processes a user must be below the fair share before
    /// preemption.
    Fluid(u64),
    Gang(Preemption),
    /// The planner of real fleets.
    Planner,
}

/// A scheduler with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Baseline {
    name: &'static str,
    model: Model,
    /// Whether shares are divided by class first, by weight.
    weighted: bool,
}

const fn unweighted(name: &'static str, model: Model) -> Baseline {
    Baseline {
        name,
        model,
        weighted: false,
    }
}

const fn weighted(name: &'static str, model: Model) -> Baseline {
    Baseline {
        name,
        model,
        weighted: true,
    }
}

const fn gang(checkpoint_s: Option<u64>, protected_s: Option<u64>) -> Model {
    Model::Gang(Preemption {
        checkpoint_s,
        protected_s,
    })
}

/// All schedulers that can be selected by name.
pub const ALL: [Baseline; 16] = [
    unweighted("fcfs", Model::Batch(Discipline::Fcfs)),
    unweighted("easy", Model::Batch(Discipline::Easy)),
    weighted("easy-weighted", Model::Batch(Discipline::Easy)),
    unweighted("fair-easy", Model::Batch(Discipline::FairEasy)),
    unweighted("fluid", Model::Fluid(1)),
    unweighted("fluid-2", Model::Fluid(2)),
    unweighted("fluid-4", Model::Fluid(4)),
    weighted("fluid-weighted", Model::Fluid(1)),
    unweighted("gang", gang(Some(CHECKPOINT_S), None)),
    unweighted("gang-no-checkpoint", gang(None, None)),
    unweighted("gang-1h", gang(None, Some(HOUR_S))),
    unweighted("gang-4h", gang(None, Some(4 * HOUR_S))),
    unweighted("gang-12h", gang(None, Some(12 * HOUR_S))),
    unweighted("gang-24h", gang(None, Some(24 * HOUR_S))),
    unweighted("even", Model::Planner),
    weighted("even-weighted", Model::Planner),
];

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Baseline {
    pub fn find_by_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|baseline| baseline.name == name)
    }

    /// Returns the baseline with the planner of real fleets that corresponds to this model. Returns
    /// `None` if there is no such baseline.
    pub fn planner_equivalent(self) -> Option<Self> {
        let is_equivalent = |baseline: &Self| {
            baseline.model == Model::Planner && baseline.weighted == self.weighted
        };
        ALL.into_iter()
            .find(is_equivalent)
            .filter(|_| self.model == Model::Fluid(1))
    }

    /// Returns the input of a simulation with this scheduler.
    pub fn case<'a>(self, workload: &'a Workload, nodes: &'a [Node]) -> Case<'a> {
        match self.model {
            Model::Batch(_) | Model::Gang(_) => Case::rigid(workload, nodes),
            Model::Fluid(_) | Model::Planner => Case::malleable(workload, nodes),
        }
    }

    fn fairness(self) -> Fairness {
        if !self.weighted {
            return Fairness::Users;
        }
        let weights = CLASS_WEIGHTS.map(|(name, weight)| (name.to_owned(), weight));
        Fairness::Classes(BTreeMap::from(weights))
    }

    /// Runs the simulation. Only the planner can fail, if a class of the trace is not in its
    /// policy.
    pub fn simulate(self, case: &Case, progress: Progress) -> Result<Results, PolicyError> {
        let fairness = self.fairness();
        Ok(match self.model {
            Model::Batch(discipline) => batch::simulate(case, discipline, &fairness, progress),
            Model::Gang(preemption) => gang::simulate(case, preemption, &fairness, progress),
            Model::Fluid(min_deficit) => {
                let mut fluid = Fluid::new(fairness.clone(), min_deficit);
                malleable::simulate(case, &mut fluid, &fairness, progress)?
            }
            Model::Planner => {
                let policy = match &fairness {
                    Fairness::Users => ProductionPlanner::even(case),
                    Fairness::Classes(weights) => ProductionPlanner::weighted(case, weights),
                };
                let mut planner = ProductionPlanner::new(case, &policy)?.with_current_entitlement();
                malleable::simulate(case, &mut planner, &fairness, progress)?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_selects_its_own_baseline() {
        for baseline in ALL {
            assert_eq!(
                Baseline::find_by_name(&baseline.to_string()),
                Some(baseline)
            );
        }
        assert_eq!(Baseline::find_by_name("policies/easy"), None);
    }

    #[test]
    fn a_model_has_a_corresponding_policy_of_the_planner() {
        let corresponding = |name| {
            let equivalent = Baseline::find_by_name(name).and_then(Baseline::planner_equivalent);
            equivalent.map(|baseline| baseline.to_string())
        };
        assert_eq!(corresponding("fluid").as_deref(), Some("even"));
        assert_eq!(
            corresponding("fluid-weighted").as_deref(),
            Some("even-weighted")
        );
        assert_eq!(corresponding("fluid-2"), None);
    }
}
