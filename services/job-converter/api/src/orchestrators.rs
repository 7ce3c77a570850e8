//! Wire types of orchestrators: the map of all their work, and the shares that they hold. A *share*
//! is an allocation of an orchestrator's work.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, Exit, NodeName, Size, Timestamp, UserName, WorkId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Publication of an orchestrator; one scope each. Keys are ids of shares, and `work/` with the id
/// of a piece of work.
pub const ORCHESTRATED: &str = "orchestrated";
/// Publication name; keys are names of orchestrators.
pub const ORCHESTRATORS: &str = "orchestrators";

/// `POST /v1/orchestrators`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrchestratorOrder {
    /// Same form as names of users.
    pub name: UserName,
    /// Users whose shares may be charged. At most 1,000.
    #[serde(default)]
    pub users: Vec<UserName>,
    /// Any user may be charged, and `users` is empty. Default false.
    #[serde(default)]
    pub anyone: bool,
}

/// Answer to `POST /v1/orchestrators`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrchestratorCreated {
    pub name: UserName,
    /// Token of the orchestrator: it may write its own map and follow its own shares.
    pub token: String,
    pub revision: u64,
}

/// `PUT /v1/orchestrators/{name}/publication`: all work of one orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkMap<E> {
    /// Chosen when the orchestrator starts without memory; never reused. At most 128 characters.
    pub lineage: String,
    /// Number of this map, from 1; grows within a lineage.
    pub sequence: u64,
    /// The `cursor` of the allocation set that was read last. A vacating share in it that has no
    /// process in the map is returned. Without a cursor, such a share must be named as complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Entries by id, chosen by the orchestrator; at most 10,000.
    pub work: BTreeMap<String, E>,
}

/// One entry of the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkEntry {
    pub kind: EntryKind,
    pub state: EntryState,
    /// User that is charged; surrounding spaces are ignored.
    #[serde(deserialize_with = "deserialize_trimmed")]
    pub owner: UserName,
    /// Default: that of the policy for its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Memory of one process, in GB; for a reservation, the least the node must have. 0: unset.
    /// Default 4; for a reservation any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<u64>,
    /// Replaces `memory_gb` for other resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Work items run in parallel in one process; 0: unset. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_items: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_done: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_failed: u64,
    /// Jobs only. Default 10, at arrival and later; other work has one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<u64>,
    /// Mean milliseconds of one work item. Default: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_per_item_ms: Option<u64>,
    /// Age for the order of service. Default: when its entry was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_at: Option<Timestamp>,
    /// Nodes it may use. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
    /// Service instances only: instances of one service are spread over nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Stored and not used.
    #[serde(
        default = "default_user_priority",
        skip_serializing_if = "is_default_user_priority"
    )]
    pub user_priority: u32,
    /// Program that Hayward runs in each share. Without it, the orchestrator starts its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchOrder>,
    /// By share, as the orchestrator knows them. At most 1,000.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub processes: BTreeMap<AllocationId, ProcessReport>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// Many work items, any number of processes.
    Job,
    /// One process of a service.
    Service,
    /// One arbitrary process of a user.
    ManagedReservation,
    /// A node held for a user.
    Reservation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryState {
    /// Waits for resources.
    Waiting,
    Assigned,
    Initialising,
    Running,
    /// It requests nothing more, and its last processes end.
    Completing,
    Completed,
}

/// Program run by Hayward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LaunchOrder {
    /// Argument vector; no shell is involved.
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
}

/// A process in a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessReport {
    pub state: ReportedState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Start and end of the initialization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialising_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialised_at: Option<Timestamp>,
    /// Milliseconds spent on unfinished work items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub investment_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportedState {
    Starting,
    Initialising,
    Running,
    Stopping,
    // States of an ended process:
    Stopped,
    Failed,
    Killed,
    Abandoned,
    LaunchFailed,
    InitialisationFailed,
    InitialisationTimedOut,
}

impl ReportedState {
    /// True when the process has ended.
    pub fn is_complete(self) -> bool {
        !matches!(
            self,
            Self::Starting | Self::Initialising | Self::Running | Self::Stopping
        )
    }
}

/// Answer to a map.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapAnswer {
    /// False: the map changed nothing; `reason` tells why.
    pub applied: bool,
    /// `empty`, `stale`, `sequence_used`, `superseded` or `too_early`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// A new lineage took over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takeover: bool,
    /// Sequence of the last accepted map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    pub counts: MapCounts,
    /// Refused entries and their faults; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedEntry>,
    /// Shares in the map that do not belong to its work; ignored. The first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_shares: Vec<AllocationId>,
    /// The revision at which the map is visible.
    pub revision: u64,
}

/// Numbers of entries by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapCounts {
    pub new: usize,
    pub changed: usize,
    pub unchanged: usize,
    /// Changed entries that request nothing any more.
    pub completed: usize,
    /// Entries that are no longer named.
    pub gone: usize,
    pub refused: usize,
    /// Returned shares.
    pub vacated: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedEntry {
    pub work: String,
    /// `invalid`, `not_authorised` or `too_much_work`.
    pub reason: String,
    /// JSON pointer into the map.
    pub pointer: String,
    pub detail: String,
}

/// One entry of the allocation set. A new key is an added share; `vacate` asks to return it; a
/// removed key is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Allotted {
    Share(ShareEntry),
    Work(WorkStanding),
}

/// Quanta on one node, for one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareEntry {
    pub id: AllocationId,
    /// Id chosen by the orchestrator.
    pub work: String,
    pub node: NodeName,
    /// Quanta held.
    pub order: u64,
    pub size: Size,
    /// State as in `allocations`: `assigned` until its process is reported as running.
    pub state: String,
    pub granted_at: Timestamp,
    /// Set when the share must be returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacate: Option<Leave>,
    /// Set when it has ended; listed until a map no longer names its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// Order to return a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Leave {
    /// Reason as in `allocations`.
    pub reason: String,
    pub detail: String,
    pub since: Timestamp,
    /// Its node is unreachable: its quanta are released already, and no answer is expected.
    #[serde(default)]
    pub purge: bool,
}

/// State of a piece of work in the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkStanding {
    /// Id chosen by the orchestrator.
    pub work: String,
    /// Work id in the fleet; absent for an entry that was refused from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<WorkId>,
    pub state: Standing,
    /// Shares it holds, without vacating ones.
    pub held: u64,
    /// Why it does not have more, or was refused: one of the scheduler's reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Fault of its entry, as a pointer into the map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Waiting,
    /// It has shares.
    Held,
    /// It requests nothing any more.
    Over,
    Refused,
    #[serde(other)]
    Unknown,
}

/// `GET /v1/orchestrators/{name}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrchestratorView {
    pub name: UserName,
    pub users: Vec<UserName>,
    pub anyone: bool,
    pub created_at: Timestamp,
    /// Lineage of the last accepted map; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<Timestamp>,
    /// Milliseconds since the last accepted map, at the time of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// No map for longer than the setting `orchestrator_silent_ms`; its work continues.
    #[serde(default)]
    pub silent: bool,
    /// Consequence, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default)]
    pub counts: OrchestratorCounts,
    /// Refused entries of its last map; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<RefusedEntry>,
}

/// Numbers of its work and shares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrchestratorCounts {
    pub waiting: u64,
    pub held: u64,
    pub over: u64,
    pub refused: u64,
    /// Shares it holds, including vacating ones.
    pub shares: u64,
    pub leaving: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrchestratorList {
    /// By name.
    pub orchestrators: Vec<OrchestratorView>,
    /// Cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    pub revision: u64,
}

fn deserialize_trimmed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UserName, D::Error> {
    let text = String::deserialize(deserializer)?;
    UserName::new(text.trim()).map_err(Error::custom)
}

const DEFAULT_USER_PRIORITY: u32 = 100;

fn default_user_priority() -> u32 {
    DEFAULT_USER_PRIORITY
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_default_user_priority(number: &u32) -> bool {
    *number == DEFAULT_USER_PRIORITY
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
