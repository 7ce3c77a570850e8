//! Scopes, which are the grants of a token.

use std::fmt;
use std::str::FromStr;

use hayward_vocabulary::{NodeName, UserName, WorkId};
use serde::{Deserialize, Serialize};

/// One grant. Scopes are compared exactly (S5).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    /// May submit work, and see and change its own work.
    Submitter,
    /// May act on nodes, blocks, queues and all work.
    Operator,
    /// May read everything and change nothing.
    Viewer,
    /// May only read the audit records.
    Auditor,
    /// May only read the metrics of processes.
    Scraper,
    /// The agent of one node.
    Agent(NodeName),
    /// One of the services of the fleet, by name.
    Service(String),
    /// May lease and report the tasks of one job.
    Runner(WorkId),
    /// May manage the worker pool of this name.
    Owner(String),
    /// May manage its own work, and follow its own shares.
    Orchestrator(UserName),
}

/// A text that is not a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a scope")]
pub struct InvalidScope(pub String);

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submitter => f.write_str("submitter"),
            Self::Operator => f.write_str("operator"),
            Self::Viewer => f.write_str("viewer"),
            Self::Auditor => f.write_str("auditor"),
            Self::Scraper => f.write_str("scraper"),
            Self::Agent(node) => write!(f, "agent:{node}"),
            Self::Service(name) => write!(f, "service:{name}"),
            Self::Runner(work) => write!(f, "runner:{work}"),
            Self::Owner(pool) => write!(f, "owner:{pool}"),
            Self::Orchestrator(name) => write!(f, "orchestrator:{name}"),
        }
    }
}

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        let invalid = || InvalidScope(text.to_owned());
        let Some((kind, name)) = text.split_once(':') else {
            return match text {
                "submitter" => Ok(Self::Submitter),
                "operator" => Ok(Self::Operator),
                "viewer" => Ok(Self::Viewer),
                "auditor" => Ok(Self::Auditor),
                "scraper" => Ok(Self::Scraper),
                _ => Err(invalid()),
            };
        };
        if name.is_empty() {
            return Err(invalid());
        }
        match kind {
            "agent" => name.parse().map(Self::Agent).map_err(|_| invalid()),
            "service" => Ok(Self::Service(name.to_owned())),
            "runner" => name.parse().map(Self::Runner).map_err(|_| invalid()),
            "owner" => Ok(Self::Owner(name.to_owned())),
            "orchestrator" => name.parse().map(Self::Orchestrator).map_err(|_| invalid()),
            _ => Err(invalid()),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = InvalidScope;
    fn try_from(text: String) -> Result<Self, InvalidScope> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}
