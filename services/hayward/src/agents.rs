//! Node agents as child processes of `hayward up`. Each agent is a separate process, so that
//! killing it has the effect of losing a node.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use hayward_service::Keys;
use hayward_vocabulary::NodeName;
use hayward_vocabulary::resources::GIB;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::local_services::Addresses;
use crate::prepare;
use crate::remote_connection_flags::RemoteEndpoints;

/// Time that a terminating agent has to end its containers and itself. The agent is killed after
/// that time.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Memory of the machine in KiB if `/proc/meminfo` cannot be read: 4 GiB.
const DEFAULT_MEMORY_KIB: u64 = 4 << 20;

/// Common parameters of the agents to start.
pub struct AgentLauncher<'a> {
    pub addresses: &'a Addresses,
    pub keys: &'a Keys,
    /// Parent of the journal directories, one for each agent.
    pub dir: &'a Path,
    /// Socket of the container engine that the agents may use.
    pub docker: Option<&'a Path>,
    /// Directories below which containers of the agents may get the mounts that a pool lists.
    pub docker_mountable: &'a [String],
    /// Telemetry collector of the agents, and whether it may be used without TLS.
    pub remote_endpoints: &'a RemoteEndpoints,
    pub log: Stdio,
}

/// A running agent process.
pub struct Agent {
    pub node: NodeName,
    child: Child,
}

impl AgentLauncher<'_> {
    /// Starts one agent, which offers one of `parts` equal parts of the machine's memory.
    pub fn start(self, node: NodeName, parts: u64) -> anyhow::Result<Agent> {
        let dir: PathBuf = self.dir.join(node.as_str());
        std::fs::create_dir_all(&dir)?;
        let token = prepare::create_agent_token(self.keys, &node)?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command
            .args(["node-agent", "agent"])
            // The settings of this process do not apply to the agent.
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| is_inherited(name)))
            .env("HAYWARD_NODE", node.as_str())
            .env("HAYWARD_TOKEN_FILE", token)
            .env("HAYWARD_STATE_DIR", dir)
            .env("HAYWARD_RUNTIME", "process")
            .env(
                "HAYWARD_MEMORY_BYTES",
                memory_of_one_part(parts).to_string(),
            )
            .env("HAYWARD_NODE_STATUS_URL", &self.addresses.node_status)
            .env(
                "HAYWARD_CONTAINER_MANAGER_URL",
                &self.addresses.container_manager,
            )
            .env("HAYWARD_JOB_CONVERTER_URL", &self.addresses.job_converter)
            .env("HAYWARD_END_CONTAINERS_ON_EXIT", "true")
            .envs(self.docker.map(|socket| ("HAYWARD_DOCKER_SOCKET", socket)))
            .envs(
                self.mountable_dirs()
                    .map(|dirs| ("HAYWARD_DOCKER_MOUNTABLE", dirs)),
            )
            .envs(self.remote_endpoints.environment())
            .env(END_WITH_PARENT, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log)
            // Ctrl-C goes to the parent only, which ends its agents in order.
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start the agent of {node}"))?;
        Ok(Agent { node, child })
    }

    /// Returns the mountable directories as the value of one setting.
    fn mountable_dirs(&self) -> Option<String> {
        let has_dirs = !self.docker_mountable.is_empty();
        has_dirs.then(|| serde_json::json!(self.docker_mountable).to_string())
    }
}

/// Environment variable of agents that must end with their fleet.
pub const END_WITH_PARENT: &str = "HAYWARD_INTERNAL_END_WITH_PARENT";

fn is_inherited(name: &std::ffi::OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| !name.starts_with("HAYWARD_") && name != "DATABASE_URL")
}

/// Returns the bytes of one of `parts` equal parts of the machine's memory, in whole GiB. One tenth
/// of the memory is left for other programs.
fn memory_of_one_part(parts: u64) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total_kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<u64>().ok())
        .unwrap_or(DEFAULT_MEMORY_KIB);
    let part_bytes = total_kib * 1024 / 10 * 9 / parts.max(1);
    (part_bytes / GIB).max(1) * GIB
}

impl Agent {
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns the exit status, or `None` while the agent runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills the agent without warning, like a crash. The containers of the agent run on.
    pub async fn kill(mut self) -> std::io::Result<()> {
        self.child.kill().await
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid().and_then(|pid| i32::try_from(pid).ok()) {
            // The child is not yet reaped, so its process id is not reused.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// Ends all agents in parallel: first with a signal, then by force.
pub async fn stop(mut agents: Vec<Agent>) {
    for agent in &agents {
        agent.signal(Signal::SIGTERM);
    }
    let deadline = tokio::time::Instant::now() + STOP_TIMEOUT;
    for agent in &mut agents {
        if tokio::time::timeout_at(deadline, agent.child.wait())
            .await
            .is_err()
        {
            tracing::warn!(node = %agent.node, "the agent did not end in time");
            // An error means that the agent has ended meanwhile.
            drop(agent.child.kill().await);
        }
    }
}
