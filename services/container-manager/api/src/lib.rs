//! The words of container-manager: the entries of its publications `containers` (followed by
//! rm-scheduler) and `desired` (one scope per node, followed by that node's agent), and the report
//! an agent PUTs.

mod logs;
pub mod placements;

use hayward_vocabulary::{
    AllocationId, Exit, Launch, NodeName, Size, Timestamp, UserName, WorkId, WorkKind,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use logs::{WorkLogs, WorkPiece};

/// Name of the publication; its keys are allocation ids.
pub const CONTAINERS: &str = "containers";
/// Name of the publication; its scopes are node names, its keys allocation ids.
pub const DESIRED: &str = "desired";
/// Name of the publication; its keys are ids of requests.
pub const REQUESTS: &str = "requests";

/// One entry of `containers`. A container bears the id of its allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerEntry {
    pub id: AllocationId,
    pub work: WorkId,
    pub node: NodeName,
    pub state: ContainerState,
    /// By the node's clock; shown, never compared (R4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Why it is as it is, in the words of its node: above all why it does not end (F31).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Present when `state` is `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// In the node's desired set; the agent has not answered yet.
    Ordered,
    /// The agent has journalled its intent.
    Launching,
    Running,
    /// Asked to end.
    Stopping,
    /// Proven gone, or given up with its node. Terminal.
    Ended,
    #[serde(other)]
    Unknown,
}

/// One entry of `desired/{node}`: what the agent should make true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredEntry {
    pub id: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub incarnation: u64,
    /// Writer's epoch of container-manager; an agent refuses an older one than it has seen (I7).
    pub epoch: u64,
    pub goal: Goal,
    /// The agent ends it by itself when its lease runs out (I4, W7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Limits of the container.
    pub size: Size,
    pub launch: Launch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    Run,
    /// End it, gracefully first, and keep its exit until the entry goes.
    Stop,
    /// A word of a later version: hold, and report.
    #[serde(other)]
    Unknown,
}

/// One entry of `requests`, followed by rm-scheduler: a second place for work that runs, before the
/// first one is given up (container placement, 3.3). Withdrawn when it is no longer wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestEntry {
    pub id: String,
    pub work: WorkId,
    /// What is to be replaced; absent where nothing of the work stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<AllocationId>,
    /// Absent: any host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    /// Hosts that will not do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<NodeName>,
    /// The host need not be one of the machines that its owner has listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// `PUT /v1/nodes/{node}/report`: all containers the agent knows, every time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    #[schema(min_length = 1, max_length = 128)]
    pub boot_id: String,
    #[schema(min_length = 1, max_length = 128)]
    pub agent_instance: String,
    /// Counts reports of this agent instance, so that an older one that arrives late is ignored.
    pub sequence: u64,
    /// Cursor of the desired set this report answers; absent until one was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// False until the agent has looked through its journal: an empty report is not an empty node.
    pub complete: bool,
    #[schema(max_items = 4096)]
    pub containers: Vec<ContainerReport>,
}

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
    /// Why it is as it is, for people: above all why it does not end (F31).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportAnswer {
    pub revision: u64,
}

/// `PUT /v1/nodes/{node}/output`: new output of containers on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputReport {
    #[schema(max_items = 256)]
    pub chunks: Vec<OutputChunk>,
}

/// A piece of what a container wrote, both streams as they came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputChunk {
    pub id: AllocationId,
    /// Bytes of output before this piece.
    pub offset: u64,
    /// Text; bytes that are not UTF-8 have been replaced.
    #[schema(max_length = 65_536)]
    pub text: String,
    /// Bytes of output this piece stands for (may differ from the text's length).
    pub bytes: u64,
}

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
    /// The `cursor` of the next page, where there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The same, by the name it had first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `GET /v1/containers/{id}/logs`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    pub id: AllocationId,
    /// Bytes of output before `text`; the oldest output is dropped first.
    pub offset: u64,
    pub text: String,
    /// Ask again from here.
    pub next_offset: u64,
    pub ended: bool,
}
