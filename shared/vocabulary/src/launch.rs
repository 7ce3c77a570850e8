//! What to run in an allocation. It is written by job-converter, carried down the ladder unread,
//! and understood by the agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The program of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Program {
    /// The user's own program, an argument vector, never a shell line (S17).
    Command { argv: Vec<String> },
    /// `hayward-node-agent run-tasks`: lease tasks of this job, run them, report (D8).
    RunTasks {
        /// A token for the leases and reports of this one job. Never shown to people.
        token: String,
        /// Tasks run at the same time in one process.
        threads: u32,
    },
    /// The user's own program inside an image. Only a node that offers `docker` can run it.
    Container {
        argv: Vec<String>,
        container: ContainerForm,
    },
}

/// What a container engine has to know besides the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerForm {
    /// As the engine knows it: `name`, `name:tag`, `registry/name:tag` or `name@digest`.
    pub image: String,
    /// System user and group inside of it, never below [`LEAST_ID`] (S16). Absent: the agent's
    /// choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Its root file system cannot be written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// The named resource that work with an image needs and nodes with a container engine have, so that
/// one is only placed on the other: one of it for each container.
pub const ENGINE: &str = "docker";
/// As many containers an agent takes into its engine at one time.
pub const ENGINE_PLACES: u64 = 1000;

/// Least number of a system user or group that work may run as (S16).
pub const LEAST_ID: u32 = 1000;

/// Everything an agent needs to start a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Launch {
    pub program: Program,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Absolute; the container's own directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Milliseconds between the request to end and the forced end.
    pub stop_grace_ms: u64,
    /// W3C trace context of the submission, so that the container's spans can link to it (T5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}
