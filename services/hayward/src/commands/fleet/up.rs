//! `hayward up`: runs a whole fleet with one command, and stops all of it at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hayward_node_status_api::{Health, NodeList};
use hayward_service::{
    Client, Clock, Keys, ServerSettings, Shutdown, SystemClock, TokenSource, telemetry,
};
use hayward_vocabulary::NodeName;
use tokio::time::Instant;

use crate::agents::{self, Agent, AgentLauncher};
use crate::database::Database;
use crate::local_services::{Addresses, LocalServiceOptions, LocalServices, Ports};
use crate::remote_connection_flags::RemoteEndpoints;
use crate::state_directory::State;
use crate::{prepare, state_directory};

/// Interval between checks whether an agent has ended.
const AGENT_CHECK: Duration = Duration::from_millis(500);
/// Pause before the second restart of an agent. The first restart has no pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Port of job-converter; the other services take the four after it.
    #[arg(long, default_value_t = 7400, value_name = "PORT")]
    pub port: u16,
    /// Node agents to run on this machine.
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    pub agents: u32,
    /// Let the agents run images in this machine's container engine, by its socket.
    #[arg(
        long,
        value_name = "SOCKET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/var/run/docker.sock"
    )]
    pub docker: Option<PathBuf>,
    /// A directory that containers may mount, if the policy of the pool lists it too. May be
    /// repeated.
    #[arg(long, value_name = "DIR", requires = "docker", value_parser = parse_directory)]
    pub docker_mountable: Vec<String>,
    /// Address of the Postgres database to use. Default: a private Postgres of this fleet.
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<String>,
    #[command(flatten)]
    pub remote_endpoints: RemoteEndpoints,
    /// Address for Prometheus, such as 127.0.0.1:9464. It answers `/metrics` to requests with a
    /// token.
    #[arg(long, env = "HAYWARD_SCRAPE_LISTEN", value_name = "ADDRESS")]
    pub scrape_listen: Option<SocketAddr>,
    /// True switches off all rate limits, for benchmarks.
    #[arg(skip)]
    pub unlimited: bool,
}

/// Parses a directory. Returns its absolute path without symbolic links, as the agents require it.
fn parse_directory(text: &str) -> Result<String, String> {
    let path = std::fs::canonicalize(text).map_err(|error| error.to_string())?;
    let is_dir = path.is_dir();
    let name = path.to_str().filter(|_| is_dir);
    name.map(ToOwned::to_owned)
        .ok_or_else(|| "it is no directory with a UTF-8 path".to_owned())
}

pub async fn run(arguments: Arguments, dir: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    // The services stop after the agents, so that they receive the agents' final reports. See
    // `LocalFleet::stop`.
    let (signals, shutdown) = (Shutdown::on_signals()?, Shutdown::new());
    let settings = ServerSettings {
        scrape_listen: arguments.scrape_listen,
        ..server_settings(&arguments.remote_endpoints)
    };
    let _telemetry = telemetry::init("up", &settings)?;
    let state = State::open(dir.unwrap_or_else(state_directory::default_dir))?;
    let ports = Ports::from(arguments.port);
    let mut local_fleet = LocalFleet::start(state, ports, &arguments, &shutdown).await?;
    println!("{}", greeting(&local_fleet));
    let keys = local_fleet.keys.clone();
    tokio::select! {
        () = signals.wait() => {}
        () = renew_tokens(&keys) => {}
        () = local_fleet.restart_ended_agents(&arguments) => {}
    }
    println!("\nstopping; running work is ended");
    local_fleet.stop(&shutdown).await?;
    Ok(ExitCode::SUCCESS)
}

/// Renews tokens regularly, because they are short-lived and a fleet may run for weeks.
async fn renew_tokens(keys: &Keys) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    loop {
        tokio::time::sleep(prepare::RENEWAL_CHECK).await;
        if let Err(error) = prepare::renew(keys, &clock) {
            tracing::error!(error = format!("{error:#}"), "cannot renew tokens");
        }
    }
}

/// Returns settings whose log shows problems only, because a person reads the terminal.
pub fn server_settings(remote_endpoints: &RemoteEndpoints) -> ServerSettings {
    let log_filter = std::env::var("HAYWARD_LOG_FILTER").unwrap_or_else(|_| "warn".into());
    ServerSettings {
        log_filter,
        ..remote_endpoints.server_settings()
    }
}

/// A fleet in this process, with its database and agents.
pub struct LocalFleet {
    pub state: State,
    pub keys: Keys,
    pub addresses: Addresses,
    pub database: Database,
    pub agents: Vec<Agent>,
    services: LocalServices,
}

impl LocalFleet {
    pub async fn start(
        state: State,
        ports: Ports,
        arguments: &Arguments,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let nodes: Vec<NodeName> = (1..=arguments.agents)
            .map(|number| NodeName::new(format!("node-{number}")))
            .collect::<Result<_, _>>()?;
        let keys = prepare::create_keys(&state.keys(), &nodes)?;
        let user = std::env::var("USER").unwrap_or_else(|_| "me".into());
        prepare::create_user_token(&keys, &user)?;
        let postgres_dir = state.dir().join("pg");
        let url = arguments.database_url.as_deref();
        if let Some(url) = url {
            arguments.remote_endpoints.check_database(url)?;
        }
        let database = Database::open(url, &postgres_dir, &keys).await?;
        let options = LocalServiceOptions {
            ports,
            keys: state.keys(),
            databases: database.urls.clone(),
            // No other process competes for the lease. With a short lease, the services lead soon
            // after the next start.
            lease_ms: 1_500,
            suspect_ms: 3_000,
            lost_ms: 8_000,
            remote_endpoints: arguments.remote_endpoints.clone(),
            scrape_listen: arguments.scrape_listen,
            unlimited: arguments.unlimited,
        };
        let services = match LocalServices::start(&options, shutdown).await {
            Ok(services) => services,
            Err(error) => {
                shutdown.begin();
                database.stop().await;
                return Err(error);
            }
        };
        let addresses = services.addresses.clone();
        let mut local_fleet = Self {
            state,
            keys,
            addresses,
            database,
            agents: Vec::new(),
            services,
        };
        if let Err(error) = local_fleet.start_agents(nodes, arguments).await {
            local_fleet.stop(shutdown).await?;
            return Err(error);
        }
        local_fleet.state.write_fleet(&local_fleet.addresses)?;
        Ok(local_fleet)
    }

    async fn start_agents(
        &mut self,
        nodes: Vec<NodeName>,
        arguments: &Arguments,
    ) -> anyhow::Result<()> {
        for node in nodes {
            let agent = self.start_agent(node, arguments, LogMode::Truncate)?;
            self.agents.push(agent);
        }
        self.wait_for_nodes().await
    }

    fn start_agent(
        &self,
        node: NodeName,
        arguments: &Arguments,
        log: LogMode,
    ) -> anyhow::Result<Agent> {
        let dir = self.state.dir().join("agents");
        let agents = AgentLauncher {
            addresses: &self.addresses,
            keys: &self.keys,
            dir: &dir,
            docker: arguments.docker.as_deref(),
            docker_mountable: &arguments.docker_mountable,
            remote_endpoints: &arguments.remote_endpoints,
            log: agent_log(&dir, &node, log)?,
        };
        agents.start(node, u64::from(arguments.agents))
    }

    /// Restarts agents that have ended, with growing pauses, and never returns. The containers run
    /// on, and the restarted agent adopts them.
    async fn restart_ended_agents(&mut self, arguments: &Arguments) {
        let mut restarts_by_node: BTreeMap<NodeName, Restarts> = BTreeMap::new();
        loop {
            tokio::time::sleep(AGENT_CHECK).await;
            for index in 0..self.agents.len() {
                let agent = &mut self.agents[index];
                let Some(status) = agent.exit_status() else {
                    continue;
                };
                let node = agent.node.clone();
                let restarts = restarts_by_node.entry(node.clone()).or_default();
                if !restarts.try_restart(Instant::now()) {
                    continue;
                }
                match self.start_agent(node.clone(), arguments, LogMode::Append) {
                    Ok(agent) => {
                        println!("the agent of {node} ended ({status}) and is started again");
                        self.agents[index] = agent;
                    }
                    Err(error) => {
                        tracing::error!(%node, error = format!("{error:#}"), "no agent");
                    }
                }
            }
        }
    }

    /// Waits until submitted work can start immediately.
    async fn wait_for_nodes(&self) -> anyhow::Result<()> {
        let client = self.client(&self.addresses.node_status, "operator")?;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let response: Result<NodeList, _> = client.get("/v1/nodes").await;
            let ready = response.as_ref().is_ok_and(|list| {
                // A node that an operator varied off counts as ready. Its state survives a restart.
                let is_healthy = |agent: &Agent| {
                    list.nodes.iter().any(|node| {
                        node.entry.node == agent.node && node.entry.health == Health::Healthy
                    })
                };
                self.agents.iter().all(is_healthy)
            });
            if ready {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "the agents did not report within 30 s; their logs are in {}",
                    self.state.dir().join("agents").display()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns a client of one service with one of the fleet's own tokens.
    pub fn client(&self, url: &str, token: &str) -> anyhow::Result<Client> {
        Client::from_list(url, TokenSource::file(self.keys.token_path(token)))
    }

    /// Stops agents and their containers, then the services, then the database.
    pub async fn stop(self, shutdown: &Shutdown) -> anyhow::Result<()> {
        self.state.remove_fleet();
        agents::stop(self.agents).await;
        shutdown.begin();
        let stopped = self.services.wait_until_stopped().await;
        self.database.stop().await;
        stopped
    }
}

#[derive(Clone, Copy, PartialEq)]
enum LogMode {
    Truncate,
    Append,
}

fn agent_log(dir: &Path, node: &NodeName, log: LogMode) -> anyhow::Result<Stdio> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join(format!("{node}.log"));
    let mut options = std::fs::OpenOptions::new();
    match log {
        LogMode::Truncate => options.write(true).truncate(true),
        LogMode::Append => options.append(true),
    };
    let opened = options.create(true).open(&path);
    let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(file.into())
}

/// Restarts of the agent of a node. The first restart is immediate, and each later failure doubles
/// the pause. A long stable run resets the pause.
#[derive(Debug, Default)]
struct Restarts {
    /// Time of the last restart. `None` before the first.
    last: Option<Instant>,
    /// Minimum time between the last restart and the next.
    pause: Duration,
}

impl Restarts {
    /// Returns true if the agent may restart now, and then records the restart.
    fn try_restart(&mut self, now: Instant) -> bool {
        let elapsed = self.last.map(|last| now.saturating_duration_since(last));
        if elapsed.is_some_and(|elapsed| elapsed < self.pause) {
            return false;
        }
        let was_stable = elapsed.is_none_or(|elapsed| elapsed > MAX_PAUSE * 2);
        self.pause = if was_stable {
            FIRST_PAUSE
        } else {
            (self.pause * 2).min(MAX_PAUSE)
        };
        self.last = Some(now);
        true
    }
}

/// Warning of a fleet that is not started by root (TC-36).
const SHARED_ACCOUNT: &str = "Everybody's work runs as your own account: any user's task can read \
                              your files and those of others, and act for the nodes.";

fn greeting(local_fleet: &LocalFleet) -> String {
    let nodes: Vec<&str> = local_fleet
        .agents
        .iter()
        .map(|agent| agent.node.as_str())
        .collect();
    let mut text = format!(
        "Hayward is up: {}, agents {}.\n\n",
        local_fleet.database.describe(),
        nodes.join(", ")
    );
    for (name, url) in local_fleet.addresses.entries() {
        let _ = writeln!(text, "  {name:<18} {url}   docs: {url}/docs");
    }
    let state = local_fleet.state.dir().display();
    let jobs = &local_fleet.addresses.job_converter;
    let _ = write!(
        text,
        "
State is kept in {state}. In another terminal:

  hayward submit --count 4 --wait -- echo 'task {{task}}'
  hayward jobs; hayward nodes; hayward shares

or with curl:

  TOKEN=$(cat {state}/keys/tokens/user-{user}.token)
  curl -H \"Authorization: Bearer $TOKEN\" -H 'Idempotency-Key: first' \\
       -H 'Content-Type: application/json' \\
       -d '{{\"command\":[\"echo\",\"task {{task}}\"],\"tasks\":{{\"count\":4}}}}' {jobs}/v1/jobs

Ctrl-C stops everything.",
        user = std::env::var("USER").unwrap_or_else(|_| "me".into()),
    );
    if !nix::unistd::geteuid().is_root() {
        let _ = write!(text, "\n\n{SHARED_ACCOUNT}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_pauses_double_while_an_agent_fails_again() {
        let start = Instant::now();
        let mut restarts = Restarts::default();
        let mut start_seconds = Vec::new();
        for second in 0..300 {
            if restarts.try_restart(start + Duration::from_secs(second)) {
                start_seconds.push(second);
            }
        }
        assert_eq!(start_seconds, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
        // After a stable run the agent restarts immediately, and its pauses start again with the
        // first.
        let later = start + Duration::from_secs(1_000);
        assert!(restarts.try_restart(later));
        assert!(restarts.try_restart(later + Duration::from_secs(2)));
    }
}
