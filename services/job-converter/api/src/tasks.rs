//! Protocol between task runners and job-converter: leases of task batches, and outcomes.
//!
//! A lease belongs to one allocation. It ends when the allocation has ended, or when its runner has
//! not renewed it for `lease_ms` by job-converter's monotonic clock. The runner stops by its own
//! monotonic clock a margin earlier. The first outcome of a task is final.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeasedTask {
    pub task: u64,
    /// Counts from 1.
    pub attempt: u32,
    /// Placeholders are replaced.
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
    /// Microseconds from start to end.
    pub duration_us: u64,
    /// End of both output streams, at most `OUTPUT_LIMIT` bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// Bytes of output stored with an outcome: enough for error messages and small results.
pub const OUTPUT_LIMIT: usize = 4096;

impl TaskReport {
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
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

/// A task with an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    pub task: u64,
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
}
