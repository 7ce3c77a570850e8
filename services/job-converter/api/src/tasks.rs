//! Protocol between task runners and job-converter: leases of task batches, and outcomes.
//!
//! A lease belongs to one allocation. It ends when the allocation has ended, or when its runner has
//! not renewed it for `lease_ms` by job-converter's monotonic clock. The runner stops by its own
//! monotonic clock a margin earlier. The first outcome of a task is final.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::signals::TaskSignal;
use crate::submission::{OutputSubmission, ScriptSubmission, StdinSubmission};
use crate::usage::RunUsage;

/// `POST /v1/jobs/{id}/tasks/leases`: reports finished tasks, renews the lease, requests more
/// tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    pub allocation: AllocationId,
    /// Tasks wanted, for idle slots and as a reserve; 0 only reports and renews.
    #[serde(default)]
    pub want: u32,
    /// Slots of the process. Absent from older runners, which get what they want.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Slots in which no task runs now. They are served before any process gets a reserve.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle: u32,
    /// Tasks that run now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningReport>,
    /// Number of this request among those of the process, from 1. A request leases nothing once a
    /// later one has arrived.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub request: u64,
    /// Tasks finished since the last accepted request. Repeating one is harmless.
    #[serde(default)]
    pub finished: Vec<TaskReport>,
    /// Tasks returned without being started.
    #[serde(default)]
    pub returned: Vec<u64>,
    /// All unfinished tasks of the runner. Leased tasks missing here are returned: their answer was
    /// lost. A runner that sets it has one request in flight at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Vec<u64>>,
    /// Milliseconds the answer may wait for tasks; at most 25,000.
    #[serde(default)]
    pub wait_ms: u64,
    /// Whether the runner has the terms of the job. Absent from older runners, which get them with
    /// each task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<TermsState>,
    /// Version of the terms that the runner understands. Absent from older runners: version 1 if
    /// they send `terms`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub terms_version: u32,
}

impl LeaseRequest {
    /// Returns the version of the terms that the runner understands. 0: none.
    pub fn understood_terms(&self) -> u32 {
        match self.terms {
            None => 0,
            Some(_) => self.terms_version.max(1),
        }
    }
}

/// Whether a runner knows what is equal for all tasks of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TermsState {
    /// The answer has to carry them.
    Wanted,
    Known,
}

/// A task that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunningReport {
    pub task: u64,
    pub attempt: u32,
    /// Milliseconds since the start, by the monotonic clock of the node.
    pub run_ms: u64,
}

/// Returns true for 0, which is not serialized.
fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// `POST /v1/jobs/{id}/tasks/reports`: only reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportRequest {
    pub allocation: AllocationId,
    pub finished: Vec<TaskReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseAnswer {
    pub tasks: Vec<LeasedTask>,
    /// Milliseconds until the lease ends unless renewed, from the receipt of this answer.
    pub lease_ms: u64,
    /// True when no more tasks follow: the runner ends.
    pub done: bool,
    /// Sent to a runner that wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Box<RunTerms>>,
}

/// Terms that are equal for all tasks of a job. Placeholders are not replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunTerms {
    pub job: WorkId,
    pub name: String,
    pub user: String,
    /// Program and arguments, or only the arguments of the script.
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptSubmission>,
    /// Variables of the user, and those of Hayward that are equal for all tasks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Milliseconds from the start of a run to its stop signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// Milliseconds before the time limit at which the warning is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_before_ms: Option<u64>,
    pub warn_signal: TaskSignal,
    pub stop_signal: TaskSignal,
    /// Milliseconds from the stop signal to SIGKILL.
    pub stop_grace_ms: u64,
    #[serde(default)]
    pub trust_exit_after_stop: bool,
    #[serde(default)]
    pub output: OutputSubmission,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<StdinSubmission>,
}

/// Version of [`RunTerms`] that this program understands. A runner of an older version would ignore
/// new fields.
pub const TERMS_VERSION: u32 = 2;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeasedTask {
    pub task: u64,
    /// Counts from 1.
    pub attempt: u32,
    /// Words after the command of the terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Only for older runners, which do not read the terms; else empty. Placeholders are replaced.
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskReport {
    pub task: u64,
    pub attempt: u32,
    /// Absent when the program returned none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why the program could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Ended by Hayward; the attempt is not counted.
    #[serde(default)]
    pub interrupted: bool,
    /// Cause of the end, where it differs from the exit status. Older runners have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
    /// Microseconds from start to end.
    pub duration_us: u64,
    /// Absent from older runners, and for a run that was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RunUsage>,
    /// End of both output streams, at most `OUTPUT_LIMIT` bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// End of a run that its exit status does not explain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunEnd {
    pub cause: EndCause,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Why a run of a task ended (TC-121).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// The program returned an exit code.
    Exited,
    /// A signal that Hayward did not send ended the program.
    Signalled,
    /// The kernel ended a process of the task, because its memory limit was reached.
    OutOfMemory,
    TimeLimit,
    /// The program could not be started.
    CannotStart,
    /// Hayward stopped the run. The task waits again, or its job is cancelled.
    Stopped,
    /// A process of Hayward that ran the task ended.
    CrashedRunner,
    /// The task was cancelled.
    Cancelled,
    #[serde(other)]
    Unknown,
}

/// Party that has to act after the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    User,
    Machine,
    /// Hayward, or its operator.
    System,
    /// The end was intended.
    None,
}

impl EndCause {
    pub fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signalled => "signalled",
            Self::OutOfMemory => "out_of_memory",
            Self::TimeLimit => "time_limit",
            Self::CannotStart => "cannot_start",
            Self::Stopped => "stopped",
            Self::CrashedRunner => "crashed_runner",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    /// Parses the output of [`EndCause::name`].
    pub fn from_name(name: &str) -> Self {
        let all = [
            Self::Exited,
            Self::Signalled,
            Self::OutOfMemory,
            Self::TimeLimit,
            Self::CannotStart,
            Self::Stopped,
            Self::CrashedRunner,
            Self::Cancelled,
        ];
        let found = all.into_iter().find(|cause| cause.name() == name);
        found.unwrap_or(Self::Unknown)
    }
}

/// Bytes of output stored with an outcome: enough for error messages and small results.
pub const OUTPUT_LIMIT: usize = 4096;

impl TaskReport {
    /// Returns true if the run ended with exit code 0, and nothing else ended it.
    pub fn succeeded(&self) -> bool {
        self.cause() == EndCause::Exited && self.exit_code == Some(0)
    }

    /// Returns the cause of the end. Older runners report none, so it follows from the exit status.
    pub fn cause(&self) -> EndCause {
        match &self.end {
            Some(end) => end.cause,
            None if self.error.is_some() => EndCause::CannotStart,
            None if self.interrupted => EndCause::Stopped,
            None if self.signal.is_some() => EndCause::Signalled,
            None => EndCause::Exited,
        }
    }
}

/// `GET /v1/jobs/{id}/tasks`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskList {
    pub tasks: Vec<TaskView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The list is at least as new as this revision.
    #[serde(default)]
    pub revision: u64,
}

/// Name in place of the allocation of a task that has no run.
pub const NO_ALLOCATION: &str = "none";

/// A task with an outcome, or in the state that the request named. A task that was cancelled before
/// it ran has attempt 0, node `unknown` and allocation `none`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    pub task: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    pub attempt: u32,
    pub succeeded: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub duration_us: u64,
    pub node: NodeName,
    pub allocation: AllocationId,
    pub output: String,
    /// Absent while the task has no outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TaskEnd>,
    /// Absent if the run was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RunUsage>,
    /// Only for running tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Milliseconds since the start. Only for running tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<u64>,
    /// Milliseconds until the next attempt. Only for delayed tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
}

/// State of a task (TC-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    Running,
    Succeeded,
    Failed,
    Cancelled,
    /// The task waits for the time of its next attempt.
    Delayed,
}

impl TaskState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Delayed => "delayed",
        }
    }
}

/// `GET /v1/jobs/{id}/tasks/{task}`: one task with its failed attempts, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskHistory {
    /// Absent while the task neither runs nor has an outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<TaskView>,
    pub attempts: Vec<AttemptView>,
}

/// A failed attempt after which the task was tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub node: NodeName,
    pub allocation: AllocationId,
    pub ended_at: Timestamp,
    pub end: TaskEnd,
    /// Absent from older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// Absent if the run was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RunUsage>,
}

/// Cause of the end of a task, with the party that has to act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskEnd {
    pub cause: EndCause,
    pub blame: Blame,
    /// One sentence for people, such as `exited with status 3`.
    pub message: String,
}
