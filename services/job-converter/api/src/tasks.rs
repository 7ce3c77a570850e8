//! The talk between a task runner and job-converter: leases of task batches, and their outcomes.
//!
//! A lease belongs to one allocation. It ends when the allocation is known to be gone, or when its
//! runner has not renewed it for `lease_ms` by job-converter's monotonic clock; the runner stops
//! by its own monotonic clock a margin earlier. The first outcome of a task is the one recorded.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/jobs/{id}/tasks/leases`: report what is finished, renew what is held, ask for more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    pub allocation: AllocationId,
    /// Tasks wanted; 0 only reports and renews.
    #[serde(default)]
    pub want: u32,
    /// Tasks finished since the last accepted request. Repeating one is harmless.
    #[serde(default)]
    pub finished: Vec<TaskReport>,
    /// Tasks given back unstarted.
    #[serde(default)]
    pub returned: Vec<u64>,
    /// Every task the runner has and has not finished. When given, tasks leased to this allocation
    /// that it does not name come back: their answer was lost on the way. A runner that gives it
    /// has one request at a time under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Vec<u64>>,
    /// Milliseconds the answer may wait for tasks to turn up; at most 25,000.
    #[serde(default)]
    pub wait_ms: u64,
}

/// `POST /v1/jobs/{id}/tasks/reports`: only the reporting half.
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
    /// True when there is nothing more to come: the runner ends.
    pub done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeasedTask {
    pub task: u64,
    /// From 1.
    pub attempt: u32,
    /// Placeholders are filled in.
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
    /// Absent when the program did not return one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it could not be started, when it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The end was Hayward's doing: it spends nothing of the user's retry budget.
    #[serde(default)]
    pub interrupted: bool,
    /// Microseconds from start to end.
    pub duration_us: u64,
    /// The last words on both streams, at most `OUTPUT_LIMIT` bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// Bytes of output kept with an outcome: enough for last words and small results.
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
    /// What is listed is at least as new.
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
