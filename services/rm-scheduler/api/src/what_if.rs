//! `POST /v1/what-if`: what would happen, answered by the planner that decides what does.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::evidence::Blocker;
use crate::policy::Policy;
use crate::{VacateReason, WaitReason};

/// Any mix of changes to the fleet as it is. Nothing of it is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WhatIf {
    /// Work that would be submitted, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub submissions: Vec<Submission>,
    /// The policy that would be in force: a whole document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Nodes that would be emptied and take nothing new.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drain: Vec<NodeName>,
    /// Nodes that would not answer any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lose: Vec<NodeName>,
    /// Nodes that would join.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_nodes: Vec<NewNodes>,
    /// Work that would be withdrawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withdraw: Vec<WorkId>,
    /// Rounds that are planned at most, until nothing changes any more: 1 to 50. Default 10. A
    /// large fleet may take too long for all of them; the answer says how far it went.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 50)]
    pub rounds: Option<u64>,
}

/// Work as the scheduler sees it: what it runs does not matter here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// What the answer calls it. Default: `job_what-if-1` and so on, by kind and place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<WorkId>,
    #[serde(default = "job")]
    pub kind: WorkKind,
    /// Whose share is charged. Default: who asks. Submitters ask for themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The queue it goes into, in place of a class. What queues take from each other after their
    /// delays comes after the rounds that are told here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The top-level pool whose queues are meant. Default: the first that has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What one process needs; of a reservation, the least a machine must have. Default 1 GiB of
    /// memory, and any machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Most processes at one time; instances of a service. Default: as many as there are tasks, and
    /// 1 of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Of a job. Default: as many as its processes can take, and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Milliseconds one task takes, known once the first has ended. Default: an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_ms: Option<u64>,
    /// Tasks run at the same time in one process. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Nodes it may use; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<NodeName>,
}

fn job() -> WorkKind {
    WorkKind::Job
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNodes {
    /// Of one node; of several, it is followed by their numbers. Default: `what-if`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<NodeName>,
    /// Default 1.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub count: u64,
    /// Default: the pool that takes nodes which name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub size: Size,
}

fn one() -> u64 {
    1
}

/// What would happen. Rounds are counted from the next one, which is 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// Of the fleet it was reckoned from.
    pub revision: u64,
    pub at: Timestamp,
    /// Rounds that were planned.
    pub rounds: u64,
    /// Nothing would change any more after them. Otherwise ask for more rounds.
    pub settled: bool,
    /// A neighbour of the scheduler that is not heard: while it is silent, nothing is taken back,
    /// whatever is said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    pub starts: Vec<Starts>,
    pub waits: Vec<Waits>,
    pub leaves: Vec<Leaves>,
    /// Processes of users whom the caller may not know by name that make room for work they know
    /// (S12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves_of_others: Option<OthersLeave>,
    /// Work that would end up with another number of processes than without the changes.
    pub moves: Vec<Moves>,
    pub shares: SharesChange,
    /// What becomes of what stands on each node of `drain`, in the order of the question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drains: Vec<DrainPreview>,
    /// Lines left out of each list, because there are more than 10,000.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, u64>,
}

/// Processes of one piece of work that start on one node in one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Starts {
    pub round: u64,
    pub work: WorkId,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    pub processes: u64,
    /// Quanta of each.
    pub order: u64,
}

/// Work that has no process in the end, or less than it is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waits {
    pub work: WorkId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    pub reason: WaitReason,
    /// It would never be served as it stands.
    pub refused: bool,
    pub detail: String,
}

/// One process that has to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Leaves {
    pub round: u64,
    /// Absent when it would only start in this forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    pub work: WorkId,
    pub user: UserName,
    pub node: NodeName,
    pub order: u64,
    pub reason: VacateReason,
    pub detail: String,
    /// Milliseconds of starting, or of tasks in flight, that are lost with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_ms: Option<u64>,
    /// The work it makes room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beneficiary: Option<WorkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_user: Option<UserName>,
}

/// Processes that have to go, as amounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersLeave {
    pub processes: u64,
    /// Quanta of all of them.
    pub quanta: u64,
    /// Milliseconds of starting, or of tasks in flight, that are lost with them.
    pub lost_ms: u64,
}

/// Processes of one piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Moves {
    pub work: WorkId,
    pub user: UserName,
    pub class: String,
    pub now: u64,
    /// In the end, as it would go anyway.
    pub without: u64,
    /// In the end, with the changes.
    pub with: u64,
}

/// Quanta in the end, as it would go anyway and with the changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SharesChange {
    pub capacity: Change,
    pub held: Change,
    pub classes: Vec<ClassChange>,
}

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
    /// All its other users together, whom the caller may not know by name (S12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OthersChange>,
}

/// Users of one class, as amounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OthersChange {
    /// How many they are.
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

/// What becomes of what stands on one node, if it were drained (W5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainPreview {
    pub node: NodeName,
    /// Allocations that stand there: those that move and those that stay.
    pub total: u64,
    /// What is taken off, as the disruption limits of the work allow.
    pub moves: Vec<DrainMove>,
    /// What is not taken off by this drain, whose it is, and why.
    pub stays: Vec<Blocker>,
    /// How many of `moves` find no room elsewhere: those with `why_not`.
    pub without_room: u64,
    /// Milliseconds until every successor runs, when each process takes all the time it has to
    /// end, and starts as its siblings did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ms: Option<u64>,
    /// Why there is no estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_estimate: Option<String>,
}

/// One process that would be taken off a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainMove {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    /// Quanta.
    pub order: u64,
    /// Where a successor would start; absent when there is no room for one, or none is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<NodeName>,
    /// It finds no room: why, as the work would be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<WaitReason>,
    /// Most processes of its work (its service) that may be taken off at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_limit: Option<u64>,
    /// Milliseconds it has to end.
    pub stop_grace_ms: u64,
    /// Milliseconds from grant to running, the mean of its work; absent while none has come up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
}
