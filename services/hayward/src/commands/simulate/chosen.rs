//! The policy that a person names: one of the yardsticks, or a document for the real planner.

use std::path::PathBuf;
use std::{convert::Infallible, fmt, str::FromStr};

use anyhow::Context as _;
use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_simulator::case::Progress;
use hayward_rm_scheduler_simulator::malleable::{self, Production};
use hayward_rm_scheduler_simulator::measure::Books;
use hayward_rm_scheduler_simulator::{Case, Node, Workload, Yardstick};
use serde_json::Value;

use crate::commands::submit::{text_of, typed};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    Named(Yardstick),
    Document(PathBuf),
}

impl FromStr for Chosen {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Yardstick::named(text).map_or_else(|| Self::Document(text.into()), Self::Named))
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(yardstick) => yardstick.fmt(f),
            Self::Document(file) => file.display().fmt(f),
        }
    }
}

impl Chosen {
    pub fn case<'a>(&self, workload: &'a Workload, nodes: &'a [Node]) -> Case<'a> {
        match self {
            Self::Named(yardstick) => yardstick.case(workload, nodes),
            Self::Document(_) => Case::malleable(workload, nodes),
        }
    }

    pub fn simulate(&self, case: &Case, progress: Progress) -> anyhow::Result<Books> {
        match self {
            Self::Named(yardstick) => Ok(yardstick.simulate(case, progress)?),
            Self::Document(file) => {
                let named = || file.display().to_string();
                let policy = text_of(file)
                    .and_then(|text| read(&text))
                    .with_context(named)?;
                planned(case, &policy, progress).with_context(named)
            }
        }
    }
}

fn planned(case: &Case, policy: &Policy, progress: Progress) -> anyhow::Result<Books> {
    let mut planner = Production::new(case, policy)?;
    let fairness = Production::fairness(policy);
    Ok(malleable::simulate(case, &mut planner, &fairness, progress))
}

/// A policy alone, or what `hayward policy show` prints.
fn read(text: &str) -> anyhow::Result<Policy> {
    let mut value: Value = yaml_serde::from_str(text).context("this is not YAML")?;
    if let Some(inner) = value.get_mut("policy") {
        value = inner.take();
    }
    typed(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_yardstick_and_all_else_a_file() {
        let Ok(named) = "easy".parse::<Chosen>();
        assert!(matches!(named, Chosen::Named(_)), "{named:?}");
        assert_eq!(named.to_string(), "easy");
        let Ok(file) = "policies/easy".parse::<Chosen>();
        assert_eq!(file, Chosen::Document("policies/easy".into()));
    }

    #[test]
    fn a_document_is_a_policy_alone_or_as_it_is_shown() {
        let alone = serde_json::to_value(Policy::default()).unwrap();
        let shown = serde_json::json!({ "generation": 3, "policy": alone });
        for text in [alone.to_string(), shown.to_string()] {
            assert_eq!(read(&text).unwrap(), Policy::default());
        }
        assert!(read("pools: 3").is_err());
    }
}
