//! The launchers of a job's process: one for each slot, under the account of the user. Each speaks
//! to the task runner over a socket, whose other end the supervisor sends to the runner.

use std::io::{self, IoSlice, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::LaunchSpec;
use super::children::to_pid;
use super::container_files::ProcessAccount;
use super::spawn::{OwnProgram, Streams};
use crate::cgroups;
use crate::launcher::messages::{self, ToLauncher};
use crate::launcher::run_plan::LauncherContext;
use crate::tasks::{Assignment, is_runner_variable};

/// A launcher that lived for this time is replaced at once. A shorter life may repeat.
const STEADY_LIFE: Duration = Duration::from_secs(1);
/// First and longest pause before a launcher that lived shortly is replaced.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The process is given up if a slot had no launcher for this time.
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

/// The launcher of a slot, and when to start the next one.
struct Slot {
    launcher: Option<Child>,
    started_at: Instant,
    /// Time of the next start, while there is no launcher.
    next_start: Instant,
    pause: Duration,
    /// Start of the current series of failures.
    failing_since: Option<Instant>,
}

pub struct Launchers {
    argv: Vec<String>,
    /// Context of the launchers. Their slots differ.
    context: LauncherContext,
    /// Cgroups of each slot.
    groups: Vec<Vec<PathBuf>>,
    account: ProcessAccount,
    /// Socket to the runner.
    runner: UnixStream,
    /// Output of the container.
    output: PipeWriter,
    slots: Vec<Slot>,
}

impl Launchers {
    /// Prepares the launchers of a task runner, and starts none. `runner` is a socket to it.
    pub fn new(spec: &LaunchSpec, runner: UnixStream, output: PipeWriter) -> io::Result<Self> {
        let assignment = Assignment::from_variables(|name| spec.environment.get(name).cloned());
        let assignment = assignment.map_err(io::Error::other)?;
        let mut argv = spec.argv.clone();
        argv.pop();
        argv.push("launch".to_owned());
        let variables = spec.environment.iter();
        let environment = variables
            .filter(|(name, _)| !is_runner_variable(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let context = LauncherContext {
            node: assignment.node,
            allocation: spec.id.to_string(),
            slot: 0,
            work_dir: spec.working_directory.clone(),
            environment,
            groups: Vec::new(),
            memory_limit_bytes: spec.memory_limit_bytes,
        };
        Ok(Self {
            argv,
            context,
            groups: spec.slot_groups.clone(),
            account: spec.account(),
            runner,
            output,
            slots: (0..assignment.threads).map(|_| Slot::new()).collect(),
        })
    }

    /// Returns whether the process is a launcher.
    pub fn contains(&self, process: Pid) -> bool {
        self.slots.iter().any(|slot| slot.runs(process))
    }

    /// Records the end of a process. Returns true if it was a launcher.
    pub fn record_end(&mut self, ended: Pid) -> bool {
        let slot = self.slots.iter_mut().find(|slot| slot.runs(ended));
        let was_launcher = slot.is_some();
        if let Some(slot) = slot {
            slot.record_end(Instant::now());
        }
        was_launcher
    }

    /// Returns when the next launcher has to be started.
    pub fn next_start(&self) -> Option<Instant> {
        let without = self.slots.iter().filter(|slot| slot.launcher.is_none());
        without.map(|slot| slot.next_start).min()
    }

    /// Starts the launchers that are due. A failure is tried again later.
    ///
    /// # Errors
    /// If a slot has had no launcher for too long.
    pub fn start_due(&mut self) -> io::Result<()> {
        for number in 0..self.slots.len() {
            let now = Instant::now();
            let slot = &self.slots[number];
            if slot.launcher.is_some() || slot.next_start > now {
                continue;
            }
            let started = self.start(number);
            let slot = &mut self.slots[number];
            slot.started_at = now;
            match started {
                Ok(launcher) => slot.launcher = Some(launcher),
                Err(error) => {
                    slot.record_end(now);
                    if slot.has_failed_for(GIVE_UP_AFTER) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&self, slot: usize) -> io::Result<Child> {
        let (near, far) = UnixStream::pair()?;
        let program = OwnProgram {
            argv: &self.argv,
            environment: &self.context.environment,
            account: self.account.clone(),
        };
        let streams = Streams {
            stdin: OwnedFd::from(far).into(),
            stdout: self.output.try_clone()?.into(),
            stderr: self.output.try_clone()?.into(),
        };
        let launcher = program.spawn(streams)?;
        let groups = self.groups.get(slot).cloned().unwrap_or_default();
        // The launcher starts no program before it got a context and the runner got its socket.
        for group in &groups {
            cgroups::join(group, launcher.id())?;
        }
        let context = LauncherContext {
            slot,
            groups,
            ..self.context.clone()
        };
        messages::send(&near, &ToLauncher::Setup(Box::new(context)))?;
        self.send_to_runner(slot, &near)?;
        Ok(launcher)
    }

    fn send_to_runner(&self, slot: usize, launcher: &UnixStream) -> io::Result<()> {
        let number = u32::try_from(slot).map_err(io::Error::other)?.to_le_bytes();
        let files = [launcher.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(
            &self.runner,
            &[IoSlice::new(&number)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }
}

impl Slot {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            launcher: None,
            started_at: now,
            next_start: now,
            pause: FIRST_PAUSE,
            failing_since: None,
        }
    }

    fn runs(&self, process: Pid) -> bool {
        let launcher = self.launcher.as_ref();
        launcher.is_some_and(|launcher| to_pid(launcher.id()) == process)
    }

    fn record_end(&mut self, now: Instant) {
        self.launcher = None;
        if now.duration_since(self.started_at) >= STEADY_LIFE {
            self.pause = FIRST_PAUSE;
            self.failing_since = None;
            self.next_start = now;
        } else {
            self.failing_since.get_or_insert(now);
            self.next_start = now + self.pause;
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
    }

    fn has_failed_for(&self, time: Duration) -> bool {
        self.failing_since
            .is_some_and(|since| since.elapsed() >= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_that_ends_soon_is_replaced_after_growing_pauses() {
        let mut slot = Slot::new();
        let begin = slot.started_at;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            slot.record_end(begin);
            pauses.push(slot.next_start.duration_since(begin).as_millis());
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        let later = begin + STEADY_LIFE;
        slot.record_end(later);
        assert_eq!(
            slot.next_start, later,
            "a steady launcher is replaced at once"
        );
        slot.record_end(begin);
        assert_eq!(slot.next_start, begin + FIRST_PAUSE);
    }
}
