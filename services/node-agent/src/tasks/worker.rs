//! Worker threads that run tasks, each one task at a time.
//!
//! A task has its own process group. No code runs between fork and exec, and nothing is written to
//! disk per task. The leader of a group is waited for only after the rest of the group was killed,
//! so its process id cannot be reused before.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use hayward_job_converter_api::signals::TaskSignal;
use hayward_job_converter_api::tasks::{EndCause, RunEnd, TaskReport};
use hayward_node_agent_domain::{RunSignals, SignalStep, StopReason};
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::queue::{StartedTask, TaskQueue};
use super::run_control::RunControl;
use crate::cgroups::memory_limit;
use crate::launcher::last_words::LastWords;
use crate::launcher::output_files::{self, OpenStreams};
use crate::launcher::run_plan::{RunPlace, RunPlan, RunnerContext};
use crate::launcher::tee::Tee;
use crate::launcher::{script_file, start_failure};
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

/// The worker threads of a task runner.
pub struct TaskThreads {
    threads: Vec<JoinHandle<()>>,
    pub control: Arc<RunControl>,
}

impl TaskThreads {
    pub fn start_all(queue: &Arc<TaskQueue>, context: RunnerContext) -> io::Result<Self> {
        let control = Arc::new(RunControl::default());
        let (context, run_count) = (Arc::new(context), Arc::new(AtomicU64::new(0)));
        let mut threads = Vec::new();
        for slot in 0..queue.threads() as usize {
            let queue = Arc::clone(queue);
            let mut worker = Worker {
                wakes: control.subscribe()?,
                control: Arc::clone(&control),
                context: Arc::clone(&context),
                run_count: Arc::clone(&run_count),
                slot,
            };
            let work = move || {
                while let Some(task) = queue.take() {
                    queue.finish(worker.run(&task));
                }
            };
            let builder = std::thread::Builder::new().name("tasks".into());
            threads.push(builder.spawn(work)?);
        }
        Ok(Self { threads, control })
    }

    /// Waits for the threads. The queue must be closed, and running tasks must have been stopped.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                eprintln!("hayward: a thread of the task runner panicked");
            }
        }
    }
}

struct Worker {
    /// Pipe with one byte for each stop request.
    wakes: PipeReader,
    control: Arc<RunControl>,
    context: Arc<RunnerContext>,
    /// Number of runs of all workers.
    run_count: Arc<AtomicU64>,
    slot: usize,
}

impl Worker {
    fn run(&mut self, started: &StartedTask) -> TaskReport {
        let started_at = Instant::now();
        let task = &started.task;
        let plan = self.plan(started);
        let result = plan.and_then(|plan| self.run_plan(&plan, started));
        let mut report = TaskReport {
            task: task.task,
            attempt: task.attempt,
            exit_code: None,
            signal: None,
            error: None,
            interrupted: false,
            end: None,
            duration_us: u64::try_from(started_at.elapsed().as_micros()).unwrap_or(u64::MAX),
            output: String::new(),
        };
        match result {
            Ok(end) => end.write_to(&mut report),
            Err(message) => {
                report.error = Some(message.clone());
                report.end = Some(RunEnd {
                    cause: EndCause::CannotStart,
                    message: Some(message),
                });
            }
        }
        report
    }

    /// Plans a run, and writes its script.
    fn plan(&self, started: &StartedTask) -> Result<RunPlan, String> {
        let context = &self.context;
        let place = RunPlace {
            slot: self.slot,
            number: self.run_count.fetch_add(1, Ordering::Relaxed) + 1,
            now: SystemClock.now(),
        };
        let Some(terms) = &started.terms else {
            return Ok(RunPlan::of_older_server(context, &started.task, place));
        };
        if let Some(script) = &terms.script {
            script_file::ensure(script, &context.work_dir, self.slot).map_err(|error| {
                format!("the script cannot be written on {}: {error}", context.node)
            })?;
        }
        Ok(RunPlan::new(context, terms, &started.task, place))
    }

    /// Runs a program. Returns a sentence for the user if it could not be started.
    fn run_plan(&mut self, plan: &RunPlan, started: &StartedTask) -> Result<FinishedRun, String> {
        let context = Arc::clone(&self.context);
        let streams = output_files::open(plan, &context.node)?;
        let kills_before = memory_limit::count_kills(&context.groups);
        let OpenStreams {
            stdout,
            stderr,
            reader,
            file,
        } = streams;
        let child = start(plan, stdout, stderr)
            .map_err(|error| start_failure::describe(plan, &context.node, &error))?;
        let signals = RunSignals::new(plan.times, boottime_ms());
        let mut run = LiveRun::new(child, reader, signals, Tee::new(started.task.task))?;
        let status = self.wait(&mut run, plan, started.started_at);
        let status = status.map_err(|error| format!("its end was lost: {error}"))?;
        let ran_out_of_memory =
            !status.success() && memory_limit::count_kills(&context.groups) > kills_before;
        let in_file = file.and_then(|file| LastWords::read_file(&file).ok());
        Ok(FinishedRun {
            status,
            stop: run.signals.stop_reason(),
            is_killed: run.signals.is_killed(),
            trusts_exit: plan.trust_exit_after_stop,
            stop_signal: plan.stop_signal,
            time_limit_ms: plan.times.time_limit_ms,
            memory_message: ran_out_of_memory.then(|| memory_limit::describe(&context.groups)),
            output: in_file.unwrap_or(run.last_words).to_string(),
        })
    }

    /// Waits for the end of the program, even if other processes still have its output open. After
    /// a stop signal, also waits for the other processes of its group, within the grace (TC-106).
    fn wait(
        &mut self,
        run: &mut LiveRun,
        plan: &RunPlan,
        started_at: Instant,
    ) -> io::Result<ExitStatus> {
        loop {
            let events = self.wait_for_event(run);
            if events.has_wake {
                let mut buffer = [0; 16];
                let _ = self.wakes.read(&mut buffer);
            }
            // A program that always writes must not delay signals, so nothing else is skipped.
            if events.is_readable {
                run.read_output();
            }
            run.has_ended |= events.has_ended;
            let now_ms = boottime_ms();
            if run.has_ended && run.is_over(now_ms) {
                return run.finish();
            }
            if let Some(request) = self.control.stop_for(started_at) {
                run.signals.request_stop(request, now_ms);
            }
            while let Some(step) = run.signals.take_due(now_ms) {
                run.send(step, plan);
            }
        }
    }

    fn wait_for_event(&self, run: &LiveRun) -> Events {
        let now_ms = boottime_ms();
        let check_at_ms = run.has_ended.then_some(run.next_group_check_ms);
        let wake_at_ms = run
            .signals
            .next_at_ms()
            .into_iter()
            .chain(check_at_ms)
            .min();
        let limit = wake_at_ms.map(|at| to_timespec(at.saturating_sub(now_ms).min(MAX_WAIT_MS)));
        let poll_input = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![poll_input(self.wakes.as_fd())];
        if !run.has_ended {
            fds.push(poll_input(run.handle.as_fd()));
        }
        let reader = run.reader.as_ref().map(|reader| poll_input(reader.as_fd()));
        fds.extend(reader);
        let _ = poll(&mut fds, limit.as_ref());
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut take_next = |is_polled| is_polled && ready.next().unwrap_or(false);
        Events {
            has_wake: take_next(true),
            has_ended: take_next(!run.has_ended),
            is_readable: take_next(run.reader.is_some()),
        }
    }
}

/// Events that ended the wait of a worker.
struct Events {
    has_wake: bool,
    has_ended: bool,
    is_readable: bool,
}

fn start(plan: &RunPlan, stdout: Stdio, stderr: Stdio) -> io::Result<Child> {
    let [program, arguments @ ..] = plan.argv.as_slice() else {
        return Err(io::Error::other("the argument vector is empty"));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&plan.environment)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    if let Some(directory) = &plan.working_directory {
        command.current_dir(directory);
    }
    command.spawn()
}

/// A program that runs.
struct LiveRun {
    child: Child,
    group: Pid,
    /// Handle on the program, which is the leader of its group.
    handle: OwnedFd,
    /// `None` at the end of the stream, or if all output goes elsewhere.
    reader: Option<PipeReader>,
    signals: RunSignals,
    has_ended: bool,
    /// Time of the next look at the other processes of the group.
    next_group_check_ms: u64,
    last_words: LastWords,
    tee: Tee,
}

impl LiveRun {
    fn new(
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

    fn read_output(&mut self) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        if !self.last_words.read_available(reader, &mut self.tee) {
            self.reader = None;
        }
    }

    fn send(&self, step: SignalStep, plan: &RunPlan) {
        let _ = match step {
            SignalStep::Warn => killpg(self.group, to_signal(plan.warn_signal)),
            // A stopped process handles the signal only after it continues (TC-105).
            SignalStep::Stop => killpg(self.group, to_signal(plan.stop_signal))
                .and_then(|()| killpg(self.group, Signal::SIGCONT)),
            SignalStep::Kill => killpg(self.group, Signal::SIGKILL),
        };
    }

    /// Returns true if an ended program need not be waited for any longer: it ended by itself, it
    /// was killed, or no other process of its group is alive.
    fn is_over(&mut self, now_ms: u64) -> bool {
        if self.signals.stop_reason().is_none() || self.signals.is_killed() {
            return true;
        }
        if now_ms < self.next_group_check_ms {
            return false;
        }
        self.next_group_check_ms = now_ms + GROUP_CHECK_MS;
        !process_identity::has_live_member(self.child.id())
    }

    /// Ends the other processes of the group, and returns the status of the program. The leader was
    /// not yet waited for, so the number of the group is still its own.
    fn finish(&mut self) -> io::Result<ExitStatus> {
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
        self.child.wait()
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

/// How a run ended.
struct FinishedRun {
    status: ExitStatus,
    /// Why it was stopped. `None` if it ended by itself.
    stop: Option<StopReason>,
    is_killed: bool,
    trusts_exit: bool,
    stop_signal: TaskSignal,
    time_limit_ms: Option<u64>,
    /// Set if the memory limit was reached.
    memory_message: Option<String>,
    output: String,
}

impl FinishedRun {
    /// Fills in the report. The stop wins over the exit status, because programs that end politely
    /// return 0 without having done their work (TC-115).
    fn write_to(self, report: &mut TaskReport) {
        report.exit_code = self.status.code();
        report.signal = self.status.signal();
        let stop = self
            .stop
            .filter(|_| !(self.trusts_exit && self.status.success()));
        let end = match (stop, &self.memory_message) {
            (Some(StopReason::TimeLimit), _) => Some((EndCause::TimeLimit, self.limit_message())),
            (Some(_), _) => {
                report.interrupted = true;
                None
            }
            (None, Some(message)) => Some((EndCause::OutOfMemory, message.clone())),
            (None, None) => None,
        };
        report.end = end.map(|(cause, message)| RunEnd {
            cause,
            message: Some(message),
        });
        report.output = self.output;
    }

    fn limit_message(&self) -> String {
        let limit = self.time_limit_ms.map_or_else(String::new, format_limit);
        let kill = if self.is_killed { ", then SIGKILL" } else { "" };
        let memory = self.memory_message.as_deref();
        let memory = memory.map_or_else(String::new, |text| format!("; it was also {text}"));
        format!(
            "reached its time limit of {limit}; SIG{} was sent{kill}{memory}",
            self.stop_signal
        )
    }
}

fn format_limit(ms: u64) -> String {
    match ms {
        ms if ms % 3_600_000 == 0 => format!("{} h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests;
