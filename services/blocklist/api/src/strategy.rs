//! The strategy in force: a name and its parameters.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// `PUT /v1/blocklist/strategy`. Parameters that are left out have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StrategyOrder {
    /// `none`, `failure-count`, `cause-class`, `start-failures`, `flapping`, `slow-task`, `chain`.
    #[schema(
        pattern = "^(none|failure-count|cause-class|start-failures|flapping|slow-task|chain)$"
    )]
    pub name: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub parameters: BTreeMap<String, Value>,
}

/// The strategy with all its parameters, those left out among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StrategyView {
    pub name: String,
    #[schema(value_type = Object)]
    pub parameters: BTreeMap<String, Value>,
    /// Who chose it; absent where it is the one of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    pub revision: u64,
}
