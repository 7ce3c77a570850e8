//! What orchestrators write and read: the map of all their work, and the set of shares they hold
//! (fair-share scheduling, 7 and 13).

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, Exit, NodeName, Size, Timestamp, UserName, WorkId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Name of the publication an orchestrator follows, one scope for each. Its keys are the ids of
/// shares, and `work/` with the id of a piece of work.
pub const ORCHESTRATED: &str = "orchestrated";
/// Name of the publication; its keys are names of orchestrators.
pub const ORCHESTRATORS: &str = "orchestrators";

/// `POST /v1/orchestrators`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrchestratorOrder {
    /// As users' names are written.
    pub name: UserName,
    /// Whose shares may be charged for its work. At most 1,000.
    #[serde(default)]
    pub users: Vec<UserName>,
    /// Anybody's may, and `users` is empty. Default false.
    #[serde(default)]
    pub anyone: bool,
}

/// Answer to `POST /v1/orchestrators`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrchestratorCreated {
    pub name: UserName,
    /// For the orchestrator: it may write its own map and follow its own shares, nothing else.
    pub token: String,
    pub revision: u64,
}

/// `PUT /v1/orchestrators/{name}/publication`: all work of one orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkMap<E> {
    /// Chosen when the orchestrator begins without memory, never used again. At most 128
    /// characters.
    pub lineage: String,
    /// Of this map, from 1; only grows within a lineage.
    pub sequence: u64,
    /// The `cursor` of the allocation set as it was last read: a share that it says is to be given
    /// back, and in which the map names no process, is given back. Without it such a share has to
    /// be named as complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// By an id that the orchestrator chooses; at most 10,000 entries.
    pub work: BTreeMap<String, E>,
}

/// One piece of work in the map of an orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkEntry {
    pub kind: EntryKind,
    pub state: EntryState,
    /// Whose share is charged. Blanks around it do not count.
    #[serde(deserialize_with = "trimmed")]
    pub owner: UserName,
    /// Default: that of the policy for its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Of one process, in GB; of a reservation, the least the machine must have. 0 means unset.
    /// Default 4; for a reservation any machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<u64>,
    /// In place of `memory_gb` where memory is not all that is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Work items run at the same time in one process; 0 means unset. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_items: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_done: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_failed: u64,
    /// Of a job. Default 10, at arrival and later. All other work has one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<u64>,
    /// Mean milliseconds of one work item. Default: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_per_item_ms: Option<u64>,
    /// The age it is served by. Default: when its entry was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_at: Option<Timestamp>,
    /// Nodes it may use. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
    /// Of service instances: those of one service are spread over nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Carried, and not used.
    #[serde(default = "ordinary", skip_serializing_if = "is_ordinary")]
    pub user_priority: u32,
    /// What Hayward runs in each share. Without it the orchestrator starts its processes itself.
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
    /// One process, of a service.
    Service,
    /// One arbitrary process of a user.
    ManagedReservation,
    /// A machine held for a user.
    Reservation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryState {
    /// For resources.
    Waiting,
    Assigned,
    Initialising,
    Running,
    /// It asks for nothing more, and its last processes end.
    Completing,
    Completed,
}

/// What Hayward runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LaunchOrder {
    /// Argument vector, never a shell line.
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
    /// When it began to initialise, and when it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialising_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialised_at: Option<Timestamp>,
    /// Milliseconds spent on the work items it has in flight.
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
    // Complete:
    Stopped,
    Failed,
    Killed,
    Abandoned,
    LaunchFailed,
    InitialisationFailed,
    InitialisationTimedOut,
}

impl ReportedState {
    /// There is no process any more.
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
    /// False: the map changed nothing, and `reason` says why.
    pub applied: bool,
    /// `empty`, `stale`, `sequence_used`, `superseded` or `too_early`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// A new lineage took over from another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takeover: bool,
    /// Of the last map that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    pub counts: MapCounts,
    /// Entries that were refused, and what is wrong with them; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedEntry>,
    /// Shares the map names that are not its work's; they were passed over. The first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_shares: Vec<AllocationId>,
    /// The revision at which it is visible to everyone.
    pub revision: u64,
}

/// Entries of a map, and what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapCounts {
    pub new: usize,
    pub changed: usize,
    pub unchanged: usize,
    /// Of the changed: they ask for nothing any more.
    pub completed: usize,
    /// Not named any more.
    pub gone: usize,
    pub refused: usize,
    /// Shares given back.
    pub vacated: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedEntry {
    pub work: String,
    /// `invalid`, `not_authorised` or `too_much_work`.
    pub reason: String,
    /// Into the map.
    pub pointer: String,
    pub detail: String,
}

/// One entry of the allocation set. A share appears: it is added. It says `vacate`: it is to be
/// given back. It is removed: it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Allotted {
    Share(ShareEntry),
    Work(WorkStanding),
}

/// Room on a node that carries one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareEntry {
    pub id: AllocationId,
    /// The orchestrator's own id.
    pub work: String,
    pub node: NodeName,
    /// Quanta held.
    pub order: u64,
    pub size: Size,
    /// As in `allocations`: `assigned` until its process is reported to run.
    pub state: String,
    pub granted_at: Timestamp,
    /// Present from the moment it is to be given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacate: Option<Leave>,
    /// Present when it has ended; listed until a map does not name its process any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// An order to give a share back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Leave {
    /// As in `allocations`.
    pub reason: String,
    pub detail: String,
    pub since: Timestamp,
    /// Its node cannot answer: its room is gone already, and nothing more is awaited.
    #[serde(default)]
    pub purge: bool,
}

/// How a piece of work of the map stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkStanding {
    /// The orchestrator's own id.
    pub work: String,
    /// How the rest of the fleet calls it; absent for an entry that was refused from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<WorkId>,
    pub state: Standing,
    /// Shares it has, without those to be given back.
    pub held: u64,
    /// Why it does not have more, or was refused, from the scheduler's closed list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What is wrong with its entry, as a pointer into the map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Waiting,
    /// It has shares.
    Held,
    /// It asks for nothing any more.
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
    /// Of the last map that was accepted; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<Timestamp>,
    /// Since it was last accepted; of the moment of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// No map for longer than the setting `orchestrator_silent_ms`: its work stays as it is.
    #[serde(default)]
    pub silent: bool,
    /// What that means, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default)]
    pub counts: OrchestratorCounts,
    /// Entries of its last map that were refused; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<RefusedEntry>,
}

/// What it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrchestratorCounts {
    pub waiting: u64,
    pub held: u64,
    pub over: u64,
    pub refused: u64,
    /// Held, also those that are to be given back.
    pub shares: u64,
    pub leaving: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrchestratorList {
    /// In order of name.
    pub orchestrators: Vec<OrchestratorView>,
    /// For the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    pub revision: u64,
}

fn trimmed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UserName, D::Error> {
    let text = String::deserialize(deserializer)?;
    UserName::new(text.trim()).map_err(Error::custom)
}

const ORDINARY: u32 = 100;

fn ordinary() -> u32 {
    ORDINARY
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_ordinary(number: &u32) -> bool {
    *number == ORDINARY
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
