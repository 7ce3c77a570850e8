//! Types of the container-manager API: entries of its publications, and reports of agents.
//!
//! rm-scheduler follows `containers` and `requests`. The agent of each node follows its scope of
//! `desired`.

pub mod placements;
mod work_logs;

use hayward_vocabulary::{
    AllocationId, Exit, Launch, NodeName, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use work_logs::{WorkLogChunk, WorkLogs};

/// Name of the publication of all containers; its keys are allocation ids.
pub const CONTAINERS: &str = "containers";
/// Name of the publication of desired containers; its scopes are node names, its keys allocation
/// ids.
pub const DESIRED: &str = "desired";
/// Name of the publication of requests for a second allocation; its keys are ids of requests.
pub const REQUESTS: &str = "requests";

/// One entry of `containers`. A container has the id of its allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerEntry {
    pub id: AllocationId,
    pub work: WorkId,
    pub node: NodeName,
    pub state: ContainerState,
    /// Start time by the clock of the node. For display only (R4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Reason for its state as reported by its node, for example why it does not end (F31).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Present if `state` is `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// In the desired set of its node; the agent has not reported it yet.
    Ordered,
    /// The agent has recorded in its journal that it will start it.
    Launching,
    Running,
    /// Ordered to stop. The end is not proven yet.
    Stopping,
    /// Final state: the end is proven, or the node was declared lost.
    Ended,
    #[serde(other)]
    Unknown,
}

/// One entry of `desired/{node}`: a container that the agent should start or stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredEntry {
    pub id: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub incarnation: u64,
    /// Term of the container-manager that wrote the entry. An agent ignores entries of terms older
    /// than one that it has seen (I7).
    pub epoch: u64,
    pub goal: Goal,
    /// True if the agent ends the container when the lease of the node expires (I4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Resource limits of the container.
    pub size: Size,
    pub launch: Launch,
}

/// The state that the agent should bring a container to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    Run,
    /// Stop the container gracefully, and report its exit until the entry is removed.
    Stop,
    /// A goal of a later version. The agent leaves the container as it is, and reports it.
    #[serde(other)]
    Unknown,
}

/// One entry of `requests`: a request to rm-scheduler for a second allocation of a process before
/// the first one is released. It is removed when it is no longer needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestEntry {
    pub id: String,
    pub work: WorkId,
    /// The container to replace. Absent if the process has no container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<AllocationId>,
    /// Requested host. Absent if every host is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    /// Hosts on which it must not be granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<NodeName>,
    /// True if the host may be outside the `machines` of the service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// Body of `PUT /v1/nodes/{node}/report`. Each report has all containers of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    #[schema(min_length = 1, max_length = 128)]
    pub boot_id: String,
    #[schema(min_length = 1, max_length = 128)]
    pub agent_instance: String,
    /// Number of the report within this agent instance. A report that arrives after a later one is
    /// ignored.
    pub sequence: u64,
    /// Cursor of the desired set that the agent had seen when it wrote the report. Absent until the
    /// agent has received one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// False until the agent has read its journal. Only a complete report proves absence.
    pub complete: bool,
    #[schema(max_items = 4096)]
    pub containers: Vec<ContainerReport>,
}

/// State of one container in a report of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerReport {
    pub id: AllocationId,
    pub incarnation: u64,
    pub state: ContainerState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Reason for its state, for example why it does not end (F31).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportAnswer {
    /// Revision at which the report is applied.
    pub revision: u64,
}

/// Body of `PUT /v1/nodes/{node}/output`: new output of containers on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputReport {
    #[schema(max_items = 256)]
    pub chunks: Vec<OutputChunk>,
}

/// A chunk of output of a container. It has both streams, in the order of writing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputChunk {
    pub id: AllocationId,
    /// Number of bytes of output before this chunk.
    pub offset: u64,
    /// The output as text. Bytes that are not UTF-8 are replaced.
    #[schema(max_length = 65_536)]
    pub text: String,
    /// Number of bytes of output in this chunk. May differ from the length of `text`.
    pub bytes: u64,
}

/// One container in a response: its published entry, and details for its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerView {
    #[serde(flatten)]
    pub entry: ContainerEntry,
    pub user: UserName,
    pub incarnation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    pub ordered_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerList {
    pub containers: Vec<ContainerView>,
    pub revision: u64,
    /// The `cursor` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Deprecated name of `next_cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Response of `GET /v1/containers/{id}/logs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    pub id: AllocationId,
    /// Number of bytes of output before `text`. The oldest output is deleted first.
    pub offset: u64,
    pub text: String,
    /// The `offset` of the next request.
    pub next_offset: u64,
    /// True if the container has ended.
    pub ended: bool,
}
