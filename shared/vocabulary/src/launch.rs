//! The program to run in an allocation. job-converter writes it, the services in between pass it on
//! unread, and the agent interprets it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Size, UserName};

/// The program of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Program {
    /// The user's own program, an argument vector, never a shell line (S17).
    Command { argv: Vec<String> },
    /// `hayward-node-agent run-tasks`: lease tasks of this job, run them, report (D8).
    RunTasks {
        /// Token for the leases and reports of this one job. It is never shown to people.
        token: String,
        /// Maximum number of tasks that one process runs at the same time.
        threads: u32,
    },
    /// The user's own program inside an image. Only a node that offers `docker` can run it.
    Container {
        argv: Vec<String>,
        container: ContainerForm,
    },
}

/// Settings of a container engine for one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerForm {
    /// Reference of the image: `name`, `name:tag`, `registry/name:tag` or `name@digest`.
    pub image: String,
    /// System user inside the container, at least [`MIN_USER_ID`]; absent: the agent chooses (S16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// System group inside the container, with the rules of `uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// True if the root file system of the container cannot be written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Directories of the node that the container sees (S21).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
}

/// A directory of the node that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Path on the node, exactly as the policy of its pool lists it.
    pub source: String,
    /// Absolute path in the container.
    pub target: String,
    /// True if the directory cannot be written. Default false: the policy must list it for writing.
    #[serde(default)]
    pub read_only: bool,
}

/// The named resource of a mount. Work with the mount needs it, and nodes of pools that permit the
/// mount have [`MAX_ENGINE_CONTAINERS`] of it. That keeps the work on those nodes.
pub fn mount_resource(source: &str, read_only: bool) -> String {
    let mode = if read_only { "ro" } else { "rw" };
    format!("{MOUNT_PREFIX}{source}:{mode}")
}

/// Prefix of the names of the resources of mounts. An agent cannot report such a resource itself.
pub const MOUNT_PREFIX: &str = "mount:";

/// True if a path is absolute and canonical: no `.`, no `..`, no empty part, no colon (engines
/// split there) and not the root itself.
pub fn is_plain_path(path: &str) -> bool {
    let is_name = |part: &str| !matches!(part, "" | "." | "..");
    let parts = path.strip_prefix('/');
    let has_only_names = parts.is_some_and(|parts| parts.split('/').all(is_name));
    has_only_names && path.len() <= 1024 && !path.contains([':', '\0'])
}

/// The named resource of container engines. Each container needs one, so work with an image is
/// placed only on nodes with an engine.
pub const ENGINE: &str = "docker";
/// Cause code of an exit of work that never started, because the node no longer offers what the
/// work needs. Neither the node nor the work is at fault.
pub const NOT_OFFERED: &str = "not_offered";
/// Maximum number of containers of one agent at a time in its engine.
pub const MAX_ENGINE_CONTAINERS: u64 = 1000;

/// Smallest id of a system user or group that work may run as (S16).
pub const MIN_USER_ID: u32 = 1000;

/// Default of the smallest system user of users without a system account: in a part of the numbers
/// that distributions and systemd leave unused (TC-22).
pub const FIRST_USER_ID: u32 = 1_900_000_000;
/// Default count of such system users.
pub const USER_IDS: u32 = 65_536;
/// System users at the end of the range that are for programs of Hayward, never for a user.
pub const OWN_USER_IDS: u32 = 256;

/// Everything that an agent needs to start a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Launch {
    pub program: Program,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Absolute path; absent: the container's own directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Milliseconds between the request to end and the forced end.
    pub stop_grace_ms: u64,
    /// W3C trace context of the submission, so that the container's spans can link to it (T5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// W3C trace context of the allocation, the parent of its spans (T5). rm-scheduler sets it at
    /// the grant if the trace is recorded. Absent in a fleet without a trace collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// User and number that the agent chooses the account of the program by. Absent: the program is
    /// from a service of the version before, or a worker of a pool (TC-22).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<LaunchAccount>,
    /// Amounts that the node enforces. Absent: those of the allocation, because the launch is from
    /// a service of the version before, or of a worker of a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LaunchLimits>,
}

/// Requested amounts, which a node enforces exactly. The allocation may be charged with more,
/// because shares are counted in quanta (TC-41).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaunchLimits {
    /// Bytes. 0: not limited.
    pub memory_bytes: u64,
    /// Thousandths of a cpu. 0: not limited.
    pub cpu_milli: u64,
}

impl LaunchLimits {
    pub fn of(requested: &Size) -> Self {
        Self {
            memory_bytes: requested.memory_bytes,
            cpu_milli: requested.cpu_milli,
        }
    }
}

impl Launch {
    /// Returns the size that the node enforces for an allocation with this charge.
    pub fn enforced_size(&self, charged: &Size) -> Size {
        let mut size = charged.clone();
        if let Some(limits) = self.limits {
            (size.memory_bytes, size.cpu_milli) = (limits.memory_bytes, limits.cpu_milli);
        }
        size
    }
}

/// User of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaunchAccount {
    pub user: UserName,
    /// Number that no other user of the fleet ever has, counted from 0.
    pub number: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_canonical_path_is_plain() {
        for good in ["/a", "/srv/data", "/a.b/..c"] {
            assert!(is_plain_path(good), "{good}");
        }
        for bad in [
            "", "/", "a", "/a/", "//a", "/a/../b", "/./a", "/a:b", "/a\0",
        ] {
            assert!(!is_plain_path(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_node_enforces_what_was_requested_and_not_the_charge() {
        let charged = Size::memory(1 << 30);
        let mut launch = Launch {
            program: Program::Command { argv: Vec::new() },
            environment: BTreeMap::new(),
            working_directory: None,
            stop_grace_ms: 0,
            traceparent: None,
            within: None,
            account: None,
            limits: None,
        };
        assert_eq!(launch.enforced_size(&charged), charged);
        let requested = Size {
            cpu_milli: 500,
            ..Size::memory(64 << 20)
        };
        launch.limits = Some(LaunchLimits::of(&requested));
        assert_eq!(launch.enforced_size(&charged), requested);
    }
}
