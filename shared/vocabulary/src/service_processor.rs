//! The processor of a service process: its deployment, role and partner. Role and partner are
//! fields of their own and are never parsed from an id.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::WorkId;

/// A processor: one process of a service with a stable identity, which survives restarts and moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Processor {
    /// Identity of one deployment of the service. It survives restarts of Hayward, and changes when
    /// the service is deployed again.
    pub deployment: String,
    pub role: Role,
    /// If false, a request for a certain host counts as a request for any host.
    #[serde(default)]
    pub host_affinity: bool,
    /// Its retries are exhausted, and the service goes on without it.
    #[serde(default)]
    pub failed: bool,
}

/// Role of a processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Role {
    Active,
    /// Takes over from an active, and is never on its host.
    Standby {
        of: WorkId,
        replica: u32,
    },
}

/// Anti-affinity: work that must not share a host (or a fault domain) with others of its group,
/// such as an active and its standbys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Apart {
    /// Id of the active one.
    pub group: WorkId,
    /// Label of nodes that must differ; absent: the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_label: Option<String>,
}
