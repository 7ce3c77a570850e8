//! Request and response of `POST /v1/what-if`: a forecast of changes to the fleet. The planner of
//! the scheduler makes the forecast.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::node_publications::Blocker;
use crate::policy::Policy;
use crate::{VacateReason, WaitReason};

/// Changes to the present fleet, in any combination. The forecast is computed on a copy of the
/// fleet, and nothing is changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WhatIf {
    /// Work that would be submitted, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub submissions: Vec<Submission>,
    /// The policy that would be in force, as a complete document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Nodes that would be drained and take no new work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drain: Vec<NodeName>,
    /// Nodes that would be lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lose: Vec<NodeName>,
    /// Nodes that would join.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_nodes: Vec<NewNodes>,
    /// Work that would be withdrawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withdraw: Vec<WorkId>,
    /// Maximum number of rounds to plan: 1 to 50. Planning ends when a round changes nothing. For a
    /// large fleet, planning may stop earlier, after a time limit. The response has the number of
    /// planned rounds. Default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 50)]
    pub rounds: Option<u64>,
}

/// Work to submit, with the properties that the scheduler uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Name of the work in the response. Default: `job_what-if-1` and so on, by kind and position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<WorkId>,
    #[serde(default = "default_kind")]
    pub kind: WorkKind,
    /// The user that is charged. Default: the caller. Submitters may name only themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// A queue instead of a class. The forecast contains no preemption between queues, because such
    /// a preemption begins only after a delay that is longer than the forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The top-level pool of the queue. Default: the first with queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Size of one process; for a reservation, the least size of a node. Default 1 GiB of memory,
    /// and any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Maximum number of processes, or instances of a service. Default: the number of tasks, 1 for
    /// a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Tasks of a job. Default: more than its processes can take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Milliseconds of one task. The planner knows this duration once the first task has ended.
    /// Default: one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_ms: Option<u64>,
    /// Tasks run at the same time in one process. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Nodes it may use; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
}

fn default_kind() -> WorkKind {
    WorkKind::Job
}

/// Equal nodes that would join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNodes {
    /// Name of the node, or prefix of numbered names. Default: `what-if`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<NodeName>,
    /// Default 1.
    #[serde(default = "default_count")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub count: u64,
    /// Default: the pool of nodes whose agent names no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub size: Size,
}

fn default_count() -> u64 {
    1
}

/// A forecast. Round 1 is the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// Revision of the fleet that was copied.
    pub revision: u64,
    pub at: Timestamp,
    /// Rounds planned.
    pub rounds: u64,
    /// True if no further round would change anything. Otherwise request more rounds.
    pub settled: bool,
    /// A neighbour of the scheduler that is silent. Until it answers, nothing is preempted, even if
    /// the forecast shows preemptions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    pub starts: Vec<StartedProcesses>,
    pub waits: Vec<WaitingWork>,
    pub leaves: Vec<VacatedProcess>,
    /// Processes that must leave for work that the caller may see. Their users are those that the
    /// caller may not know by name (S12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves_of_others: Option<VacatedProcessesOfOthers>,
    /// Work whose number of processes would be different in the end.
    pub moves: Vec<ProcessCountChange>,
    pub shares: SharesChange,
    /// A preview for each node of `drain`, in the order of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drains: Vec<DrainPreview>,
    /// Number of entries beyond 10,000 that are left out, by name of the list.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, u64>,
}

/// Processes of one piece of work that start on one node in one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Starts)]
pub struct StartedProcesses {
    pub round: u64,
    pub work: WorkId,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    pub processes: u64,
    /// Quanta of each process.
    pub order: u64,
}

/// Work that has no process in the end, or fewer than it is entitled to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Waits)]
pub struct WaitingWork {
    pub work: WorkId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    pub reason: WaitReason,
    /// True if the work is never served unless the work or the policy changes.
    pub refused: bool,
    pub detail: String,
}

/// One process that must leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Leaves)]
pub struct VacatedProcess {
    pub round: u64,
    /// Absent for a process that starts only in this forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    pub work: WorkId,
    pub user: UserName,
    pub node: NodeName,
    pub order: u64,
    pub reason: VacateReason,
    pub detail: String,
    /// Milliseconds of starting or of running tasks that are lost with the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_ms: Option<u64>,
    /// The work that benefits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beneficiary: Option<WorkId>,
    /// The user of that work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_user: Option<UserName>,
}

/// Sum of processes that must leave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OthersLeave)]
pub struct VacatedProcessesOfOthers {
    pub processes: u64,
    /// Quanta of all these processes.
    pub quanta: u64,
    /// Milliseconds of starting or of running tasks that are lost with the processes.
    pub lost_ms: u64,
}

/// Change of the number of processes of one piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Moves)]
pub struct ProcessCountChange {
    pub work: WorkId,
    pub user: UserName,
    pub class: String,
    /// Present number of processes.
    pub now: u64,
    /// In the end, without the changes.
    pub without: u64,
    /// In the end, with the changes.
    pub with: u64,
}

/// Quanta in the end, without and with the changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SharesChange {
    pub capacity: Change,
    pub held: Change,
    pub classes: Vec<ClassChange>,
}

/// An amount in quanta at the end of the forecast, without and with the changes of the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    pub without: u64,
    pub with: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassChange {
    pub class: String,
    pub due: Change,
    pub held: Change,
    pub users: Vec<UserChange>,
    /// All other users of the class that the caller may not know by name (S12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OthersChange>,
}

/// Users of one class as a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersChange {
    /// Number of users.
    pub users: u64,
    pub due: Change,
    pub held: Change,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserChange {
    pub user: UserName,
    pub due: Change,
    pub held: Change,
}

/// Preview of the drain of one node (W5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainPreview {
    pub node: NodeName,
    /// Allocations on the node: those that move and those that stay.
    pub total: u64,
    /// Allocations that leave, as disruption limits allow.
    pub moves: Vec<DrainMove>,
    /// Allocations that this drain would not move, with the reason.
    pub stays: Vec<Blocker>,
    /// Number of `moves` without space elsewhere: those with `why_not`.
    pub without_room: u64,
    /// Milliseconds until every successor runs, if each process uses its whole grace period and
    /// starts as its siblings did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ms: Option<u64>,
    /// Why there is no estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_estimate: Option<String>,
}

/// One process that would leave a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainMove {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    /// Quanta.
    pub order: u64,
    /// Node of the successor; absent if there is no space for a successor, or no need of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<NodeName>,
    /// Why the successor finds no space; absent if it finds space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<WaitReason>,
    /// Maximum number of processes of its work or service that are moved at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_limit: Option<u64>,
    /// Milliseconds of its grace period.
    pub stop_grace_ms: u64,
    /// Mean milliseconds from grant to start of its work; absent until one has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
}
