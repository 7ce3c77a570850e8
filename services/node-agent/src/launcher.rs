//! `launch`: starts the programs of one slot of a job, one at a time, under the account of the
//! user.
//!
//! The task runner has the credential and never runs a program of a user. The launcher runs
//! programs and has no credential. Both speak over a socket that the supervisor made: the standard
//! input of the launcher. When the runner ends, the launcher kills its run and ends too.

mod finished_run;
mod last_words;
mod live_run;
pub mod messages;
mod output_files;
mod program_input;
mod remaining_processes;
pub mod run_plan;
mod script_file;
mod start_failure;
mod tee;
mod usage_meter;

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Instant;

use hayward_job_converter_api::tasks::{EndCause, RunEnd, RunTerms, TaskReport};
use hayward_node_agent_domain::{RunSignals, StopReason, StopRequest};
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use nix::sys::prctl;
use wait4::ResUse;

use crate::cgroups::memory_limit;
use crate::lease::boottime_ms;
use finished_run::FinishedRun;
use last_words::LastWords;
use live_run::LiveRun;
use messages::{FromLauncher, Receiver, RunOrder, ToLauncher};
use output_files::OpenStreams;
use remaining_processes::Remaining;
use run_plan::{LauncherContext, RunPlace, RunPlan};
use tee::Tee;
use usage_meter::UsageMeter;

/// Stop of a run after the runner has ended.
const RUNNER_ENDED: StopRequest = StopRequest {
    reason: StopReason::Requested,
    latest_kill_at_ms: 0,
};

pub fn main() -> ExitCode {
    match serve_stdin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hayward: a launcher ends: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_stdin() -> io::Result<()> {
    // Programs of the same account must not read the memory of this process.
    prctl::set_dumpable(false)?;
    // Processes that lose their parent become children of this process, which can end them.
    prctl::set_child_subreaper(true)?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut runner = Receiver::new(socket);
    match runner.wait()? {
        Some(ToLauncher::Setup(context)) => Launcher {
            runner,
            meter: UsageMeter::new(&context.groups),
            context: *context,
            terms: None,
            remaining: Remaining::Ended,
        }
        .serve(),
        _ => Ok(()),
    }
}

struct Launcher {
    runner: Receiver<ToLauncher>,
    context: LauncherContext,
    meter: UsageMeter,
    /// `None` if job-converter has an older version. Then each task has its own command.
    terms: Option<RunTerms>,
    remaining: Remaining,
}

impl Launcher {
    /// Runs tasks until the runner ends.
    fn serve(mut self) -> io::Result<()> {
        messages::send(self.runner.stream(), &FromLauncher::Ready)?;
        while let Some(message) = self.runner.wait()? {
            match message {
                ToLauncher::Terms(terms) => self.terms = Some(*terms),
                ToLauncher::Run(order) => {
                    let report = Box::new(self.run(&order));
                    messages::send(self.runner.stream(), &FromLauncher::Ended(report))?;
                }
                // The others concern a run that has ended.
                ToLauncher::Setup(_) | ToLauncher::Stop { .. } | ToLauncher::Signal { .. } => {}
            }
        }
        Ok(())
    }

    fn run(&mut self, order: &RunOrder) -> TaskReport {
        let started_at = Instant::now();
        let result = self
            .plan(order)
            .and_then(|plan| self.run_plan(&plan, order));
        let mut report = TaskReport {
            task: order.task.task,
            attempt: order.task.attempt,
            exit_code: None,
            signal: None,
            error: None,
            interrupted: false,
            end: None,
            duration_us: u64::try_from(started_at.elapsed().as_micros()).unwrap_or(u64::MAX),
            usage: None,
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
    fn plan(&self, order: &RunOrder) -> Result<RunPlan, String> {
        let context = &self.context;
        let place = RunPlace {
            number: order.number,
            now: SystemClock.now(),
        };
        let Some(terms) = &self.terms else {
            return Ok(RunPlan::of_older_server(context, &order.task, place));
        };
        if let Some(script) = &terms.script {
            script_file::ensure(script, &context.work_dir, context.slot).map_err(|error| {
                format!("the script cannot be written on {}: {error}", context.node)
            })?;
        }
        Ok(RunPlan::new(context, terms, &order.task, place))
    }

    /// Runs a program. Returns a sentence for the user if it could not be started.
    fn run_plan(&mut self, plan: &RunPlan, order: &RunOrder) -> Result<FinishedRun, String> {
        let stdin = program_input::open(plan, &self.context.node)?;
        let streams = output_files::open(plan, &self.context.node)?;
        let kills_before = memory_limit::count_kills(&self.context.groups);
        let OpenStreams {
            stdout,
            stderr,
            reader,
            file,
        } = streams;
        self.meter.begin();
        let child = live_run::start(plan, [stdin, stdout, stderr])
            .map_err(|error| start_failure::describe(plan, &self.context.node, &error))?;
        let signals = RunSignals::new(plan.times, boottime_ms());
        let mut run = LiveRun::new(child, reader, signals, Tee::new(order.task.task))?;
        let ended = self.wait(&mut run, plan, order.number);
        self.remaining.end();
        let ended = ended.map_err(|error| format!("its end was lost: {error}"))?;
        let status = ended.status;
        let groups = &self.context.groups;
        let ran_out_of_memory =
            !status.success() && memory_limit::count_kills(groups) > kills_before;
        let in_file = file.and_then(|file| LastWords::read_file(&file).ok());
        Ok(FinishedRun {
            status,
            stop: run.signals.stop_reason(),
            is_killed: run.signals.is_killed(),
            trusts_exit: plan.trust_exit_after_stop,
            stop_signal: plan.stop_signal,
            time_limit_ms: plan.times.time_limit_ms,
            memory_message: ran_out_of_memory
                .then(|| memory_limit::describe(groups, self.context.memory_limit_bytes)),
            usage: self.meter.end(&ended.rusage),
            output: in_file.unwrap_or(run.last_words).to_string(),
        })
    }

    /// Waits for the end of the program, even if other processes still have its output open. After
    /// a stop signal, also waits for the other processes of its group, within the grace (TC-106).
    fn wait(&mut self, run: &mut LiveRun, plan: &RunPlan, number: u64) -> io::Result<ResUse> {
        loop {
            let socket = (!self.runner.is_closed()).then(|| self.runner.as_fd());
            let events = run.wait_for_event(socket);
            // A program that always writes must not delay signals, so nothing else is skipped.
            if events.is_readable {
                run.read_output();
            }
            let now_ms = boottime_ms();
            if run.is_over(now_ms) {
                return run.finish();
            }
            if events.has_message {
                self.handle_messages(run, number, now_ms);
            }
            while let Some(step) = run.signals.take_due(now_ms) {
                run.send(step, plan);
            }
        }
    }

    fn handle_messages(&mut self, run: &mut LiveRun, number: u64, now_ms: u64) {
        if self.runner.read().is_err() || self.runner.is_closed() {
            run.signals.request_stop(RUNNER_ENDED, now_ms);
        }
        let is_for_run = |message: &ToLauncher| {
            matches!(message, ToLauncher::Stop { .. } | ToLauncher::Signal { .. })
        };
        for message in self.runner.take_matching(is_for_run) {
            match message {
                ToLauncher::Stop {
                    run: stopped,
                    request,
                } if stopped == number => {
                    run.signals.request_stop(request, now_ms);
                }
                ToLauncher::Signal {
                    run: receiver,
                    signal,
                } if receiver == number => run.send_signal(signal),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
