//! A program that runs, with its process group and its output.
//!
//! No code runs between fork and exec. The leader of a group is waited for only after the rest of
//! the group was killed, so its process id cannot be reused before.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use hayward_job_converter_api::signals::TaskSignal;
use hayward_node_agent_domain::{RunSignals, SignalStep};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wait4::{ResUse, Wait4 as _};

use super::last_words::LastWords;
use super::run_plan::RunPlan;
use super::tee::Tee;
use crate::lease::boottime_ms;
use crate::process_identity;

/// Milliseconds between two looks at the processes that a stopped program left. Each look reads the
/// states of all processes of the node.
const GROUP_CHECK_MS: u64 = 50;
/// Longest wait in milliseconds while a signal is due later. The kernel waits by a clock that stops
/// while the node is suspended, and limits go on (TC-103).
const MAX_WAIT_MS: u64 = 1_000;
/// Maximum number of reads after the end of a program. A pipe holds less than they read.
const MAX_FINAL_READS: usize = 64;

/// Starts the program of a run with its three standard streams.
pub fn start(plan: &RunPlan, [stdin, stdout, stderr]: [Stdio; 3]) -> io::Result<Child> {
    let [program, arguments @ ..] = plan.argv.as_slice() else {
        return Err(io::Error::other("the argument vector is empty"));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&plan.environment)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    if let Some(directory) = &plan.working_directory {
        command.current_dir(directory);
    }
    command.spawn()
}

/// A program that runs.
pub struct LiveRun {
    child: Child,
    group: Pid,
    /// Handle on the program, which is the leader of its group.
    handle: OwnedFd,
    /// `None` at the end of the stream, or if all output goes elsewhere.
    reader: Option<PipeReader>,
    pub signals: RunSignals,
    has_ended: bool,
    /// Time of the next look at the other processes of the group.
    next_group_check_ms: u64,
    pub last_words: LastWords,
    tee: Tee,
}

/// Events that ended a wait.
#[derive(Default)]
pub struct Events {
    /// Whether a message of the runner can be read.
    pub has_message: bool,
    pub is_readable: bool,
}

impl LiveRun {
    pub fn new(
        mut child: Child,
        reader: Option<PipeReader>,
        signals: RunSignals,
        tee: Tee,
    ) -> Result<Self, String> {
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        let Some(handle) = process_identity::open_pidfd(child.id()) else {
            let _ = killpg(group, Signal::SIGKILL);
            let _ = child.wait();
            return Err("cannot open a handle on the process".to_owned());
        };
        Ok(Self {
            child,
            group,
            handle,
            reader,
            signals,
            has_ended: false,
            next_group_check_ms: 0,
            last_words: LastWords::default(),
            tee,
        })
    }

    /// Waits for the end of the program, output, a message on `socket`, or the next signal.
    pub fn wait_for_event(&mut self, socket: Option<BorrowedFd<'_>>) -> Events {
        let now_ms = boottime_ms();
        let check_at_ms = self.has_ended.then_some(self.next_group_check_ms);
        let signal_at_ms = self.signals.next_at_ms();
        let wake_at_ms = signal_at_ms.into_iter().chain(check_at_ms).min();
        let limit = wake_at_ms.map(|at| to_timespec(at.saturating_sub(now_ms).min(MAX_WAIT_MS)));
        let handle = (!self.has_ended).then(|| self.handle.as_fd());
        let reader = self.reader.as_ref().map(|reader| reader.as_fd());
        let sources = [handle, reader, socket];
        let mut fds: Vec<_> = sources
            .into_iter()
            .flatten()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let _ = poll(&mut fds, limit.as_ref());
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut take_next = |is_polled| is_polled && ready.next().unwrap_or(false);
        let has_ended = take_next(handle.is_some());
        let events = Events {
            is_readable: take_next(reader.is_some()),
            has_message: take_next(socket.is_some()),
        };
        self.has_ended |= has_ended;
        events
    }

    pub fn read_output(&mut self) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        if !self.last_words.read_available(reader, &mut self.tee) {
            self.reader = None;
        }
    }

    /// Sends a signal of a user to the process group.
    pub fn send_signal(&self, signal: i32) {
        if let Ok(signal) = Signal::try_from(signal) {
            let _ = killpg(self.group, signal);
        }
    }

    pub fn send(&self, step: SignalStep, plan: &RunPlan) {
        let _ = match step {
            SignalStep::Warn => killpg(self.group, to_signal(plan.warn_signal)),
            // A stopped process handles the signal only after it continues (TC-105).
            SignalStep::Stop => killpg(self.group, to_signal(plan.stop_signal))
                .and_then(|()| killpg(self.group, Signal::SIGCONT)),
            SignalStep::Kill => killpg(self.group, Signal::SIGKILL),
        };
    }

    /// Returns true if the program has ended and need not be waited for any longer: it ended by
    /// itself, it was killed, or no other process of its group is alive.
    pub fn is_over(&mut self, now_ms: u64) -> bool {
        if !self.has_ended {
            return false;
        }
        if self.signals.stop_reason().is_none() || self.signals.is_killed() {
            return true;
        }
        if now_ms < self.next_group_check_ms {
            return false;
        }
        self.next_group_check_ms = now_ms + GROUP_CHECK_MS;
        !process_identity::has_live_member(self.child.id())
    }

    /// Ends the other processes of the group, and returns the status of the program and what it
    /// used. The leader was not yet waited for, so the number of the group is still its own.
    pub fn finish(&mut self) -> io::Result<ResUse> {
        let _ = killpg(self.group, Signal::SIGKILL);
        // Output that was written before the end is read. A process outside the group may write for
        // ever.
        for _ in 0..MAX_FINAL_READS {
            let reader = self.reader.as_ref();
            if !reader.is_some_and(|reader| is_readable(reader.as_fd())) {
                break;
            }
            self.read_output();
        }
        self.tee.finish();
        self.child.wait4()
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

fn to_timespec(ms: u64) -> Timespec {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: ms / 1_000,
        tv_nsec: (ms % 1_000) * 1_000_000,
    }
}

fn to_signal(signal: TaskSignal) -> Signal {
    match signal {
        TaskSignal::Term => Signal::SIGTERM,
        TaskSignal::Int => Signal::SIGINT,
        TaskSignal::Hup => Signal::SIGHUP,
        TaskSignal::Quit => Signal::SIGQUIT,
        TaskSignal::Usr1 => Signal::SIGUSR1,
        TaskSignal::Usr2 => Signal::SIGUSR2,
        TaskSignal::Alrm => Signal::SIGALRM,
        TaskSignal::Cont => Signal::SIGCONT,
    }
}
