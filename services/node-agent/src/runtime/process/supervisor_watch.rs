//! Watches the supervisors of containers. A supervisor that this agent started is watched by a
//! pipe. An adopted supervisor, which an earlier agent started, is watched by a process handle and
//! by polling its files.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hayward_node_agent_domain::{NodeFault, Stage, exit_for_failed_start};
use hayward_service::runtime::clock::offset;
use hayward_vocabulary::{AllocationId, Exit, ExitCause};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::{Event, Processes};
use crate::atomic_files;
use crate::fault_points::{self, Point};
use crate::process_identity::{self, ProcessIdentity};
use crate::supervisor::{CLAIM, Claim, EXIT, STARTED, STUCK, Started, Stuck};

/// Poll interval for the start of the program under an adopted supervisor.
const START_POLL: Duration = Duration::from_millis(20);
/// Poll interval for the stuck message of an adopted supervisor, which has no pipe to this agent.
const STUCK_POLL: Duration = Duration::from_secs(2);

type MessageLines = Lines<BufReader<ChildStdout>>;

impl Processes {
    /// Starts a supervisor for this directory and watches it until its end.
    pub(super) async fn supervise(&self, id: AllocationId, incarnation: u64, dir: PathBuf) {
        let mut child = match self.spawn(&dir, incarnation) {
            Ok(child) => child,
            Err(error) => {
                let message = format!("its supervisor cannot be started: {error}");
                let exit = exit_for_failed_start(Stage::Setup, error.raw_os_error(), message);
                return self.send_event(&id, incarnation, Event::Ended(exit)).await;
            }
        };
        // The supervisor was not yet waited for, so its process id cannot be reused.
        self.store_handle(&id, child.id().and_then(process_identity::open_pidfd));
        let (mut exit, mut first_received) = (None, false);
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            while let Some(line) = self.next_message(&id, &mut lines, first_received).await {
                first_received = true;
                if let Ok(started) = serde_json::from_str::<Started>(&line) {
                    self.send_event(&id, incarnation, started.to_event()).await;
                } else if let Ok(Stuck { stuck }) = serde_json::from_str(&line) {
                    self.send_event(&id, incarnation, Event::Stuck(stuck)).await;
                } else {
                    exit = serde_json::from_str::<Exit>(&line).ok();
                }
            }
        }
        if let Err(error) = child.wait().await {
            tracing::warn!(container = %id, %error, "a supervisor cannot be waited for");
        }
        self.finish(&id, incarnation, &dir, exit).await;
    }

    /// Returns the next message of a supervisor. If there is no first message within the launch
    /// limit, the supervisor is killed (F31).
    async fn next_message(
        &self,
        id: &AllocationId,
        lines: &mut MessageLines,
        first_received: bool,
    ) -> Option<String> {
        let next_line = lines.next_line();
        if first_received {
            return next_line.await.ok().flatten();
        }
        tokio::pin!(next_line);
        let limit = self.0.settings.launch_limit;
        if let Ok(line) = tokio::time::timeout(limit, &mut next_line).await {
            return line.ok().flatten();
        }
        tracing::error!(container = %id, "the launch hangs; its supervisor is killed");
        self.kill_supervisor(id);
        None
    }

    /// Kills a supervisor. Returns false if there is none.
    pub(super) fn kill_supervisor(&self, id: &AllocationId) -> bool {
        let live = self.0.live.lock();
        let supervisor = live.get(id).and_then(|entry| entry.supervisor.as_ref());
        supervisor.is_some_and(|handle| pidfd_send_signal(handle, Signal::KILL).is_ok())
    }

    fn spawn(&self, dir: &Path, incarnation: u64) -> std::io::Result<Child> {
        let [program, prefix @ ..] = self.0.settings.command.as_slice() else {
            return Err(std::io::Error::other(
                "no command to start a supervisor with",
            ));
        };
        fault_points::pass(Point::SpawnBefore);
        let mut command = Command::new(program);
        command
            .args(prefix)
            .arg("supervise")
            .arg(dir)
            // This argument is only a mark by which the process can be found.
            .arg(incarnation.to_string())
            .env_clear()
            .envs(offset::variable())
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        #[cfg(feature = "fault-points")]
        command.envs(fault_points::VARIABLES.iter().filter_map(|name| {
            let value = std::env::var(name).ok()?;
            Some((name, value))
        }));
        let child = command.spawn();
        fault_points::pass(Point::SpawnAfter);
        child
    }

    /// Watches a supervisor that an earlier agent started.
    pub(super) fn adopt(&self, id: AllocationId, incarnation: u64, dir: PathBuf, grace: Duration) {
        let claim = atomic_files::read_json::<Claim>(&dir.join(CLAIM));
        let handle = claim
            .and_then(|claim| claim.supervisor)
            .as_ref()
            .and_then(ProcessIdentity::open);
        let handle_copy = handle.as_ref().and_then(|handle| handle.try_clone().ok());
        self.store_handle(&id, handle);
        if let Some(entry) = self.0.live.lock().get_mut(&id) {
            entry.grace = grace;
        }
        let runtime = self.clone();
        tokio::spawn(async move {
            if let Some(handle) = handle_copy.and_then(to_async_fd) {
                runtime.watch(&id, incarnation, &dir, handle).await;
            }
            runtime.finish(&id, incarnation, &dir, None).await;
        });
    }

    /// Watches an adopted supervisor until its end, and reports the start of the program.
    async fn watch(
        &self,
        id: &AllocationId,
        incarnation: u64,
        dir: &Path,
        handle: AsyncFd<OwnedFd>,
    ) {
        let (mut start_reported, mut stuck_reported) = (false, false);
        loop {
            if !start_reported
                && let Some(started) = atomic_files::read_json::<Started>(&dir.join(STARTED))
            {
                start_reported = true;
                self.send_event(id, incarnation, started.to_event()).await;
            }
            if !stuck_reported
                && let Some(message) = atomic_files::read_json::<Stuck>(&dir.join(STUCK))
            {
                stuck_reported = true;
                self.send_event(id, incarnation, Event::Stuck(message.stuck))
                    .await;
            }
            let pause = if start_reported {
                STUCK_POLL
            } else {
                START_POLL
            };
            tokio::select! {
                _ = handle.readable() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Reports the end after the supervisor is gone. `sent_exit` is an exit that the supervisor
    /// could not write.
    pub(super) async fn finish(
        &self,
        id: &AllocationId,
        incarnation: u64,
        dir: &Path,
        sent_exit: Option<Exit>,
    ) {
        let mut exit = atomic_files::read_json::<Exit>(&dir.join(EXIT)).or(sent_exit);
        if exit.is_none() {
            // The container has not ended before all its processes are gone (I17).
            self.wait_until_gone(id, incarnation, dir).await;
            exit = atomic_files::read_json::<Exit>(&dir.join(EXIT));
        }
        let exit = exit.unwrap_or_else(|| {
            let started = dir.join(STARTED).exists();
            let claimed = dir.join(CLAIM).exists();
            match (started, claimed) {
                (_, false) if self.stop_requested(id) => {
                    Exit::of(ExitCause::Intended, "it was asked to end before it started")
                }
                (true, _) => Exit::of(ExitCause::Node, "its supervisor was lost"),
                (false, false) => NodeFault::RuntimeDown.to_exit("its supervisor never began"),
                (false, true) => Exit::of(
                    ExitCause::LaunchUnknown,
                    "its supervisor was lost during the launch",
                ),
            }
        });
        self.send_event(id, incarnation, Event::Ended(exit)).await;
    }
}

#[expect(
    deprecated,
    reason = "the handle owns its descriptor for as long as it is listened to"
)]
fn to_async_fd(handle: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::new(handle).ok()
}

impl Started {
    fn to_event(&self) -> Event {
        Event::Started {
            pid: self.program.pid,
            at: self.at,
        }
    }
}
