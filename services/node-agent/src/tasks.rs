//! `run-tasks` leases batches of tasks from job-converter, has launchers run them, and reports in
//! batches.
//!
//! [`lease_loop`] calls job-converter, [`command_loop`] follows its commands, [`slots`] speak to
//! the launchers, and [`queue`] connects them. The runner has the credential of its process, so it
//! runs no program of a user. Simulated nodes use the same loop for leases. No task runs under an
//! expired lease (I4), and an outcome stays in the queue until it was accepted.

mod command_loop;
pub mod lease_loop;
pub mod queue;
mod request_form;
mod run_control;
mod slots;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hayward_service::client::Authority;
use hayward_service::{Client, Shutdown, TokenSource};
use hayward_vocabulary::{AllocationId, WorkId};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use command_loop::CommandLoop;
use lease_loop::LeaseLoop;
use queue::TaskQueue;
use run_control::RunControl;

/// Prefix of the variables of a task runner. Tasks do not inherit them.
pub const PREFIX: &str = "HAYWARD_RUNNER_";
/// The prefix of the version before. An agent of that version starts this program once its program
/// file was replaced.
const PREVIOUS_PREFIX: &str = "HAYWARD_TASK_";
/// Name, after the prefix, of the variable with the certificate authority.
const AUTHORITY: &str = "CA";

/// The service that leases tasks, and its certificate authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSource {
    pub url: String,
    pub authority: Option<Authority>,
}

impl TaskSource {
    pub fn new(url: &str, token: &TokenSource) -> Self {
        Self {
            url: url.to_owned(),
            authority: token.authority().filter(|_| url.contains("https:")),
        }
    }

    /// Returns the current certificate authority as PEM text. A path would not be enough, because a
    /// task runner cannot read the files of the agent.
    fn current_authority(&self) -> Option<Arc<str>> {
        let pem = self.authority.as_ref()?.pem();
        pem.inspect_err(|error| tracing::error!(error = format!("{error:#}"), "no authority"))
            .ok()
    }
}

/// The job and allocation that a task runner works for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub source: TaskSource,
    pub token: String,
    pub job: WorkId,
    pub allocation: AllocationId,
    pub threads: u32,
    pub stop_grace_ms: u64,
    pub node: String,
}

impl Assignment {
    pub fn to_environment(&self) -> BTreeMap<String, String> {
        let values = [
            ("URL", self.source.url.clone()),
            ("TOKEN", self.token.clone()),
            ("JOB", self.job.to_string()),
            ("ALLOCATION", self.allocation.to_string()),
            ("THREADS", self.threads.to_string()),
            ("GRACE_MS", self.stop_grace_ms.to_string()),
            ("NODE", self.node.clone()),
        ];
        let authority = self.source.current_authority();
        values
            .into_iter()
            .chain(authority.map(|pem| (AUTHORITY, pem.to_string())))
            .map(|(name, value)| (format!("{PREFIX}{name}"), value))
            .collect()
    }

    fn from_environment() -> anyhow::Result<Self> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads an assignment from the variables that [`Assignment::to_environment`] returned.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let read = |name: &str| {
            variable(&format!("{PREFIX}{name}"))
                .or_else(|| variable(&format!("{PREVIOUS_PREFIX}{name}")))
                .with_context(|| format!("{PREFIX}{name} is not set"))
        };
        Ok(Self {
            source: TaskSource {
                url: read("URL")?,
                authority: read(AUTHORITY).ok().map(|pem| Authority::Pem(pem.into())),
            },
            token: read("TOKEN")?,
            job: read("JOB")?.parse()?,
            allocation: read("ALLOCATION")?.parse()?,
            threads: read("THREADS")?.parse()?,
            stop_grace_ms: read("GRACE_MS")?.parse()?,
            // An agent of the version before does not set it.
            node: read("NODE").unwrap_or_default(),
        })
    }

    fn client(&self) -> anyhow::Result<Client> {
        let authority = self.source.authority.clone();
        let token = TokenSource::fixed(&self.token).with_authority(authority);
        Client::from_list(&self.source.url, token)
    }

    fn command_loop(&self) -> anyhow::Result<CommandLoop> {
        let client = self.client()?;
        Ok(CommandLoop::new(client, &self.job, &self.allocation))
    }

    pub fn lease_loop(&self, queue: Arc<TaskQueue>) -> anyhow::Result<LeaseLoop> {
        Ok(LeaseLoop::new(
            self.client()?,
            &self.job,
            self.allocation.clone(),
            queue,
        ))
    }
}

pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hayward: the task runner ends: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    // The runner ends with its supervisor, even if the runner is stopped.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // Other processes must not read the token from the memory of this process.
    prctl::set_dumpable(false)?;
    let assignment = Assignment::from_environment()?;
    // The runtime is created before any thread starts.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let queue = Arc::new(TaskQueue::new(assignment.threads));
    let control = Arc::new(RunControl::default());
    slots::start_all(&queue, &control)?;
    let grace = Duration::from_millis(assignment.stop_grace_ms);
    // Launchers end their runs when this process ends.
    runtime.block_on(async {
        let stop = Shutdown::on_signals()?;
        let commands = assignment.command_loop()?;
        let commands = commands.run(Arc::clone(&queue), Arc::clone(&control));
        let leases = assignment.lease_loop(Arc::clone(&queue))?;
        tokio::select! {
            result = leases.run(stop, grace, |request| control.stop_all(request)) => result,
            never = commands => match never {},
        }
    })
}

/// Returns whether a variable is only for the task runner.
pub fn is_runner_variable(name: &str) -> bool {
    name.starts_with(PREFIX) || name.starts_with(PREVIOUS_PREFIX)
}
