//! What a submitter writes.

use std::collections::BTreeMap;

use hayward_vocabulary::launch::Mount;
use hayward_vocabulary::{ContainerForm, NodeName, Size, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::processors::RetriesSubmission;
use crate::unreachable::UnreachableChoice;

/// `POST /v1/jobs`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSubmission {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub class: Option<String>,
    /// The queue it goes into, by its full path or a name below the root, in place of a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The top-level pool whose queues are meant; with this alone the rules of the pool say which
    /// queue. Default: the first pool that has queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// In its queue the higher number is served first. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Argument vector of one task. `{task}` stands for the task's number, from 0.
    pub command: Vec<String>,
    /// Only services can be run inside an image; a job that asks for one is refused.
    #[serde(default)]
    pub container: Option<ContainerSubmission>,
    #[serde(default)]
    pub tasks: Tasks,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Absolute path on the node.
    #[serde(default)]
    pub working_directory: Option<String>,
    /// What one process needs. Default: 1 GiB of memory.
    #[serde(default)]
    pub size: Option<Size>,
    /// Most processes at one time. Default: as many as there are tasks.
    #[serde(default)]
    pub max_processes: Option<u64>,
    /// Tasks run at the same time in one process. Default 1.
    #[serde(default)]
    pub threads: Option<u32>,
    /// How often a task may fail before it has failed for good. Default 3.
    #[serde(default)]
    pub max_attempts: Option<u32>,
    /// Nodes it may use; empty means any.
    #[serde(default)]
    pub machines: Vec<NodeName>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What becomes of it when its node cannot be reached (W7). Default: `"replace"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_unreachable: Option<UnreachableChoice>,
    /// Most of its processes that drains and graceful evacuations may take off at one time (W5).
    /// Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_limit: Option<u64>,
}

/// How many tasks, or which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tasks {
    /// This many tasks, told apart by `{task}`.
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
    /// The queue it goes into, by its full path or a name below the root, in place of a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1300, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub queue: Option<String>,
    /// The top-level pool whose queues are meant; with this alone the rules of the pool say which
    /// queue. Default: the first pool that has queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1300, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub pool: Option<String>,
    /// In its queue the higher number is served first. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Argument vector. `{instance}` stands for the instance's number, from 0; for what stands by,
    /// of the one it stands by for.
    #[schema(min_items = 1, max_items = 4096)]
    pub command: Vec<String>,
    /// Runs it inside an image, on nodes that offer `docker`.
    #[serde(default)]
    pub container: Option<ContainerSubmission>,
    /// Instances to keep up. Default 1.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 10_000)]
    pub instances: Option<u32>,
    /// Processes that stand by for each instance, never on its host nor on each other's; at most
    /// 3. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3)]
    pub standbys: Option<u32>,
    /// A process is started again where it was last seen, also by a later service of the same
    /// name, unless that takes too long. Default: true with standbys, else false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_affinity: Option<bool>,
    /// Default: it is kept up for ever, however its processes end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<RetriesSubmission>,
    /// Label of nodes: an instance and its standbys are on nodes with different values of it.
    /// Default: on different nodes.
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
    /// What becomes of it when its node cannot be reached (W7). Default: `"replace"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_unreachable: Option<UnreachableChoice>,
    /// Most of its processes that drains and graceful evacuations may take off at one time (W5),
    /// by default any number; and that a new deployment may, by default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000_000)]
    pub disruption_limit: Option<u64>,
}

/// Answer to `PUT /v1/services/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceChanged {
    pub id: WorkId,
    /// What is deployed now; placements of the one before are refused.
    pub deployment: String,
    /// Raised by each change; its `ETag`.
    pub generation: u64,
    /// False where it was like that already.
    pub changed: bool,
    /// Its processes are replaced, a few at a time. False where what runs is left as it is.
    pub redeployed: bool,
    /// The revision at which the change is visible to everyone.
    pub revision: u64,
}

/// The image a program runs in, and as whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainerSubmission {
    /// `name`, `name:tag`, `registry/name:tag` or `name@digest`. It must be on the node, or come
    /// from a registry the node's agent may fetch from.
    pub image: String,
    /// System user inside of it, at least 1000. Default: the node's choice.
    #[serde(default)]
    pub uid: Option<u32>,
    /// System group, at least 1000. Default: the number of the user.
    #[serde(default)]
    pub gid: Option<u32>,
    /// Its root file system cannot be written. Default false.
    #[serde(default)]
    pub read_only: bool,
    /// Directories of the node that it sees; it runs only where the policy of the pool lists them,
    /// for writing where it is to write there. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
}

impl ContainerSubmission {
    pub fn form(&self) -> ContainerForm {
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
    /// The least the machine must have. Default: any machine.
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
    /// The revision at which the work is visible to everyone.
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
    /// What is wrong with this job, when it was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
