//! `run-tasks` leases batches of tasks from job-converter, runs them, and reports in batches.
//!
//! [`lease_loop`] calls job-converter, worker threads run tasks, and [`queue`] connects them.
//! Simulated nodes use the same loop. No task runs under an expired lease (I4), and an outcome
//! stays in the queue until it was accepted.

pub mod lease_loop;
pub mod queue;
mod run_control;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hayward_service::client::Authority;
use hayward_service::{Client, Shutdown, TokenSource};
use hayward_vocabulary::{AllocationId, WorkId};

use hayward_node_agent_domain::{StopReason, StopRequest};
use lease_loop::LeaseLoop;
use queue::TaskQueue;

use crate::launcher::run_plan::RunnerContext;

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
    /// Cgroups of the allocation.
    pub groups: Vec<PathBuf>,
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
            ("GROUPS", self.groups_text()),
        ];
        let authority = self.source.current_authority();
        values
            .into_iter()
            .chain(authority.map(|pem| (AUTHORITY, pem.to_string())))
            .map(|(name, value)| (format!("{PREFIX}{name}"), value))
            .collect()
    }

    fn from_environment() -> anyhow::Result<Self> {
        let read = |name: &str| {
            std::env::var(format!("{PREFIX}{name}"))
                .or_else(|_| std::env::var(format!("{PREVIOUS_PREFIX}{name}")))
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
            // An agent of the version before sets neither.
            node: read("NODE").unwrap_or_default(),
            groups: std::env::split_paths(&read("GROUPS").unwrap_or_default())
                .filter(|group| !group.as_os_str().is_empty())
                .collect(),
        })
    }

    fn groups_text(&self) -> String {
        let joined = std::env::join_paths(&self.groups).unwrap_or_default();
        joined.into_string().unwrap_or_default()
    }

    fn runner_context(&self) -> anyhow::Result<RunnerContext> {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| !name.starts_with(PREFIX) && !name.starts_with(PREVIOUS_PREFIX))
            .collect();
        Ok(RunnerContext {
            node: self.node.clone(),
            allocation: self.allocation.to_string(),
            work_dir: std::env::current_dir()?,
            environment,
            groups: self.groups.clone(),
        })
    }

    pub fn lease_loop(&self, queue: Arc<TaskQueue>) -> anyhow::Result<LeaseLoop> {
        let authority = self.source.authority.clone();
        let token = TokenSource::fixed(&self.token).with_authority(authority);
        let client = Client::from_list(&self.source.url, token)?;
        Ok(LeaseLoop::new(
            client,
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
    let assignment = Assignment::from_environment()?;
    // The runtime is created before any thread starts.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let queue = Arc::new(TaskQueue::new(assignment.threads));
    let threads = worker::TaskThreads::start_all(&queue, assignment.runner_context()?)?;
    let control = Arc::clone(&threads.control);
    let grace = Duration::from_millis(assignment.stop_grace_ms);
    let result = runtime.block_on(async {
        let stop = Shutdown::on_signals()?;
        assignment
            .lease_loop(Arc::clone(&queue))?
            .run(stop, grace, |request| control.stop_all(request))
            .await
    });
    queue.close();
    // After an error, tasks may still run.
    control.stop_all(StopRequest {
        reason: StopReason::Requested,
        latest_kill_at_ms: 0,
    });
    threads.join();
    result
}
