//! Wire types of submissions: jobs, services and reservations, and the responses to them.

use std::collections::BTreeMap;

use hayward_vocabulary::launch::Mount;
use hayward_vocabulary::{ContainerForm, NodeName, Size, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::retry::RetrySubmission;
use crate::service_processors::RetriesSubmission;
use crate::signals::TaskSignal;
use crate::unreachable::UnreachableChoice;

/// `POST /v1/jobs`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSubmission {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub class: Option<String>,
    /// Queue of the work, as full path or a name below the root; replaces a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Top-level pool whose queues are used; alone, the rules of the pool choose the queue.
    /// Default: the first pool that has queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Priority in the queue; the higher number is served first. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Argument vector of one task. `{task}` is replaced by the task's number, from 0. The other
    /// placeholders are `{job}`, `{name}`, `{attempt}`, `{run}`, `{user}`, `{node}` and
    /// `{allocation}`. They are also replaced in values of `environment`, in `working_directory`
    /// and in paths of `output`. `{task:05}` pads with zeros. With a script, the arguments of the
    /// script.
    #[serde(default)]
    pub command: Vec<String>,
    /// Script that each task runs. Default: the command names a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptSubmission>,
    /// Only services can run in an image; a job with one is refused.
    #[serde(default)]
    pub container: Option<ContainerSubmission>,
    #[serde(default)]
    pub tasks: Tasks,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Absolute path on the node.
    #[serde(default)]
    pub working_directory: Option<String>,
    /// Resources of one process. Default: 1 GiB of memory.
    #[serde(default)]
    pub size: Option<Size>,
    /// Processes at one time, at most. Default: the number of tasks.
    #[serde(default)]
    pub max_processes: Option<u64>,
    /// Tasks run in parallel in one process. Default 1.
    #[serde(default)]
    pub threads: Option<u32>,
    /// Attempts of a task before it has failed. Default 3.
    #[serde(default)]
    pub max_attempts: Option<u32>,
    /// Which failures of a task are tried again. `max_attempts` is a short form of its field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySubmission>,
    /// Least part of the tasks that must succeed for the job to be completed, in percent. Default
    /// 100. Tasks that were cancelled one by one do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub success_percent: Option<u32>,
    /// Nodes it may use; empty: any.
    #[serde(default)]
    pub machines: Vec<NodeName>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Reaction to an unreachable node. Default: `"replace"` (W7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_unreachable: Option<UnreachableChoice>,
    /// Processes that drains and graceful evacuations may vacate at one time, at most. Default: any
    /// number (W5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_limit: Option<u64>,
    /// Milliseconds after which a run of a task is stopped. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// Milliseconds before the time limit at which `warn_signal` is sent once. Default: no warning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_before_ms: Option<u64>,
    /// Default: `USR1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_signal: Option<TaskSignal>,
    /// Signal that asks a task to end. Default: `TERM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<TaskSignal>,
    /// Milliseconds from the stop signal to SIGKILL, at most 600,000. Default: that of the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace_ms: Option<u64>,
    /// An exit with 0 after the stop signal is a success. Default false: the task runs again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub trust_exit_after_stop: bool,
    /// Default: the last words of each task are stored with its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputSubmission>,
    /// Standard input of each task. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<StdinSubmission>,
}

/// Name of a script that has none.
pub const DEFAULT_SCRIPT_NAME: &str = "script";

impl JobSubmission {
    /// Returns the name of the script, else the program. `None` if the command is empty.
    pub fn program_name(&self) -> Option<&str> {
        match &self.script {
            Some(script) => Some(script.name.as_deref().unwrap_or(DEFAULT_SCRIPT_NAME)),
            None => self.command.first().map(String::as_str),
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A script that is sent with the job, and started by each task (TC-68).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptSubmission {
    /// At most 65,536 bytes. Placeholders are not replaced.
    pub text: String,
    /// Argument vector of the interpreter. Default: the first line after `#!`, else `/bin/sh`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interpreter: Vec<String>,
    /// Name of the file on the node, without `/`. Default: `script`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Standard input of tasks (TC-69).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StdinSubmission {
    /// Text of at most 65,536 bytes. Placeholders are not replaced.
    Text(String),
    /// Path of a regular file on the node, with placeholders. A relative path is below the working
    /// directory.
    File(String),
}

/// Destinations of the output of tasks (TC-81).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputSubmission {
    /// `keep` (default), `discard`, or a path with placeholders. A relative path is below the
    /// working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// `merge` (default) follows stdout; else as stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    #[serde(default, skip_serializing_if = "FileMode::is_default")]
    pub mode: FileMode,
    /// Directories that are missing are made.
    #[serde(default, skip_serializing_if = "is_false")]
    pub make_directories: bool,
}

/// Treatment of a file of output that exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileMode {
    /// Each run empties the file.
    #[default]
    Truncate,
    Append,
}

impl FileMode {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands over a reference"
    )]
    fn is_default(&self) -> bool {
        *self == Self::Truncate
    }
}

/// Number of tasks, or their arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tasks {
    /// This many tasks, distinguished by `{task}`.
    Count(u64),
    /// One task per argument vector, which is appended to the command.
    Arguments(Vec<Vec<String>>),
}

impl Default for Tasks {
    fn default() -> Self {
        Self::Count(1)
    }
}

impl Tasks {
    pub fn len(&self) -> u64 {
        match self {
            Self::Count(count) => *count,
            Self::Arguments(vectors) => vectors.len() as u64,
        }
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// `POST /v1/services`, `PUT /v1/services/{id}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSubmission {
    #[serde(default)]
    #[schema(max_length = 256, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub name: Option<String>,
    #[serde(default)]
    #[schema(max_length = 256, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub class: Option<String>,
    /// Queue of the work, as full path or a name below the root; replaces a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1300, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub queue: Option<String>,
    /// Top-level pool whose queues are used; alone, the rules of the pool choose the queue.
    /// Default: the first pool that has queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1300, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub pool: Option<String>,
    /// Priority in the queue; the higher number is served first. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Argument vector. `{instance}` is replaced by the instance's number, from 0; a standby gets
    /// the number of its active.
    #[schema(min_items = 1, max_items = 4096)]
    pub command: Vec<String>,
    /// Runs in this image, on nodes that offer `docker`.
    #[serde(default)]
    pub container: Option<ContainerSubmission>,
    /// Instances to keep running. Default 1.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 10_000)]
    pub instances: Option<u32>,
    /// Standby processes of each instance, at most 3; never on a host of the instance or of another
    /// of its standbys. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3)]
    pub standbys: Option<u32>,
    /// A process starts again on its last host, also in a later service of the same name, unless
    /// that takes too long. Default: true with standbys, else false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_affinity: Option<bool>,
    /// Default: processes are restarted for ever, however they end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<RetriesSubmission>,
    /// Node label: an instance and its standbys run on nodes with different values. Default: on
    /// different nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub fault_domain_label: Option<String>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    #[schema(max_length = 4096, pattern = "^/[^\\x00]*$")]
    pub working_directory: Option<String>,
    #[serde(default)]
    pub size: Option<Size>,
    #[serde(default)]
    #[schema(max_items = 10_000)]
    pub machines: Vec<NodeName>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Reaction to an unreachable node. Default: `"replace"` (W7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_unreachable: Option<UnreachableChoice>,
    /// Processes that drains and graceful evacuations may vacate at one time, at most; default any
    /// number. A new deployment may replace as many; default one (W5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000_000)]
    pub disruption_limit: Option<u64>,
}

/// Answer to `PUT /v1/services/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceChanged {
    pub id: WorkId,
    /// Current deployment; placements for an earlier one are refused.
    pub deployment: String,
    /// Incremented by each change; its `ETag`.
    pub generation: u64,
    /// False when nothing differed.
    pub changed: bool,
    /// Its processes are replaced a few at a time. False: running processes are not affected.
    pub redeployed: bool,
    /// The revision at which the change is visible.
    pub revision: u64,
}

/// Image of a program, and the ids it runs with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainerSubmission {
    /// `name`, `name:tag`, `registry/name:tag` or `name@digest`. It must be on the node, or in a
    /// registry the node's agent may use.
    pub image: String,
    /// User id inside the container, at least 1000. Default: chosen by the node.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Group id inside the container, at least 1000. Default: the user id.
    #[serde(default)]
    pub gid: Option<u32>,
    /// The root file system is read-only. Default false.
    #[serde(default)]
    pub read_only: bool,
    /// Directories of the node that it mounts. The policy of the pool must list them, for writing
    /// if it writes. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
}

impl ContainerSubmission {
    pub fn to_form(&self) -> ContainerForm {
        ContainerForm {
            image: self.image.clone(),
            uid: self.uid,
            gid: self.gid,
            read_only: self.read_only,
            mounts: self.mounts.clone(),
        }
    }
}

/// `POST /v1/reservations`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationSubmission {
    #[serde(default)]
    #[schema(max_length = 256, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub name: Option<String>,
    #[serde(default)]
    #[schema(max_length = 256, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub class: Option<String>,
    /// Least resources of the node. Default: any node.
    #[serde(default)]
    pub size: Option<Size>,
    #[serde(default)]
    #[schema(max_items = 10_000)]
    pub machines: Vec<NodeName>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Answer to a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    pub id: WorkId,
    /// The revision at which the work is visible.
    pub revision: u64,
}

/// `POST /v1/jobs/bulk`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkSubmission {
    /// At most 1,000.
    #[schema(min_items = 1, max_items = 1000)]
    pub jobs: Vec<JobSubmission>,
}

/// One result per job, in order (A16).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkSubmitted {
    pub results: Vec<BulkResult>,
    pub revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<WorkId>,
    /// Faults of this job, when it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
