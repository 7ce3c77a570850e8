//! Processors of a service: the settings of the submission, and the state of each. A processor is
//! one managed process with a stable identity.

use hayward_vocabulary::{AllocationId, NodeName, Role, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Counting of failures. With it a service can end: a process with exit status 0 has completed, and
/// one that fails too often has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetriesSubmission {
    /// Retries of one process; 0: none, -1: unlimited and uncounted. Default 8.
    pub count: i32,
    /// Milliseconds after which a failure counts as the first again. Default 300,000.
    pub window_ms: u64,
    /// Milliseconds before the last retry, when it requests one host. Default 360,000.
    pub last_delay_ms: u64,
    /// The service fails with the first process without retries. Otherwise it continues without it,
    /// unhealthy. Default true.
    pub fail_service: bool,
}

impl Default for RetriesSubmission {
    fn default() -> Self {
        Self {
            count: 8,
            window_ms: 300_000,
            last_delay_ms: 360_000,
            fail_service: true,
        }
    }
}

/// Processors of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deployment {
    /// Id of this deployment, used by placements and never reused.
    pub deployment: String,
    /// Incremented by each change of the service; its `ETag`.
    #[serde(default)]
    pub generation: u64,
    /// Live processes of older deployments.
    #[serde(default)]
    pub outdated: u64,
    /// Every processor runs or has completed.
    pub healthy: bool,
    pub host_affinity: bool,
    pub standbys: u32,
    /// Node label that separates an active from its standbys; absent: the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_domain_label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<RetriesSubmission>,
    /// Actives, then their standbys.
    pub processors: Vec<ProcessorView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorView {
    /// Name known to its process: `0`, or `0-0` for the first standby of `0`.
    pub processor: String,
    pub work: WorkId,
    pub role: Role,
    pub state: ProcessorState,
    /// Current host; without one, the last host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    /// Current allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// Requested host, while it has no allocation and one host is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_host: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<FailureView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessorState {
    /// It has no allocation.
    Waiting,
    /// It has an allocation and does not run yet.
    Pending,
    Running,
    /// Its retries are exhausted; the service continues without it.
    Failed,
    /// It ended with status 0.
    Completed,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureView {
    /// Consecutive failures, each within a window of the one before.
    pub count: u32,
    pub last_at: Timestamp,
    /// Milliseconds the last retry was held back.
    pub last_delay_ms: u64,
}

/// Failover of an active to the host of a standby.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailoverView {
    /// Lost allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<AllocationId>,
    /// Hosts tried in this failover.
    pub used: Vec<NodeName>,
    /// Standby that must end first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WorkId>,
}
