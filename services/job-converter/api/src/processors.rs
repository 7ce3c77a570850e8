//! The processors of a service: what its submitter says about them, and how each stands (container
//! placement, sections 2, 10 and 11).

use hayward_vocabulary::{AllocationId, NodeName, Role, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How failures of its processes are counted. Naming it makes a service one that can end: a process
/// that ends with status 0 has completed, and one that fails too often has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetriesSubmission {
    /// Retries of one process; 0: none, -1: always and without counting. Default 8.
    pub count: i32,
    /// A failure this long after the one before is the first again. Default 300,000.
    pub window_ms: u64,
    /// The last retry waits so long where it goes to a certain host. Default 360,000.
    pub last_delay_ms: u64,
    /// The service fails with its first process that has no retry left; else it goes on without
    /// it, unhealthy. Default true.
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

/// What of a service view is about its processors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deployment {
    /// Identity of this deployment: placements name it, and it is never used again.
    pub deployment: String,
    /// Raised by each change of the service; its `ETag`.
    #[serde(default)]
    pub generation: u64,
    /// Processes of older deployments that have not ended yet.
    #[serde(default)]
    pub outdated: u64,
    /// Every processor runs, or has completed.
    pub healthy: bool,
    pub host_affinity: bool,
    pub standbys: u32,
    /// The label of nodes by which an active and its standbys are kept apart; absent: the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_domain_label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<RetriesSubmission>,
    /// The actives, then what stands by for them.
    pub processors: Vec<ProcessorView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorView {
    /// As its process knows it: `0`, or `0-0` for the first standby of `0`.
    pub processor: String,
    pub work: WorkId,
    pub role: Role,
    pub state: ProcessorState,
    /// Where it is; while it is nowhere, where it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    /// What stands of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// The host that is asked for now, while it has no place and a certain one is wanted.
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
    /// It has no place.
    Waiting,
    /// It has a place and is not up yet.
    Pending,
    Running,
    /// Its retries are exhausted; the service goes on without it.
    Failed,
    /// It ended with status 0.
    Completed,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureView {
    /// In a row, each less than a window after the one before.
    pub count: u32,
    pub last_at: Timestamp,
    /// How long the retry after it was held back.
    pub last_delay_ms: u64,
}

/// An active on its way to the host of what stands by for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailoverView {
    /// What it lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<AllocationId>,
    /// Hosts that were tried; none of them twice.
    pub used: Vec<NodeName>,
    /// The standby that has to end first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WorkId>,
}
