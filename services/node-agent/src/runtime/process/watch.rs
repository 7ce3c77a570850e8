//! Watching supervisors: own ones by pipe and wait, adopted ones by a handle on the process. No
//! news waits for a clock, except a start that happens while the agent is away.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hayward_node_agent_domain::{Stage, Trouble, refusal};
use hayward_vocabulary::{AllocationId, Exit, ExitCause};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{Event, Processes};
use crate::files;
use crate::machine::{self, Identity};
use crate::supervisor::{CLAIM, Claim, EXIT, STARTED, Started};

/// Looks for members of a group that is being ended: those killed first may have had children.
const PASSES: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Processes {
    /// Starts a supervisor for this directory and stays until it is gone.
    pub(super) async fn supervise(&self, id: AllocationId, incarnation: u64, dir: PathBuf) {
        let mut child = match self.spawn(&dir) {
            Ok(child) => child,
            Err(error) => {
                let message = format!("its supervisor cannot be started: {error}");
                let exit = refusal(Stage::Own, error.raw_os_error(), message);
                return self.say(&id, incarnation, Event::Ended(exit)).await;
            }
        };
        // Not yet waited for, so the number is still its own.
        self.hold(&id, child.id().and_then(machine::open));
        let mut told = None;
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(started) = serde_json::from_str::<Started>(&line) {
                    self.say(&id, incarnation, started.event()).await;
                } else {
                    told = serde_json::from_str::<Exit>(&line).ok();
                }
            }
        }
        if let Err(error) = child.wait().await {
            tracing::warn!(container = %id, %error, "a supervisor cannot be waited for");
        }
        self.conclude((&id, incarnation), &dir, told).await;
    }

    fn spawn(&self, dir: &Path) -> std::io::Result<Child> {
        let [program, prefix @ ..] = self.0.conditions.command.as_slice() else {
            return Err(std::io::Error::other(
                "no command to start a supervisor with",
            ));
        };
        Command::new(program)
            .args(prefix)
            .arg("supervise")
            .arg(dir)
            .env_clear()
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    }

    /// Watches a supervisor that an earlier agent started.
    pub(super) fn adopt(&self, id: AllocationId, incarnation: u64, dir: PathBuf) {
        let claim = files::read_json::<Claim>(&dir.join(CLAIM));
        let handle = claim
            .and_then(|claim| claim.supervisor)
            .as_ref()
            .and_then(Identity::open);
        let second = handle.as_ref().and_then(|handle| handle.try_clone().ok());
        self.hold(&id, handle);
        let runtime = self.clone();
        tokio::spawn(async move {
            if let Some(handle) = second.and_then(listen) {
                runtime.watch(&id, incarnation, &dir, handle).await;
            }
            runtime.conclude((&id, incarnation), &dir, None).await;
        });
    }

    /// Until it is gone. If the program did not run yet, says when it does.
    async fn watch(
        &self,
        id: &AllocationId,
        incarnation: u64,
        dir: &Path,
        handle: AsyncFd<OwnedFd>,
    ) {
        let mut told = false;
        loop {
            if !told && let Some(started) = files::read_json::<Started>(&dir.join(STARTED)) {
                told = true;
                self.say(id, incarnation, started.event()).await;
            }
            tokio::select! {
                _ = handle.readable() => return,
                () = tokio::time::sleep(LOOK_AGAIN), if !told => {}
            }
        }
    }

    /// The supervisor is gone: says how it went. `told` is what it could not write down.
    async fn conclude(
        &self,
        (id, incarnation): (&AllocationId, u64),
        dir: &Path,
        told: Option<Exit>,
    ) {
        let exit = files::read_json::<Exit>(&dir.join(EXIT)).or(told);
        let exit = exit.unwrap_or_else(|| {
            self.end_remains(id, dir);
            let started = dir.join(STARTED).exists();
            let claimed = dir.join(CLAIM).exists();
            match (started, claimed) {
                (_, false) if self.stop_asked(id) => {
                    Exit::of(ExitCause::Intended, "it was asked to end before it started")
                }
                (true, _) => Exit::of(ExitCause::Node, "its supervisor was lost"),
                (false, false) => Trouble::RuntimeDown.exit("its supervisor never began"),
                (false, true) => Exit::of(
                    ExitCause::LaunchUnknown,
                    "its supervisor was lost during the launch",
                ),
            }
        });
        self.say(id, incarnation, Event::Ended(exit)).await;
    }

    /// Ends what a lost supervisor left, and nothing else: members of the container's own control
    /// groups, and of the process group whose leader is known by more than its number (R10).
    pub(super) fn end_remains(&self, id: &AllocationId, dir: &Path) {
        for pid in self.0.conditions.groups.members(id) {
            let handle = machine::open(pid);
            // Looked at again with the handle open: the number may have moved on in between.
            let still = self.0.conditions.groups.members(id).contains(&pid);
            if let Some(handle) = handle.filter(|_| still) {
                let _ = pidfd_send_signal(&handle, Signal::KILL);
            }
        }
        if let Some(started) = files::read_json::<Started>(&dir.join(STARTED)) {
            end_group(&started.program);
        }
    }
}

/// Ends a process group, its leader last: while it is there, its number names this group and no
/// other, and while it is stopped, it adds nobody.
fn end_group(leader: &Identity) {
    if !leader.signal(Signal::STOP) {
        return;
    }
    for _ in 0..PASSES {
        let members = machine::group_of(leader);
        if members.is_empty() {
            break;
        }
        for member in members {
            member.signal(Signal::KILL);
        }
    }
    leader.signal(Signal::KILL);
}

#[expect(
    deprecated,
    reason = "the handle owns its descriptor for as long as it is listened to"
)]
fn listen(handle: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::new(handle).ok()
}

impl Started {
    fn event(&self) -> Event {
        Event::Started {
            pid: self.program.pid,
            at: self.at,
        }
    }
}
