//! The strategy that decides which nodes are blocked automatically: a name and its parameters.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Body of `PUT /v1/blocklist/strategy`. Absent parameters have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StrategyOrder {
    /// One of `none`, `failure-count`, `cause-class`, `start-failures`, `flapping`, `slow-task`,
    /// `chain`.
    #[schema(
        pattern = "^(none|failure-count|cause-class|start-failures|flapping|slow-task|chain)$"
    )]
    pub name: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub parameters: BTreeMap<String, Value>,
}

/// The strategy with all its parameters, defaults included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StrategyView {
    pub name: String,
    #[schema(value_type = Object)]
    pub parameters: BTreeMap<String, Value>,
    /// Caller that set the strategy. Absent if it comes from the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    pub revision: u64,
}
