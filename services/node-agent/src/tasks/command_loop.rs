//! The loop in which a task runner asks job-converter for commands about single tasks (TC-6).
//!
//! One request is always open, next to that of the lease loop. A command has a number, and the next
//! request names the last one that was carried out. So a command of a lost answer comes again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_job_converter_api::task_commands::{CommandKind, CommandList, RunnerCommand};
use hayward_node_agent_domain::{StopReason, StopRequest};
use hayward_service::{Client, ClientError, Code};
use hayward_vocabulary::{AllocationId, WorkId};
use tokio::time::sleep;

use super::queue::TaskQueue;
use super::run_control::{Run, RunControl};
use crate::lease::boottime_ms;

/// Delay of the first request. A process of short tasks ends before it.
const FIRST_REQUEST_DELAY: Duration = Duration::from_millis(250);
/// Time that job-converter may wait for a command before it answers, in seconds.
const WAIT_SECONDS: u64 = 25;
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(WAIT_SECONDS + 5);
/// Delay after a request that failed, or that was answered at once without a command.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay after a refused request. A job-converter of the version before has no commands, and may be
/// replaced.
const REFUSED_DELAY: Duration = Duration::from_mins(1);
/// Shortest wait after which an empty answer was worth waiting for.
const MIN_WAIT: Duration = Duration::from_millis(100);

pub struct CommandLoop {
    client: Client,
    path: String,
    /// Number of the last command that was carried out.
    last_number: u64,
}

impl CommandLoop {
    pub fn new(client: Client, job: &WorkId, allocation: &AllocationId) -> Self {
        Self {
            client,
            path: format!("/v1/jobs/{job}/tasks/commands?allocation={allocation}"),
            last_number: 0,
        }
    }

    /// Carries out commands until it is dropped.
    pub async fn run(mut self, queue: Arc<TaskQueue>, control: Arc<RunControl>) -> Infallible {
        sleep(FIRST_REQUEST_DELAY).await;
        loop {
            let requested_at = Instant::now();
            match self.request().await {
                Ok(list) => {
                    if list.commands.is_empty() && requested_at.elapsed() < MIN_WAIT {
                        sleep(RETRY_DELAY).await;
                    }
                    for command in list.commands {
                        self.last_number = self.last_number.max(command.number);
                        carry_out(&command, &queue, &control);
                    }
                }
                Err(error) if is_refused(&error) => sleep(REFUSED_DELAY).await,
                Err(_) => sleep(RETRY_DELAY).await,
            }
        }
    }

    async fn request(&self) -> Result<CommandList, ClientError> {
        let Self {
            path, last_number, ..
        } = self;
        let path = format!("{path}&after={last_number}&wait={WAIT_SECONDS}");
        self.client.get_with_timeout(&path, TIMEOUT).await
    }
}

fn carry_out(command: &RunnerCommand, queue: &TaskQueue, control: &RunControl) {
    let run = Run {
        task: command.task,
        attempt: command.attempt,
    };
    match command.kind {
        CommandKind::StopTask => {
            let kill_at = |grace| boottime_ms().saturating_add(grace);
            let request = StopRequest {
                reason: StopReason::Requested,
                latest_kill_at_ms: command.grace_ms.map_or(u64::MAX, kill_at),
            };
            // The request comes first, because the task may start meanwhile.
            control.stop_task(run, request);
            if queue.withdraw(command.task) {
                control.forget(run);
            }
        }
        CommandKind::SignalTask => {
            let name = command.signal.as_deref().unwrap_or_default();
            // A signal of a later version has no number here.
            let Ok(signal) = format!("SIG{name}").parse() else {
                return;
            };
            if queue.is_running(run.task, run.attempt) {
                control.signal_task(run, signal);
            }
        }
        CommandKind::Unknown => {}
    }
}

/// Returns whether the request was refused. A job-converter of the version before has no such
/// route, or takes its name for the number of a task.
fn is_refused(error: &ClientError) -> bool {
    let code = error.problem().map(|problem| &problem.code);
    matches!(
        code,
        Some(Code::NotFound | Code::Forbidden | Code::BadRequest | Code::Invalid)
    )
}
