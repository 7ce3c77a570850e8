//! The application protocol over REST (application protocol, 2.9). Its names are those of the
//! protocol, in its own spelling.

use std::collections::BTreeMap;

use hayward_vocabulary::{
    AllocationId, Exit, NodeName, Size, Timestamp, Unblock, UserName, WorkId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::NOT_YET_CONSIDERED;

/// `PUT /v1/applications/{id}`. Its user is whom the token names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplicationSubmission {
    /// Full path, or a name below the root. With it, with a pool or with task groups, the
    /// application is served in a pool that is divided among queues; without all of them its tasks
    /// are work like any other.
    #[serde(default)]
    pub queue_name: String,
    /// The top-level pool whose queues are meant. Default: the first by name that has queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Sets of tasks that start together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<TaskGroupSubmission>)]
    pub task_groups: Vec<Value>,
    /// Of its placeholders in their queue: the higher number is served first.
    #[serde(default)]
    pub priority: i32,
    /// Its placeholders may take room from others. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempts: Option<bool>,
    /// `false`: its placeholders are taken back after those of others. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptable: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<String>,
    /// `key=value`, separated by blanks: `placeholderTimeoutInSeconds` (900),
    /// `gangSchedulingStyle` (`Soft` or `Hard`), `gangAdmissionTimeoutInSeconds` (none),
    /// `gangAdmission` (`Atomic` or `Partial`), `gangRepairInSeconds` (60; 0 releases the gang).
    #[serde(default)]
    pub scheduling_policy_parameters: String,
}

/// Tasks that are alike, and how many of them are of use together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskGroupSubmission {
    pub name: String,
    #[schema(minimum = 1)]
    pub min_member: u32,
    /// Amounts of one member: `{"cpu": "500m", "memory": "1Gi"}`.
    #[schema(value_type = BTreeMap<String, String>)]
    pub min_resource: BTreeMap<String, Value>,
}

/// `PUT /v1/applications/{id}/tasks/{task}`: one process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskSubmission {
    /// Program and arguments. No shell reads this.
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Absolute path on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Amounts by name. Default: those of its group; without one, 1 GiB of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub resources: Option<Value>,
    /// It takes the place of a placeholder of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_group_name: Option<String>,
    /// What it is called in messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    #[serde(default)]
    pub priority: i32,
    /// The one the others hang on; the last to be taken back.
    #[serde(default)]
    pub originator: bool,
    /// The nodes it may run on. Default: any. Not of a task of a group, which takes a placeholder's
    /// place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub machines: Vec<NodeName>,
    /// It runs there and nowhere else, and others leave for it there (10.4). Of a task in a queue,
    /// and of no group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub required_node: Option<NodeName>,
    /// It may take room from others. Default: true. Only of tasks in queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempts: Option<bool>,
    /// `false`: it is taken back after those of others. Default: true. Only of tasks in queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptable: Option<bool>,
    /// It is never where another task of its application is that says this too: at most one for
    /// each node. Not of a task of a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<ApartSubmission>,
}

/// What tasks that are kept apart must not share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApartSubmission {
    /// A label of nodes, as that of a rack: nodes with the same value, and those without it, are
    /// one. Default: the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub by_label: Option<String>,
}

/// `POST /v1/applications/{id}/tasks`: many at once.
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
    /// Chosen by whoever adds it.
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
    /// It was not there before. One that was there stays as it is.
    pub created: bool,
    /// What is wrong with this task, when it was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An application as it stands. States are those of the protocol (3.1, 3.4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationView {
    pub id: String,
    pub user: UserName,
    pub queue_name: String,
    /// As it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub priority: i32,
    pub tags: BTreeMap<String, String>,
    pub created_at: Timestamp,
    /// May work be sent yet?
    pub state: String,
    /// Does it count as running? Absent until it was submitted to the scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ApplicationFailure>,
    pub task_groups: Vec<GroupView>,
    /// In order of their ids, the first 1,000.
    pub tasks: Vec<ApplicationTaskView>,
    /// Tasks by state; all of them.
    pub task_states: BTreeMap<String, u64>,
    /// The first 1,000 that hold or wait for a place.
    pub placeholders: Vec<PlaceholderView>,
    /// Both machines, oldest first.
    pub state_log: Vec<StateLogEntry>,
    /// What happened to it that nobody asked for; the newest 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ApplicationWarning>,
    /// Why parts of it wait; 16 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<WaitView>,
    /// Timers that run, and when each is due.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timers: BTreeMap<String, Timestamp>,
    /// Fields of this request that say something else than what stands, and changed nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_fields: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFailure {
    /// Of an application: `gang_timeout`, `gang_short`, `rejected`, `nothing_completed` or
    /// `reported`. Of a task: `exited`, `cannot_start`, `ask_rejected`, or that of its application.
    pub code: String,
    pub message: String,
}

/// A task group and its counters (5.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    pub name: String,
    pub min_member: u32,
    pub min_resource: Size,
    /// Placeholders that were asked for.
    pub count: u32,
    /// Placeholders whose place a task took.
    pub replaced: u32,
    /// Placeholders that ended in any other way.
    pub timedout: u32,
    /// Placeholders that wait for a place now.
    pub pending: u32,
    /// Placeholders that hold a place now.
    pub held: u32,
    /// The piece of work that the scheduler knows it as.
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
    /// The piece of work that the scheduler knows it as.
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
    /// The task that takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateLogEntry {
    pub at: Timestamp,
    pub state: String,
    /// Of which of the two machines: `application` or `scheduling`.
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

/// What the scheduler says of a group or a task that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitView {
    /// A task, a task group, or before it is accepted the queue or pool that it names.
    pub of: String,
    pub work: WorkId,
    /// From the scheduler's closed list, or `not_yet_considered`.
    pub reason: String,
    pub detail: String,
    /// It will not be served as it stands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblock: Option<Unblock>,
}

impl WaitView {
    /// The scheduler has judged it: this is an answer, not the absence of one.
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
    /// What is listed is at least as new.
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
    /// Tasks that have a place now.
    pub placed: u64,
    /// Placeholders that hold a place now.
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
    /// Of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TransitionEvent {
    Complete,
    Fail,
    /// Its tasks are ended.
    Kill,
}

/// `POST /v1/applications/{id}/tasks/{task}/transitions`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskTransition {
    pub event: TaskTransitionEvent,
    /// Taken and passed over, as an application's is where it completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Nothing else can be told to one task alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TaskTransitionEvent {
    Complete,
}

/// Whether it was done, and why not: nothing is dropped in silence (17.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    pub applied: bool,
    /// From a closed list, where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of what was told; absent where there is none any more.
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

/// Why an allocation ends (2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TerminationType {
    Unknown,
    StoppedByRm,
    Timeout,
    PreemptedByScheduler,
    PlaceholderReplaced,
}

/// A task as it was accepted, or as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskAccepted {
    pub application_id: String,
    #[serde(flatten)]
    pub task: ApplicationTaskView,
}
