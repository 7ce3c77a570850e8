//! What a submitter writes.

use std::collections::BTreeMap;

use hayward_vocabulary::{ContainerForm, NodeName, Size, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::unreachable::UnreachableChoice;

/// `POST /v1/jobs`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSubmission {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub class: Option<String>,
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

/// `POST /v1/services`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSubmission {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub class: Option<String>,
    /// Argument vector. `{instance}` stands for the instance's number, from 0.
    pub command: Vec<String>,
    /// Runs it inside an image, on nodes that offer `docker`.
    #[serde(default)]
    pub container: Option<ContainerSubmission>,
    /// Instances to keep up. Default 1.
    #[serde(default)]
    pub instances: Option<u32>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    pub working_directory: Option<String>,
    #[serde(default)]
    pub size: Option<Size>,
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
}

impl ContainerSubmission {
    pub fn form(&self) -> ContainerForm {
        ContainerForm {
            image: self.image.clone(),
            uid: self.uid,
            gid: self.gid,
            read_only: self.read_only,
        }
    }
}

/// `POST /v1/reservations`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationSubmission {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub class: Option<String>,
    /// The least the machine must have. Default: any machine.
    #[serde(default)]
    pub size: Option<Size>,
    #[serde(default)]
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
