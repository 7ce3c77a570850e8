//! A fleet of separate processes: two replicas of each service, four agents, a private Postgres,
//! and a relay on every connection between them.

pub mod container_processes;
mod disks;
mod postgres;
pub mod relays;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use hayward_service::{Client, Keys, TokenSource};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::plan::{Actor, Agent, Caller, Disk, Replica, Service};
use disks::Disks;
use postgres::Postgres;
use relays::Relays;

pub use start::{LOST_MS, start};

/// Time limit of a wait for a state. It is longer than any state needs on a busy machine.
pub const TIMEOUT: Duration = Duration::from_mins(4);

pub struct Fleet {
    /// Folder with all files of the fleet.
    pub dir: PathBuf,
    /// Path of the program `hayward`.
    pub program: PathBuf,
    pub keys: Keys,
    pub relays: Relays,
    pub postgres: Postgres,
    pub disks: Disks,
    ports: BTreeMap<Replica, u16>,
    running: BTreeMap<Actor, Child>,
    paused: BTreeSet<Actor>,
    /// Processes that ended without being killed, and were restarted.
    pub unexpected_exits: Vec<UnexpectedExit>,
}

/// A process that ended without being killed.
#[derive(Debug, Clone)]
pub struct UnexpectedExit {
    pub actor: Actor,
    pub status: ExitStatus,
    /// Beginning of the last line in the log of the process.
    pub last_log_line: String,
}

impl fmt::Display for UnexpectedExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.actor, self.status, self.last_log_line)
    }
}

impl Fleet {
    /// Returns a client for a service through the relays of users. `token` is the name of its
    /// token.
    pub fn client(&self, service: Service, token: &str) -> anyhow::Result<Client> {
        let token = TokenSource::file(self.keys.token_path(token));
        Client::from_list(&self.relays.urls(Caller::Users, service), token)
    }

    /// Returns a client of one replica, without a relay.
    pub fn replica_client(&self, replica: Replica, token: &str) -> anyhow::Result<Client> {
        let token = TokenSource::file(self.keys.token_path(token));
        Client::from_list(&format!("http://127.0.0.1:{}", self.ports[&replica]), token)
    }

    pub fn is_up(&self, actor: Actor) -> bool {
        self.running.contains_key(&actor)
    }

    pub fn is_paused(&self, actor: Actor) -> bool {
        self.paused.contains(&actor)
    }

    /// Kills a process with `kill -9`, and waits until it is gone.
    pub fn kill(&mut self, actor: Actor) -> anyhow::Result<()> {
        let Some(mut child) = self.running.remove(&actor) else {
            return Ok(());
        };
        self.paused.remove(&actor);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    pub fn pause(&mut self, actor: Actor) -> anyhow::Result<()> {
        self.signal(actor, Signal::SIGSTOP)?;
        self.paused.insert(actor);
        Ok(())
    }

    pub fn resume(&mut self, actor: Actor) -> anyhow::Result<()> {
        if self.paused.remove(&actor) {
            self.signal(actor, Signal::SIGCONT)?;
        }
        Ok(())
    }

    fn signal(&self, actor: Actor, signal: Signal) -> anyhow::Result<()> {
        let child = self.running.get(&actor);
        let child = child.with_context(|| format!("{actor} is down"))?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        kill(pid, signal).with_context(|| format!("{signal} to {actor}"))
    }

    /// Restarts processes that ended without being killed, as a supervisor of services would, and
    /// records them.
    pub fn restart_ended(&mut self) -> anyhow::Result<()> {
        let mut ended = Vec::new();
        for (actor, child) in &mut self.running {
            if let Some(status) = child.try_wait()? {
                ended.push((*actor, status));
            }
        }
        for (actor, status) in ended {
            let last_log_line = self.last_line(actor);
            self.unexpected_exits.push(UnexpectedExit {
                actor,
                status,
                last_log_line,
            });
            self.running.remove(&actor);
            self.paused.remove(&actor);
            self.start(actor)?;
        }
        Ok(())
    }

    fn last_line(&self, actor: Actor) -> String {
        let log = std::fs::read(self.dir.join("logs").join(format!("{actor}.log")));
        let text = log.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().last().unwrap_or_default();
        last.chars().take(300).collect()
    }

    /// Returns the state folder of an agent.
    pub fn agent_folder(&self, agent: Agent) -> &Path {
        self.disks.folder(Disk::Agent(agent))
    }

    /// Returns the file with the offset of the clock of a process, in milliseconds.
    pub fn clock_file(&self, actor: Actor) -> PathBuf {
        self.dir.join("clocks").join(actor.to_string())
    }

    /// Runs `hayward` as an operator would. Returns its status and all its output.
    pub async fn run_hayward(&self, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
        let mut command = self.command(Caller::Users);
        command
            .args(arguments)
            .env("HAYWARD_STATE", &self.dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let text = [output.stdout, output.stderr].concat();
        Ok((
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        ))
    }

    /// Returns a command with the addresses of this caller and an otherwise empty environment.
    fn command(&self, caller: Caller) -> Command {
        let mut command = Command::new(&self.program);
        let inherited =
            std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("HAYWARD_"));
        command.env_clear().envs(inherited).stdin(Stdio::null());
        for service in Service::ALL {
            let is_agent = matches!(caller, Caller::Actor(Actor::Agent(_)));
            if is_agent && matches!(service, Service::RmScheduler | Service::Blocklist) {
                continue;
            }
            let name = service.name().replace('-', "_").to_uppercase();
            command.env(
                format!("HAYWARD_{name}_URL"),
                self.relays.urls(caller, service),
            );
        }
        command
    }

    /// Ends all processes and unmounts all disks. With `keep_folder`, the folder of the fleet
    /// stays.
    pub async fn shut_down(mut self, keep_folder: bool) -> anyhow::Result<()> {
        for agent in Agent::all() {
            self.kill(Actor::Agent(agent))?;
        }
        self.end_containers();
        for replica in Replica::all() {
            self.kill(Actor::Service(replica))?;
        }
        self.postgres.stop().await;
        self.disks.unmount(keep_folder)?;
        if !keep_folder {
            std::fs::remove_dir_all(&self.dir)?;
        }
        Ok(())
    }

    /// Ends the processes in containers after the last agent has ended.
    fn end_containers(&self) {
        for signal in [Signal::SIGCONT, Signal::SIGKILL] {
            for process in container_processes::list(&self.dir) {
                process.signal(signal);
            }
        }
    }

    /// Returns the lines of logs that report a panic.
    pub fn panic_lines(&self) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.dir.join("logs"))? {
            let path = entry?.path();
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            let lines = text.lines().filter(|line| line.contains("panicked at"));
            found.extend(lines.map(|line| format!("{}: {line}", path.display())));
        }
        Ok(found)
    }
}

impl Drop for Fleet {
    // A fleet without an orderly shutdown must not leave any process.
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = (child.kill(), child.wait());
        }
        self.end_containers();
        let _ = self.disks.unmount(true);
    }
}

/// Polls until `probe` succeeds. If the limit is over, returns the error of the last attempt.
pub async fn poll_until<T>(
    description: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> anyhow::Result<T> {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(reason) if tokio::time::Instant::now() >= deadline => {
                bail!("waited {limit:?} for {description}: {reason}")
            }
            Err(_) => {}
        }
        let next_attempt = tokio::time::Instant::now() + Duration::from_millis(100);
        tokio::time::sleep_until(next_attempt).await;
    }
}
