//! The files in the directory of a container: the order of the agent, and what its supervisor has
//! done.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hayward_vocabulary::{AllocationId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::process_identity::ProcessIdentity;

/// File with the [`LaunchSpec`], written by the agent.
pub const ORDER: &str = "order.json";
/// File with the [`Claim`]. It is created exactly once.
pub const CLAIM: &str = "claim.json";
/// File with the [`Started`] record, written by the supervisor.
pub const STARTED: &str = "started.json";
/// File with the exit of the container, written when all its processes have ended.
pub const EXIT: &str = "exit.json";

/// The order of a container. The agent writes it to a private file, because it may contain tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchSpec {
    pub id: AllocationId,
    pub incarnation: u64,
    pub epoch: u64,
    pub argv: Vec<String>,
    /// Complete environment. The program inherits no other variable (S17).
    pub environment: BTreeMap<String, String>,
    pub working_directory: PathBuf,
    pub stop_grace_ms: u64,
    pub output_limit_bytes: u64,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// User and group id of the task runner, if its account is not that of the programs.
    #[serde(default)]
    pub runner_uid: Option<u32>,
    /// Groups of the account besides its primary group.
    #[serde(default)]
    pub further_groups: Vec<u32>,
    /// Paths of the cgroups to join.
    pub groups: Vec<PathBuf>,
    /// Cgroups of each slot of a task runner. Empty if its launchers stay in `groups`.
    #[serde(default)]
    pub slot_groups: Vec<Vec<PathBuf>>,
    /// Memory that the programs may use.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
    /// Maximum number of processes of the account. `None` if a cgroup limits them.
    #[serde(default)]
    pub processes_limit: Option<u64>,
    /// Boot under which the container was ordered. Empty if an old agent wrote it.
    #[serde(default)]
    pub boot_id: String,
    /// Whether the working directory is the default one, which the account may not be able to
    /// reach. The supervisor enters it before it drops privileges.
    #[serde(default)]
    pub own_directory: bool,
    /// Whether the program is the task runner of Hayward. A failed start is then never the user's
    /// fault.
    #[serde(default)]
    pub own_program: bool,
    /// Path of the lease file of the node, for exclusive work.
    #[serde(default)]
    pub lease: Option<PathBuf>,
}

/// Account of a process. `None` is the account of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessAccount {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Groups besides the primary group.
    pub further_groups: Vec<u32>,
}

impl LaunchSpec {
    /// Returns the account of the programs of the user.
    pub fn account(&self) -> ProcessAccount {
        ProcessAccount {
            uid: self.uid,
            gid: self.gid,
            further_groups: self.further_groups.clone(),
        }
    }

    /// Returns the account of the task runner.
    pub fn runner_account(&self) -> ProcessAccount {
        match self.runner_uid {
            None => self.account(),
            uid => ProcessAccount {
                uid,
                gid: uid,
                further_groups: Vec::new(),
            },
        }
    }
}

/// Record that the program has started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    pub program: ProcessIdentity,
    pub at: Timestamp,
}

/// Record of which process has claimed a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    /// Supervisor of the directory. `None` if an agent claimed it, so that no supervisor begins.
    pub supervisor: Option<ProcessIdentity>,
}
