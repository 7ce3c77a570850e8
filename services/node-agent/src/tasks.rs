//! `run-tasks`: leases batches of tasks from job-converter, runs them, reports in batches (D8).
//!
//! [`lease_loop`] talks, workers work, and [`queue`] lies between them. The same talk serves the
//! pretended tasks of simulated machines. Nothing may run under a lease that is over (I4), and an
//! outcome is kept until it was accepted.

pub mod lease_loop;
pub mod queue;
mod tee;
mod worker;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hayward_service::client::Authority;
use hayward_service::{Client, Shutdown, TokenSource};
use hayward_vocabulary::{AllocationId, WorkId};

use lease_loop::Lending;
use queue::Desk;

/// Variables of a task runner. The user's tasks do not inherit them.
pub const PREFIX: &str = "HAYWARD_TASK_";
const CA: &str = "CA";

/// Where tasks are leased, and whose signature is believed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lender {
    pub url: String,
    pub authority: Option<Authority>,
}

impl Lender {
    pub fn new(url: &str, token: &TokenSource) -> Self {
        Self {
            url: url.to_owned(),
            authority: token.authority().filter(|_| url.contains("https:")),
        }
    }

    /// The authority of this moment as a text: work runs under accounts that may not look into the
    /// agent's directories.
    fn authority_now(&self) -> Option<Arc<str>> {
        let pem = self.authority.as_ref()?.pem();
        pem.inspect_err(|error| tracing::error!(error = format!("{error:#}"), "no authority"))
            .ok()
    }
}

/// What a task runner is to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub lender: Lender,
    pub token: String,
    pub job: WorkId,
    pub allocation: AllocationId,
    pub threads: u32,
    pub stop_grace_ms: u64,
}

impl Assignment {
    pub fn to_environment(&self) -> BTreeMap<String, String> {
        let values = [
            ("URL", self.lender.url.clone()),
            ("TOKEN", self.token.clone()),
            ("JOB", self.job.to_string()),
            ("ALLOCATION", self.allocation.to_string()),
            ("THREADS", self.threads.to_string()),
            ("GRACE_MS", self.stop_grace_ms.to_string()),
        ];
        let authority = self.lender.authority_now();
        values
            .into_iter()
            .chain(authority.map(|pem| (CA, pem.to_string())))
            .map(|(name, value)| (format!("{PREFIX}{name}"), value))
            .collect()
    }

    fn from_environment() -> anyhow::Result<Self> {
        let read = |name: &str| {
            let name = format!("{PREFIX}{name}");
            std::env::var(&name).with_context(|| format!("{name} is not set"))
        };
        Ok(Self {
            lender: Lender {
                url: read("URL")?,
                authority: read(CA).ok().map(|pem| Authority::Pem(pem.into())),
            },
            token: read("TOKEN")?,
            job: read("JOB")?.parse()?,
            allocation: read("ALLOCATION")?.parse()?,
            threads: read("THREADS")?.parse()?,
            stop_grace_ms: read("GRACE_MS")?.parse()?,
        })
    }

    pub fn lending(&self, desk: Arc<Desk>) -> anyhow::Result<Lending> {
        let authority = self.lender.authority.clone();
        let token = TokenSource::fixed(&self.token).believing(authority);
        let client = Client::from_list(&self.lender.url, token)?;
        Ok(Lending::new(
            client,
            &self.job,
            self.allocation.clone(),
            desk,
        ))
    }
}

pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Read by whoever reads the container's output.
            eprintln!("hayward: the task runner ends: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let assignment = Assignment::from_environment()?;
    // Before any thread starts, so that all of them are spared it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let desk = Arc::new(Desk::new(assignment.threads));
    let crew = worker::Crew::hire(&desk)?;
    let grace = Duration::from_millis(assignment.stop_grace_ms);
    let ended = runtime.block_on(async {
        let stop = Shutdown::on_signals()?;
        assignment
            .lending(Arc::clone(&desk))?
            .run(stop, grace, || crew.interrupt())
            .await
    });
    desk.close();
    crew.dismiss();
    ended
}
