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
    /// What it sees of the node's files (S21).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
}

/// A directory of the node that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// On the node: exactly as the policy of its pool lists it.
    pub source: String,
    /// In the container, absolute.
    pub target: String,
    /// It cannot be written. Default false: the policy has to list it for writing.
    #[serde(default)]
    pub read_only: bool,
}

/// The named resource that work with such a mount needs, and that nodes of pools that list it have
/// ([`ENGINE_PLACES`] of it): so that one is only placed on the other.
pub fn mount_resource(source: &str, read_only: bool) -> String {
    let how = if read_only { "ro" } else { "rw" };
    format!("{MOUNT}{source}:{how}")
}

/// How the names of those resources begin: nothing that an agent may say it has.
pub const MOUNT: &str = "mount:";

/// Whether a path is absolute, and has one spelling: no `.`, no `..`, no empty part, no colon
/// (engines split there) and not the root itself.
pub fn is_plain_path(path: &str) -> bool {
    let good = |part: &str| !matches!(part, "" | "." | "..");
    let parts = path.strip_prefix('/');
    let parts_are_good = parts.is_some_and(|parts| parts.split('/').all(good));
    parts_are_good && path.len() <= 1024 && !path.contains([':', '\0'])
}

/// The named resource that work with an image needs and nodes with a container engine have, so that
/// one is only placed on the other: one of it for each container.
pub const ENGINE: &str = "docker";
/// The class of an end of what was never started, because its node does not offer what it needs. It
/// was placed by what the node offered before: no fault of the machine's, nor of the work's.
pub const NOT_OFFERED: &str = "not_offered";
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
    /// The same of the allocation, within which its life is told (T5). rm-scheduler says it when it
    /// grants, and only where the trace is kept: a fleet whose traces nobody collects carries none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        for good in ["/a", "/srv/data", "/a.b/..c"] {
            assert!(is_plain_path(good), "{good}");
        }
        for bad in [
            "", "/", "a", "/a/", "//a", "/a/../b", "/./a", "/a:b", "/a\0",
        ] {
            assert!(!is_plain_path(bad), "{bad:?}");
        }
    }
}
