//! `supervise DIR`: a small process around one container. It outlives the agent.
//!
//! The supervisor starts the program once, stores the output within a limit, and ends the program
//! on request. Then it kills all processes that the program leaves, and writes the exit. It uses no
//! async runtime and no network.
//!
//! Invariants:
//! - At most one supervisor claims a directory, so the program starts at most once (I3).
//! - `exit.json` appears only when all processes of the container have ended.
//! - If a stop is requested before the start, the program does not start.
//! - Exclusive work neither starts nor runs without a lease, even without an agent.

mod children;
mod container_files;
mod further_groups;
mod kill_retry;
mod launchers;
mod lease_watch;
mod output;
mod sandbox;
mod signals;
mod spawn;

use std::io::{self, PipeWriter, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hayward_node_agent_domain::{LeaseAction, NodeFault, Stage, exit_for_failed_start};
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use hayward_vocabulary::{Exit, ExitCause};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::atomic_files;
use crate::cgroups::{self, memory_limit};
use crate::fault_points::{self, Point};
use crate::lease::boottime_ms;
use crate::process_identity::ProcessIdentity;
use children::{end_children_except, kill_children, reap_others, to_pid};
use kill_retry::KillRetry;
use launchers::Launchers;
use lease_watch::WatchedLease;
use output::Output;
use signals::Signals;
use spawn::{OwnProgram, Streams};

pub use container_files::{CLAIM, Claim, EXIT, LaunchSpec, ORDER, STARTED, Started};
pub use kill_retry::{STUCK, Stuck, stuck_reason};

/// Runs the supervisor of the container with this directory, until the container has ended.
pub fn main(dir: &Path) -> ExitCode {
    match supervise(dir) {
        Ok(()) => ExitCode::SUCCESS,
        // Another supervisor or an agent has claimed the directory, so this is no failure to log.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => ExitCode::from(3),
        Err(error) => {
            eprintln!("cannot supervise {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

fn supervise(dir: &Path) -> io::Result<()> {
    sandbox::close_inherited();
    // Signals come first. From here on a stop request is recorded until it can be handled.
    let signals = Signals::listen()?;
    // The supervisor leaves the session of the terminal. This fails if it already leads a session.
    let _ = nix::unistd::setsid();
    nix::sys::prctl::set_child_subreaper(true)?;
    let claim = Claim {
        supervisor: ProcessIdentity::current(),
    };
    fault_points::pass(Point::ClaimBefore);
    if let Err(error) = atomic_files::create_json(&dir.join(CLAIM), &claim) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            send_to_agent(&start_failure(
                Stage::Setup,
                "its directory cannot be claimed",
                &error,
            ));
        }
        return Err(error);
    }
    fault_points::pass(Point::ClaimAfter);
    let exit = match atomic_files::read_json::<LaunchSpec>(&dir.join(ORDER)) {
        Some(spec) => Supervisor {
            dir,
            spec,
            signals,
            lease: None,
            stop: None,
            kill_retry: None,
            launchers: None,
            launcher_failure: None,
        }
        .run(),
        None => NodeFault::RuntimeDown.to_exit("its order cannot be read"),
    };
    let exit = Exit {
        ended_at: Some(SystemClock.now()),
        ..exit
    };
    fault_points::pass(Point::ExitBefore);
    let written = atomic_files::replace_json(&dir.join(EXIT), &exit);
    fault_points::pass(Point::ExitAfter);
    if written.is_err() {
        // If the disk fails, the agent still receives the exit (I6).
        send_to_agent(&exit);
    }
    written
}

/// Sends a message to the agent through the pipe, if it is still there.
fn send_to_agent<T: Serialize>(message: &T) {
    if let Ok(mut encoded) = serde_json::to_vec(message) {
        encoded.push(b'\n');
        let _ = io::stdout()
            .write_all(&encoded)
            .and_then(|()| io::stdout().flush());
    }
}

/// Returns the exit of a container that could not start because `action` failed.
fn start_failure(stage: Stage, action: &str, error: &io::Error) -> Exit {
    exit_for_failed_start(stage, error.raw_os_error(), format!("{action}: {error}"))
}

struct Supervisor<'a> {
    dir: &'a Path,
    spec: LaunchSpec,
    signals: Signals,
    /// Lease of exclusive work. `None` for other work.
    lease: Option<WatchedLease>,
    /// Reason and progress of the stop. `None` while the program may run.
    stop: Option<Stop>,
    /// Schedule of kill attempts, set while processes are being killed.
    kill_retry: Option<KillRetry>,
    /// Launchers of a task runner. `None` for other programs.
    launchers: Option<Launchers>,
    /// Why a launcher could not be started.
    launcher_failure: Option<String>,
}

/// A stop request.
struct Stop {
    /// Whether SIGTERM was sent.
    signalled: bool,
    /// End of the grace. `None` once the kill has begun.
    kill_at: Option<Instant>,
    cause: StopCause,
}

enum StopCause {
    Requested,
    LeaseExpired(String),
}

impl Supervisor<'_> {
    fn run(mut self) -> Exit {
        match self.start_program() {
            Ok((mut child, mut output)) => {
                self.report_started(&child);
                self.start_launchers(to_pid(child.id()));
                let status = self.watch_program(&mut child, &mut output);
                self.end_leftovers(&mut output);
                output.finish();
                self.to_exit(status)
            }
            Err(exit) => exit,
        }
    }

    /// Starts the program. Returns the exit if the program must not or cannot start.
    fn start_program(&mut self) -> Result<(Child, Output), Exit> {
        let setup_failure =
            |action: &'static str| move |error| start_failure(Stage::Setup, action, &error);
        let mut output = Output::open(self.dir, self.spec.output_limit_bytes)
            .map_err(setup_failure("its output cannot be stored"))?;
        for group in &self.spec.groups {
            cgroups::join(group, std::process::id())
                .map_err(setup_failure("its control group refuses it"))?;
        }
        if let Some(file) = self.spec.lease.take() {
            let watched =
                WatchedLease::new(file).map_err(setup_failure("its lease cannot be watched"))?;
            self.lease = Some(watched);
        }
        self.check_signals_and_lease();
        match &self.stop {
            Some(Stop {
                cause: StopCause::LeaseExpired(message),
                ..
            }) => {
                return Err(Exit::of(
                    ExitCause::Node,
                    format!("it was not started: {message}"),
                ));
            }
            Some(_) => {
                let message = "it was asked to end before it started";
                return Err(Exit::of(ExitCause::Intended, message));
            }
            None => {}
        }
        sandbox::confine(&self.spec).map_err(setup_failure("it cannot be confined"))?;
        if !self.spec.working_directory.is_absolute() {
            let message = "its working directory is not an absolute path";
            return Err(Exit::of(ExitCause::LaunchFailed, message));
        }
        fault_points::pass(Point::ProgramBefore);
        let spawned = self.spawn(&mut output);
        fault_points::pass(Point::ProgramAfter);
        match spawned {
            Ok(child) => Ok((child, output)),
            Err(error) => {
                let program = self.spec.argv.first().map_or("", String::as_str);
                let action = format!("{program:?} cannot be started");
                let stage = if self.spec.own_program {
                    Stage::Setup
                } else {
                    Stage::Program
                };
                Err(start_failure(stage, &action, &error))
            }
        }
    }

    fn spawn(&mut self, output: &mut Output) -> io::Result<Child> {
        let (stdout, stderr) = output.take_writers()?;
        if self.spec.own_directory {
            std::env::set_current_dir(&self.spec.working_directory)?;
        }
        if self.spec.own_program {
            return self.spawn_runner(stdout, stderr);
        }
        let streams = Streams {
            stdin: Stdio::null(),
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        spawn::spawn_program(&self.spec, streams)
    }

    /// Starts the task runner, and prepares its launchers.
    fn spawn_runner(&mut self, stdout: PipeWriter, stderr: PipeWriter) -> io::Result<Child> {
        let (near, far) = UnixStream::pair()?;
        let streams = Streams {
            stdin: OwnedFd::from(far).into(),
            stdout: stdout.try_clone()?.into(),
            stderr: stderr.into(),
        };
        let runner = OwnProgram {
            argv: &self.spec.argv,
            environment: &self.spec.environment,
            account: self.spec.runner_account(),
        };
        let launchers = Launchers::new(&self.spec, near, stdout)?;
        let runner = runner.spawn(streams)?;
        self.launchers = Some(launchers);
        Ok(runner)
    }

    /// Starts the launchers of a task runner that are due. Without them the runner is useless, so
    /// it is killed if they cannot be started.
    fn start_launchers(&mut self, runner: Pid) {
        let launchers = self.launchers.as_mut();
        if let Err(error) = launchers.map_or(Ok(()), Launchers::start_due) {
            self.launcher_failure = Some(format!("a launcher cannot be started: {error}"));
            let _ = killpg(runner, Signal::SIGKILL);
        }
    }

    /// Reports the start to the agent through the pipe, then on disk.
    fn report_started(&self, child: &Child) {
        let Some(program) = ProcessIdentity::from_pid(child.id()) else {
            return;
        };
        let started = Started {
            program,
            at: SystemClock.now(),
        };
        send_to_agent(&started);
        // If this file is missing, a later agent reports `launch_unknown`.
        let _ = atomic_files::replace_json(&self.dir.join(STARTED), &started);
        fault_points::pass(Point::StartedAfter);
    }

    /// Waits for the end of the program, and stops it on request or when the lease requires it.
    fn watch_program(&mut self, child: &mut Child, output: &mut Output) -> io::Result<ExitStatus> {
        let leader = to_pid(child.id());
        loop {
            let kill_at = self.stop.as_ref().and_then(|stop| stop.kill_at);
            let retry_at = self.kill_retry.as_ref().map(KillRetry::next_at);
            let start_at = self.launchers.as_ref().and_then(Launchers::next_start);
            let wake_at = [kill_at, retry_at, start_at].into_iter().flatten().min();
            self.wait_for_event(output, wake_at);
            self.check_signals_and_lease();
            if let Some(stop) = &mut self.stop {
                if !stop.signalled {
                    stop.signalled = true;
                    let _ = killpg(leader, Signal::SIGTERM);
                } else if stop.kill_at.is_some_and(|at| at <= Instant::now()) {
                    stop.kill_at = None;
                    self.kill_retry = Some(KillRetry::new(Instant::now()));
                }
            }
            let (is_over, others) = reap_others(leader);
            self.handle_ended(leader, &others);
            if is_over {
                // The leader was not yet waited for, so the process group id cannot be reused.
                let _ = killpg(leader, Signal::SIGKILL);
                return child.wait();
            }
            self.retry_kill(Some(leader));
        }
    }

    /// Replaces launchers that have ended. The programs that they ran are killed first, because no
    /// other process watches them.
    fn handle_ended(&mut self, runner: Pid, ended: &[Pid]) {
        let Some(launchers) = &mut self.launchers else {
            return;
        };
        let mut has_lost_launcher = false;
        for process in ended {
            has_lost_launcher |= launchers.record_end(*process);
        }
        if has_lost_launcher {
            end_children_except(|child| child == runner || launchers.contains(child));
        }
        // While the container is stopped, nothing new is started.
        if self.stop.is_none() {
            self.start_launchers(runner);
        }
    }

    /// Kills remaining processes when a kill is due, and reports if they do not end.
    fn retry_kill(&mut self, leader: Option<Pid>) {
        let now = Instant::now();
        let Some(kill_retry) = &mut self.kill_retry else {
            return;
        };
        if kill_retry.take_due(now) {
            if let Some(leader) = leader {
                let _ = killpg(leader, Signal::SIGKILL);
            }
            kill_children();
        }
        if kill_retry.became_stuck(now) {
            send_to_agent(&kill_retry::report_stuck(self.dir));
        }
    }

    /// Kills all remaining processes. While any is alive, the container keeps its space (W16).
    fn end_leftovers(&mut self, output: &mut Output) {
        self.kill_retry = Some(KillRetry::new(Instant::now()));
        loop {
            match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
                Err(Errno::ECHILD) => return,
                Ok(WaitStatus::StillAlive) => {
                    self.retry_kill(None);
                    let wake_at = self.kill_retry.as_ref().map(KillRetry::next_at);
                    self.wait_for_event(output, wake_at);
                    self.check_signals_and_lease();
                }
                _ => {}
            }
        }
    }

    /// Waits for a signal, output or the end of the lease, at most until `wake_at`. Reads output.
    fn wait_for_event(&self, output: &mut Output, wake_at: Option<Instant>) {
        let limit = wake_at.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let output_ready = {
            let mut fds = vec![PollFd::from_borrowed_fd(
                self.signals.as_fd(),
                PollFlags::IN,
            )];
            let lease = self.lease.as_ref().map(AsFd::as_fd);
            let pipe = output.pipe();
            let optional_fds = [lease, pipe].into_iter().flatten();
            fds.extend(optional_fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let _ = poll(&mut fds, limit.as_ref());
            // The pipe is polled last, if it is still open.
            let is_last_ready = fds.last().is_some_and(|fd| !fd.revents().is_empty());
            output.pipe().is_some() && is_last_ready
        };
        if output_ready {
            output.read();
        }
    }

    /// Handles received signals, and the state of the lease.
    fn check_signals_and_lease(&mut self) {
        let now = Instant::now();
        let kill_at = now.checked_add(Duration::from_millis(self.spec.stop_grace_ms));
        if self.signals.stop_requested() && self.stop.is_none() {
            self.stop = Some(Stop {
                signalled: false,
                kill_at,
                cause: StopCause::Requested,
            });
        }
        let Some(lease) = &mut self.lease else {
            return;
        };
        // If the timer cannot be set, exclusive work must not run.
        let remaining_ms = match lease.required_action().unwrap_or(LeaseAction::Kill) {
            LeaseAction::Run { .. } => return,
            LeaseAction::Stop { kill_at_ms } => kill_at_ms.saturating_sub(boottime_ms()),
            LeaseAction::Kill => 0,
        };
        let lease_end = now.checked_add(Duration::from_millis(remaining_ms));
        let stop = self.stop.get_or_insert_with(|| Stop {
            signalled: remaining_ms == 0,
            kill_at,
            cause: StopCause::LeaseExpired(lease.expiry_reason()),
        });
        // The grace ends with the lease. A kill that has begun is not undone.
        stop.kill_at = stop
            .kill_at
            .zip(lease_end)
            .map(|(kill_at, lease_end)| kill_at.min(lease_end));
    }

    /// Returns the exit of the container, by the status of the program and the reason of the stop.
    fn to_exit(&self, status: io::Result<ExitStatus>) -> Exit {
        let status = match status {
            Ok(status) => status,
            Err(error) => return Exit::of(ExitCause::Node, format!("its end was lost: {error}")),
        };
        let groups = &self.spec.groups;
        let out_of_memory =
            (memory_limit::count_kills(groups) > 0).then(|| memory_limit::describe(groups, None));
        let (cause, message) = match &self.stop {
            Some(Stop {
                cause: StopCause::LeaseExpired(cause),
                ..
            }) => (ExitCause::Node, Some(cause.as_str())),
            Some(Stop {
                kill_at: Some(_), ..
            }) => (ExitCause::Intended, Some("asked to end")),
            Some(_) => (ExitCause::Intended, Some("asked to end, then forced")),
            None if status.success() => (ExitCause::Success, None),
            None if self.launcher_failure.is_some() => {
                (ExitCause::Node, self.launcher_failure.as_deref())
            }
            None => match &out_of_memory {
                // The group of a task runner holds no program of the user.
                Some(message) if self.spec.own_program => (ExitCause::Node, Some(message.as_str())),
                Some(message) => (ExitCause::UserLimit, Some(message.as_str())),
                None => (ExitCause::UserError, None),
            },
        };
        let message = message.map(str::to_owned);
        Exit {
            cause,
            cause_code: None,
            code: status.code(),
            signal: status.signal(),
            message,
            ended_at: None,
        }
    }
}
