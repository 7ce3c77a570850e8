//! Wire types of the application protocol over REST. Field names are spelled as in the protocol.

use std::collections::BTreeMap;

use hayward_vocabulary::{
    AllocationId, Exit, NodeName, Size, Timestamp, Unblock, UserName, WorkId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::NOT_YET_CONSIDERED;

/// `PUT /v1/applications/{id}`. The user is the one named by the token.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplicationSubmission {
    /// Full path, or a name below the root. An application with a queue, a pool or task groups is
    /// served in a pool with queues; the tasks of any other are ordinary work.
    #[serde(default)]
    pub queue_name: String,
    /// Top-level pool whose queues are used. Default: the first by name that has queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Groups of tasks that start together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<TaskGroupSubmission>)]
    pub task_groups: Vec<Value>,
    /// Priority of its placeholders in their queue; the higher number is served first.
    #[serde(default)]
    pub priority: i32,
    /// Its placeholders may preempt other work. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempts: Option<bool>,
    /// `false`: its placeholders are preempted after those of others. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptable: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<String>,
    /// `key=value` pairs, separated by spaces: `placeholderTimeoutInSeconds` (900),
    /// `gangSchedulingStyle` (`Soft` or `Hard`), `gangAdmissionTimeoutInSeconds` (none),
    /// `gangAdmission` (`Atomic` or `Partial`), `gangRepairInSeconds` (60; 0 releases the gang).
    #[serde(default)]
    pub scheduling_policy_parameters: String,
}

/// Equal tasks, and how many of them are needed together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskGroupSubmission {
    pub name: String,
    #[schema(minimum = 1)]
    pub min_member: u32,
    /// Resources of one member: `{"cpu": "500m", "memory": "1Gi"}`.
    #[schema(value_type = BTreeMap<String, String>)]
    pub min_resource: BTreeMap<String, Value>,
}

/// `PUT /v1/applications/{id}/tasks/{task}`: one process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskSubmission {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Absolute path on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Resources by name. Default: those of its group; without a group, 1 GiB of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub resources: Option<Value>,
    /// Group whose placeholder it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_group_name: Option<String>,
    /// Name in messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    #[serde(default)]
    pub priority: i32,
    /// The task that others depend on; it is preempted last.
    #[serde(default)]
    pub originator: bool,
    /// Nodes it may run on. Default: any. Not allowed for a task of a group, which runs on its
    /// placeholder's node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub machines: Vec<NodeName>,
    /// The only node it may run on; other work is preempted there. Only for tasks in a queue and
    /// without a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub required_node: Option<NodeName>,
    /// It may preempt other work. Default: true. Only for tasks in queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempts: Option<bool>,
    /// `false`: it is preempted after tasks of others. Default: true. Only for tasks in queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptable: Option<bool>,
    /// It never shares a node with another task of its application that sets this. Not allowed for
    /// a task of a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<ApartSubmission>,
}

/// The fault domain that such tasks must not share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApartSubmission {
    /// Node label, such as a rack: nodes with equal values form one domain, and so do nodes without
    /// the label. Default: the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub by_label: Option<String>,
}

/// `POST /v1/applications/{id}/tasks`: adds many tasks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkTasks {
    /// 1 to 1,000.
    #[schema(min_items = 1, max_items = 1000)]
    pub tasks: Vec<NamedTask>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedTask {
    /// Chosen by the caller.
    #[schema(max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub id: String,
    pub task: TaskSubmission,
}

/// One result per task, in order (A16).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkTasksAdded {
    pub results: Vec<TaskAdded>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskAdded {
    pub id: String,
    /// True when the task is new; an existing task is not changed.
    pub created: bool,
    /// Faults of this task, when it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// State of an application, in the terms of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationView {
    pub id: String,
    pub user: UserName,
    pub queue_name: String,
    /// Requested pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub priority: i32,
    pub tags: BTreeMap<String, String>,
    pub created_at: Timestamp,
    /// State of the frontend: may work be sent?
    pub state: String,
    /// State of the core: does it count as running? Absent until it was submitted to the scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ApplicationFailure>,
    pub task_groups: Vec<GroupView>,
    /// By id, the first 1,000.
    pub tasks: Vec<ApplicationTaskView>,
    /// Number of tasks by state, of all tasks.
    pub task_states: BTreeMap<String, u64>,
    /// The first 1,000 that hold or wait for an allocation.
    pub placeholders: Vec<PlaceholderView>,
    /// Transitions of both state machines, oldest first.
    pub state_log: Vec<StateLogEntry>,
    /// Unexpected events; the newest 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ApplicationWarning>,
    /// Why parts of it wait; 16 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<WaitView>,
    /// Running timers and when they are due.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timers: BTreeMap<String, Timestamp>,
    /// Fields of this request that differ from the existing application and were ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_fields: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFailure {
    /// Codes of applications: `gang_timeout`, `gang_short`, `rejected`, `nothing_completed` or
    /// `reported`. Codes of tasks: `exited`, `cannot_start`, `ask_rejected`, or that of its
    /// application.
    pub code: String,
    pub message: String,
}

/// A task group and its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    pub name: String,
    pub min_member: u32,
    pub min_resource: Size,
    /// Placeholders requested so far.
    pub count: u32,
    /// Placeholders replaced by a task.
    pub replaced: u32,
    /// Placeholders that ended in any other way.
    pub timedout: u32,
    /// Placeholders that wait for an allocation.
    pub pending: u32,
    /// Placeholders with an allocation.
    pub held: u32,
    /// Work id in the scheduler.
    pub work: WorkId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationTaskView {
    pub id: String,
    pub alias: String,
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_group_name: Option<String>,
    pub size: Size,
    pub priority: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// Work id in the scheduler.
    pub work: WorkId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ApplicationFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaceholderView {
    pub id: String,
    pub task_group_name: String,
    /// Absent while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// The task that replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateLogEntry {
    pub at: Timestamp,
    pub state: String,
    /// State machine: `application` or `scheduling`.
    pub machine: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationWarning {
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    pub message: String,
}

/// Verdict on a waiting group or task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitView {
    /// A task or a task group; before the application is accepted, its queue or pool.
    pub of: String,
    pub work: WorkId,
    /// One of the scheduler's reasons, or `not_yet_considered`.
    pub reason: String,
    pub detail: String,
    /// It will never be served as it stands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblock: Option<Unblock>,
}

impl WaitView {
    /// True when the scheduler has judged it.
    #[must_use]
    pub fn is_considered(&self) -> bool {
        self.reason != NOT_YET_CONSIDERED
    }
}

/// `GET /v1/applications`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationList {
    pub items: Vec<ApplicationSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The list is at least as new as this revision.
    #[serde(default)]
    pub revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSummary {
    pub id: String,
    pub user: UserName,
    pub queue_name: String,
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_state: Option<String>,
    pub tasks: u64,
    /// Tasks with an allocation.
    pub placed: u64,
    /// Placeholders with an allocation.
    pub placeholders: u64,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ApplicationFailure>,
}

/// `POST /v1/applications/{id}/transitions`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Transition {
    pub event: TransitionEvent,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TransitionEvent {
    Complete,
    Fail,
    /// Ends its tasks.
    Kill,
}

/// `POST /v1/applications/{id}/tasks/{task}/transitions`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskTransition {
    pub event: TaskTransitionEvent,
    /// Accepted and ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Transitions of a single task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TaskTransitionEvent {
    Complete,
}

/// Result of a transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Told)]
pub struct TransitionResult {
    pub applied: bool,
    /// Reason from a closed list, when the transition was not applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// State afterwards; absent when the object no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// `POST /v1/allocations/{key}/confirmations`; the key is the id of the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Confirmation {
    #[schema(max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub application_id: String,
    pub termination_type: TerminationType,
}

/// Why an allocation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TerminationType {
    Unknown,
    StoppedByRm,
    Timeout,
    PreemptedByScheduler,
    PlaceholderReplaced,
}

/// A task and its application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskAccepted {
    pub application_id: String,
    #[serde(flatten)]
    pub task: ApplicationTaskView,
}
