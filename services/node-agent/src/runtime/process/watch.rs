//! Watching supervisors: own ones by pipe and wait, adopted ones by a handle on the process. No
//! news waits for a clock, except a start that happens while the agent is away, and the word of an
//! adopted one that what it has does not end.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hayward_node_agent_domain::{Stage, Trouble, refusal};
use hayward_service::runtime::clock::offset;
use hayward_vocabulary::{AllocationId, Exit, ExitCause};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::{Event, Processes};
use crate::fault_points::{self, Point};
use crate::files;
use crate::machine::{self, Identity};
use crate::supervisor::{CLAIM, Claim, EXIT, STARTED, STUCK, Started, Stuck};

const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// For a word of a supervisor that cannot end what it has; it has no pipe to a later agent.
const LOOK_SLOWLY: Duration = Duration::from_secs(2);

type Words = Lines<BufReader<ChildStdout>>;

impl Processes {
    /// Starts a supervisor for this directory and stays until it is gone.
    pub(super) async fn supervise(&self, id: AllocationId, incarnation: u64, dir: PathBuf) {
        let mut child = match self.spawn(&dir, incarnation) {
            Ok(child) => child,
            Err(error) => {
                let message = format!("its supervisor cannot be started: {error}");
                let exit = refusal(Stage::Own, error.raw_os_error(), message);
                return self.say(&id, incarnation, Event::Ended(exit)).await;
            }
        };
        // Not yet waited for, so the number is still its own.
        self.hold(&id, child.id().and_then(machine::open));
        let (mut told, mut begun) = (None, false);
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            while let Some(line) = self.heard(&id, &mut lines, begun).await {
                begun = true;
                if let Ok(started) = serde_json::from_str::<Started>(&line) {
                    self.say(&id, incarnation, started.event()).await;
                } else if let Ok(Stuck { stuck }) = serde_json::from_str(&line) {
                    self.say(&id, incarnation, Event::Stuck(stuck)).await;
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

    /// The next word of a supervisor. One that says nothing at all for too long hangs, and is
    /// killed (F31): what can be proven of its launch is then looked for.
    async fn heard(&self, id: &AllocationId, lines: &mut Words, begun: bool) -> Option<String> {
        let next = lines.next_line();
        if begun {
            return next.await.ok().flatten();
        }
        tokio::pin!(next);
        let limit = self.0.conditions.launch_limit;
        if let Ok(line) = tokio::time::timeout(limit, &mut next).await {
            return line.ok().flatten();
        }
        tracing::error!(container = %id, "its launch hangs; its supervisor is killed");
        self.dismiss(id);
        None
    }

    /// Kills a supervisor. False when there is none.
    pub(super) fn dismiss(&self, id: &AllocationId) -> bool {
        let live = self.0.live.lock();
        let supervisor = live.get(id).and_then(|entry| entry.supervisor.as_ref());
        supervisor.is_some_and(|it| pidfd_send_signal(it, Signal::KILL).is_ok())
    }

    fn spawn(&self, dir: &Path, incarnation: u64) -> std::io::Result<Child> {
        let [program, prefix @ ..] = self.0.conditions.command.as_slice() else {
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
            // Not read: it is found by it, whatever becomes of its folder.
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
        let claim = files::read_json::<Claim>(&dir.join(CLAIM));
        let handle = claim
            .and_then(|claim| claim.supervisor)
            .as_ref()
            .and_then(Identity::open);
        let second = handle.as_ref().and_then(|handle| handle.try_clone().ok());
        self.hold(&id, handle);
        if let Some(entry) = self.0.live.lock().get_mut(&id) {
            entry.grace = grace;
        }
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
        let (mut told, mut stuck) = (false, false);
        loop {
            if !told && let Some(started) = files::read_json::<Started>(&dir.join(STARTED)) {
                told = true;
                self.say(id, incarnation, started.event()).await;
            }
            if !stuck && let Some(why) = files::read_json::<Stuck>(&dir.join(STUCK)) {
                stuck = true;
                self.say(id, incarnation, Event::Stuck(why.stuck)).await;
            }
            let pause = if told { LOOK_SLOWLY } else { LOOK_AGAIN };
            tokio::select! {
                _ = handle.readable() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// The supervisor is gone: says how it went. `told` is what it could not write down.
    pub(super) async fn conclude(
        &self,
        (id, incarnation): (&AllocationId, u64),
        dir: &Path,
        told: Option<Exit>,
    ) {
        let mut exit = files::read_json::<Exit>(&dir.join(EXIT)).or(told);
        if exit.is_none() {
            // I17: what a lost supervisor left is not called ended before it is gone.
            self.outlast(id, incarnation, dir).await;
            exit = files::read_json::<Exit>(&dir.join(EXIT));
        }
        let exit = exit.unwrap_or_else(|| {
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
