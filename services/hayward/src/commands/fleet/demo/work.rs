//! The work of the demonstration: two jobs, a service, a reservation, and their state.

use std::time::Duration;

use anyhow::{Context as _, bail};
use hayward_blocklist_api::{BlockAction, BlockAnswer, BlockKind, BlockRequest};
use hayward_job_converter_api::submission::{
    JobSubmission, ReservationSubmission, ServiceSubmission, Submitted, Tasks,
};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_rm_scheduler_api::shares::Shares;
use hayward_rm_scheduler_api::views::AllocationList;
use hayward_service::Client;
use hayward_vocabulary::{NodeName, WorkId, WorkKind};
use serde::Serialize;

use super::files_to_hash::UserFiles;
use crate::commands::fleet::up::LocalFleet;
use crate::prepare;

/// Milliseconds until the block of the node ends.
const BLOCK_MS: i64 = 5_000;

/// Interval between two readings of the state.
const READ_INTERVAL: Duration = Duration::from_millis(150);

/// A user with a job.
pub struct Owner {
    pub user: &'static str,
    pub class: &'static str,
    pub files: Vec<std::path::PathBuf>,
    pub job: WorkId,
    pub client: Client,
}

/// All work of the demonstration.
pub struct DemoWork {
    pub owners: Vec<Owner>,
    service: WorkId,
    reservation: WorkId,
    scheduler: Client,
}

/// State of all work at one time.
pub struct DemoState {
    /// Jobs in the order of their owners.
    pub jobs: Vec<WorkView>,
    pub shares: Option<Shares>,
}

impl DemoState {
    pub fn total_tasks(&self) -> u64 {
        self.jobs
            .iter()
            .filter_map(|job| job.tasks)
            .map(|tasks| tasks.total)
            .sum()
    }

    pub fn finished_tasks(&self) -> u64 {
        let tasks = self.jobs.iter().filter_map(|job| job.tasks);
        tasks.map(|tasks| tasks.succeeded + tasks.failed).sum()
    }
}

impl DemoWork {
    /// Submits a reservation and a service for Ada, and a job for each user with files.
    pub async fn submit(
        fleet: &LocalFleet,
        all_user_files: &[UserFiles],
        pause_ms: u64,
    ) -> anyhow::Result<Self> {
        let jobs = &fleet.addresses.job_converter;
        let mut owners = Vec::new();
        for user_files in all_user_files {
            prepare::create_user_token(&fleet.keys, user_files.user)?;
            let client = fleet.client(jobs, &format!("user-{}", user_files.user))?;
            owners.push((user_files, client));
        }
        let (_, ada) = owners.first().context("the demonstration has owners")?;
        let reservation = submit(ada, "reservations", &reservation_submission()).await?;
        wait_until_running(ada, &format!("/v1/reservations/{reservation}")).await?;
        let service = submit(ada, "services", &service_submission()).await?;
        let mut work = Self {
            owners: Vec::new(),
            service,
            reservation,
            scheduler: fleet.client(&fleet.addresses.rm_scheduler, "operator")?,
        };
        for (user_files, client) in owners {
            if user_files.files.is_empty() {
                continue;
            }
            let job = submit(&client, "jobs", &job_submission(user_files, pause_ms)).await?;
            work.owners.push(Owner {
                user: user_files.user,
                class: user_files.class,
                files: user_files.files.clone(),
                job,
                client,
            });
        }
        Ok(work)
    }

    /// Waits for [`READ_INTERVAL`], then reads the state of all work.
    pub async fn read_state(&self) -> anyhow::Result<DemoState> {
        tokio::time::sleep(READ_INTERVAL).await;
        let mut jobs = Vec::new();
        for owner in &self.owners {
            jobs.push(owner.client.get(&format!("/v1/jobs/{}", owner.job)).await?);
        }
        let shares = self.scheduler.get("/v1/shares").await.ok();
        Ok(DemoState { jobs, shares })
    }

    /// Blocks and evacuates the busiest node without a reservation.
    pub async fn block_busiest_node(&self, fleet: &LocalFleet) -> anyhow::Result<NodeName> {
        let list: AllocationList = self.scheduler.get("/v1/allocations?limit=1000").await?;
        let reserved = list
            .allocations
            .iter()
            .find(|allocation| allocation.kind == WorkKind::Reservation);
        let reserved = reserved.map(|allocation| allocation.node.clone());
        let allocation_count = |node: &NodeName| {
            list.allocations
                .iter()
                .filter(|allocation| allocation.node == *node)
                .count()
        };
        let nodes = fleet.agents.iter().map(|agent| &agent.node);
        let node = nodes
            .filter(|node| Some(*node) != reserved.as_ref())
            .max_by_key(|node| allocation_count(node))
            .context("every node is reserved")?;
        let request = BlockRequest {
            kind: BlockKind::Node,
            identifier: node.to_string(),
            action: BlockAction::Evacuate,
            cause: "demonstration".into(),
            end: None,
            duration_ms: Some(BLOCK_MS),
            permanent: false,
            removal_no: None,
            scope: None,
            evacuation: None,
        };
        let blocklist = fleet.client(&fleet.addresses.blocklist, "operator")?;
        let _: BlockAnswer = blocklist.put("/v1/blocklist/items", &request).await?;
        Ok(node.clone())
    }

    /// Cancels work that would not end by itself.
    pub async fn cancel_remaining(&self) -> anyhow::Result<()> {
        let owner = self
            .owners
            .first()
            .context("the demonstration has owners")?;
        for path in [
            format!("/v1/services/{}", self.service),
            format!("/v1/reservations/{}", self.reservation),
        ] {
            let _: WorkView = owner.client.delete(&path).await?;
        }
        Ok(())
    }
}

async fn submit<T: Serialize>(client: &Client, resource: &str, body: &T) -> anyhow::Result<WorkId> {
    let key = hayward_service::runtime::clock::fresh_uuid().to_string();
    let submitted: Submitted = client
        .post(&format!("/v1/{resource}"), body, Some(&key))
        .await
        .with_context(|| format!("cannot submit to {resource}"))?;
    Ok(submitted.id)
}

async fn wait_until_running(client: &Client, path: &str) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let view: WorkView = client.get(path).await?;
        if view.state == WorkState::Running {
            return Ok(());
        }
        if tokio::time::Instant::now() > deadline {
            let reason = view.reason.unwrap_or_else(|| "no reason given".into());
            bail!("{path} does not start: {reason}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn job_submission(user_files: &UserFiles, pause_ms: u64) -> JobSubmission {
    let to_strings = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    // A pause needs a shell in the user's command. Hayward itself never starts a shell.
    let command = if pause_ms == 0 {
        to_strings(&["sha256sum", "--"])
    } else {
        let pause = format!("{}.{:03}", pause_ms / 1000, pause_ms % 1000);
        to_strings(&[
            "sh",
            "-c",
            &format!("sleep {pause}; exec sha256sum -- \"$0\""),
        ])
    };
    let argument = |file: &std::path::PathBuf| vec![file.to_string_lossy().into_owned()];
    JobSubmission {
        name: Some(format!("hash for {}", user_files.user)),
        class: Some(user_files.class.into()),
        command,
        tasks: Tasks::Arguments(user_files.files.iter().map(argument).collect()),
        ..JobSubmission::default()
    }
}

/// Returns a service that prints the time every second.
fn service_submission() -> ServiceSubmission {
    let script = "while :; do date; sleep 1; done";
    ServiceSubmission {
        queue: None,
        pool: None,
        priority: None,
        container: None,
        name: Some("clock".into()),
        class: None,
        command: vec!["sh".into(), "-c".into(), script.into()],
        instances: Some(1),
        standbys: None,
        host_affinity: None,
        retries: None,
        fault_domain_label: None,
        environment: std::collections::BTreeMap::new(),
        working_directory: None,
        size: None,
        machines: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        when_unreachable: None,
        disruption_limit: None,
    }
}

fn reservation_submission() -> ReservationSubmission {
    ReservationSubmission {
        name: Some("a machine for ada".into()),
        class: None,
        size: None,
        machines: Vec::new(),
        labels: std::collections::BTreeMap::new(),
    }
}
