//! Runs five services as separate processes, and one process that simulates thousands of agents
//! with real leases, heartbeats and reports.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hayward_container_manager_api::ContainerList;
use hayward_node_status_api::{Health, NodeList};
use hayward_service::{Client, Keys, TokenSource};
use hayward_vocabulary::{NodeName, Timestamp};
use tokio::process::{Child, Command};

use super::keys_and_database::Environment;
use super::service_process::ServiceProcess;
use crate::local_services::{Addresses, Ports};

/// Maximum time of [`wait_until`].
const TIMEOUT: Duration = Duration::from_mins(4);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Number of entries of one page.
const PAGE_SIZE: usize = 1_000;

pub struct SimulatedFleet {
    pub addresses: Addresses,
    pub services: Vec<(&'static str, ServiceProcess)>,
    environment: Environment,
    nodes: u32,
    /// The process that simulates all agents.
    agents: Child,
}

impl SimulatedFleet {
    /// Starts a fleet of `nodes` nodes with `memory_bytes` each, and waits until all are healthy.
    pub async fn start(nodes: u32, memory_bytes: u64) -> anyhow::Result<Self> {
        let names = (1..=nodes).map(|number| NodeName::new(format!("sim-{number:04}")));
        let names: Vec<NodeName> = names.collect::<Result<_, _>>()?;
        let environment = Environment::open(&names, "bench").await?;
        let addresses = Ports::free()?.addresses();
        let mut services = Vec::new();
        for (name, url) in addresses.entries() {
            // Database roles are named after the services.
            let role = name.replace('-', "_");
            let database = environment
                .database
                .urls
                .get(&role)
                .context("no database")?;
            let mut settings = url_settings(&addresses);
            settings.push(("HAYWARD_DATABASE_URL", database.clone()));
            let port = url.rsplit(':').next().unwrap_or_default().parse()?;
            let process =
                ServiceProcess::start(name, port, environment.keys.dir(), &settings).await?;
            services.push((name, process));
        }
        let agents = start_agents(&environment.keys, &addresses, nodes, memory_bytes)?;
        let fleet = Self {
            addresses,
            services,
            environment,
            nodes,
            agents,
        };
        let client = fleet.client(&fleet.addresses.node_status, "operator")?;
        wait_until("all nodes are healthy", async || {
            fleet
                .has_only_healthy_nodes(&client)
                .await
                .ok()?
                .then_some(())
        })
        .await?;
        Ok(fleet)
    }

    /// Returns a client of one service with one of the fleet's own tokens.
    pub fn client(&self, url: &str, token: &str) -> anyhow::Result<Client> {
        Client::from_list(
            url,
            TokenSource::file(self.environment.keys.token_path(token)),
        )
    }

    pub async fn stop(mut self) -> anyhow::Result<()> {
        // Simulated agents have no containers that must be stopped first.
        self.agents.kill().await?;
        for (_, process) in self.services.into_iter().rev() {
            process.stop().await?;
        }
        self.environment.database.stop().await;
        Ok(())
    }

    async fn has_only_healthy_nodes(&self, client: &Client) -> anyhow::Result<bool> {
        let (mut healthy, mut cursor) = (0, String::new());
        loop {
            let path = format!("/v1/nodes?limit={PAGE_SIZE}{cursor}");
            let list: NodeList = client.get(&path).await?;
            let is_healthy = |health: Health| health == Health::Healthy;
            let nodes = list.nodes.iter();
            healthy += nodes.filter(|node| is_healthy(node.entry.health)).count();
            match list.next_cursor {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(healthy >= self.nodes as usize),
            }
        }
    }
}

fn url_settings(addresses: &Addresses) -> Vec<(&'static str, String)> {
    vec![
        ("HAYWARD_JOB_CONVERTER_URL", addresses.job_converter.clone()),
        ("HAYWARD_RM_SCHEDULER_URL", addresses.rm_scheduler.clone()),
        (
            "HAYWARD_CONTAINER_MANAGER_URL",
            addresses.container_manager.clone(),
        ),
        ("HAYWARD_NODE_STATUS_URL", addresses.node_status.clone()),
        ("HAYWARD_BLOCKLIST_URL", addresses.blocklist.clone()),
    ]
}

/// Starts one process that simulates the agents of all nodes.
fn start_agents(
    keys: &Keys,
    addresses: &Addresses,
    nodes: u32,
    memory_bytes: u64,
) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let is_own_variable = |name: &str| name.starts_with("HAYWARD_") || name == "DATABASE_URL";
    let inherited =
        std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(is_own_variable));
    let mut command = Command::new(program);
    command
        .args(["node-agent", "agent"])
        .env_clear()
        .envs(inherited)
        .env("HAYWARD_NODE", "sim")
        .env("HAYWARD_KEYS", keys.dir())
        .env("HAYWARD_SIMULATE", nodes.to_string())
        .env("HAYWARD_MEMORY_BYTES", memory_bytes.to_string())
        .env("HAYWARD_LOG_FILTER", "error")
        .env("HAYWARD_JOB_CONVERTER_URL", &addresses.job_converter)
        .env("HAYWARD_NODE_STATUS_URL", &addresses.node_status)
        .env(
            "HAYWARD_CONTAINER_MANAGER_URL",
            &addresses.container_manager,
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    command.spawn().context("cannot start the agents")
}

/// Returns the time of the first order to start a container, and the time of the last start.
/// Returns `None` while fewer than `containers` containers run.
pub async fn read_order_and_start_times(
    manager: &Client,
    containers: u64,
) -> anyhow::Result<Option<(Timestamp, Timestamp)>> {
    let (mut count, mut first, mut last) = (0, None, None);
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/containers?state=running&limit={PAGE_SIZE}{cursor}");
        let list: ContainerList = manager.get(&path).await?;
        for view in &list.containers {
            count += 1;
            let earliest = first.map_or(view.ordered_at, |at: Timestamp| at.min(view.ordered_at));
            first = Some(earliest);
            last = last.max(view.entry.started_at);
        }
        match list.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    Ok(first.zip(last).filter(|_| count >= containers))
}

/// Returns true if no container is ordered or alive. Ended containers do not count. They stay in
/// the list because of their final output.
pub async fn has_no_live_containers(manager: &Client) -> anyhow::Result<bool> {
    for state in ["ordered", "launching", "running", "stopping"] {
        let path = format!("/v1/containers?state={state}&limit=1");
        let list: ContainerList = manager.get(&path).await?;
        if !list.containers.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Polls until `probe` returns a value.
pub async fn wait_until<T>(
    condition: &str,
    probe: impl AsyncFn() -> Option<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = probe().await {
            return Ok(value);
        }
        ensure!(Instant::now() < deadline, "not in time: {condition}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
