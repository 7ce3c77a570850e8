//! Measures one node-status process with ten thousand agents that each send a heartbeat every five
//! seconds. The figures are the cost of heartbeats without changes, and the effect of a thousand
//! lost agents that return at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hayward_node_status_api::{Health, Heartbeat, Inventory, Metrics, NodeList, Pressure};
use hayward_service::auth::{Issuer, Scope};
use hayward_service::{Client, Keys, SystemClock, TokenSource};
use hayward_vocabulary::{NodeName, Size};
use tokio::task::JoinSet;

use super::http_client::{Connection, build_request};
use super::keys_and_database::Environment;
use super::report::{Comparison, Report};
use super::service_process::ServiceProcess;
use super::to_f64;
use crate::local_services::Ports;

/// Milliseconds between two heartbeats of an agent.
const PERIOD_MS: u64 = 5_000;
/// Number of lost agents that return at the same time.
const RETURNING_AGENTS: u64 = 1_000;
/// Connections that send requests without a pause.
const CLIENTS: usize = 32;
/// Connections that are opened at the same time.
const MAX_OPENING_CONNECTIONS: usize = 64;
/// Milliseconds of validity of a token.
const TOKEN_MS: u64 = 3_600_000;

/// Name prefix of the agents that always run. It sorts before [`RETURNING_PREFIX`].
const STEADY_PREFIX: &str = "agent";
/// Name prefix of the agents that are lost and return.
const RETURNING_PREFIX: &str = "late";

/// Encoded requests, one for each agent.
type Requests = Arc<Vec<Vec<u8>>>;

pub async fn measure(agents: u64, seconds: u64, report: &mut Report) -> anyhow::Result<()> {
    ensure!(
        (1..=100_000).contains(&agents),
        "--agents takes 1 to 100,000"
    );
    let environment = Environment::open(&[], "bench").await?;
    let bench = AgentBenchmark {
        issuer: environment.keys.issuer(Arc::new(SystemClock))?,
        url: environment.database.urls["node_status"].clone(),
        keys: environment.keys,
    };
    let result = async {
        bench
            .measure_steady_load(agents, seconds.min(8), report)
            .await?;
        bench.measure_return(report).await
    };
    let result = result.await;
    environment.database.stop().await;
    result
}

struct AgentBenchmark {
    keys: Keys,
    issuer: Issuer,
    url: String,
}

impl AgentBenchmark {
    /// Starts node-status with these settings.
    async fn start(&self, settings: &[(&str, String)]) -> anyhow::Result<ServiceProcess> {
        let port = Ports::free()?.first();
        let mut all = vec![("HAYWARD_DATABASE_URL", self.url.clone())];
        all.extend_from_slice(settings);
        ServiceProcess::start("node-status", port, self.keys.dir(), &all).await
    }

    /// Returns an encoded heartbeat of each agent.
    fn heartbeats(&self, name_prefix: &str, count: u64) -> anyhow::Result<Requests> {
        let heartbeat_request = |number: u64| {
            let node = NodeName::new(format!("{name_prefix}-{number}"))?;
            let scope = Scope::Agent(node.clone());
            let token = self
                .issuer
                .mint(&format!("agent-{node}"), &[scope], TOKEN_MS)?;
            let body = serde_json::to_string(&heartbeat_of(&node))?;
            let path = format!("/v1/nodes/{node}/heartbeat");
            anyhow::Ok(build_request("PUT", &path, &token, &body))
        };
        Ok(Arc::new(
            (0..count)
                .map(heartbeat_request)
                .collect::<Result<_, _>>()?,
        ))
    }

    fn operator_client(&self, process: &ServiceProcess) -> anyhow::Result<Client> {
        let token = TokenSource::file(self.keys.token_path("operator"));
        Client::new(&[format!("http://{}", process.address)], token)
    }

    /// Measures the first heartbeats, heartbeats at the pace of real agents, and heartbeats without
    /// a pause.
    async fn measure_steady_load(
        &self,
        agents: u64,
        seconds: u64,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let process = self
            .start(&[("HAYWARD_HEARTBEAT_MS", PERIOD_MS.to_string())])
            .await?;
        let operator_client = self.operator_client(&process)?;
        let heartbeats = self.heartbeats(STEADY_PREFIX, agents)?;
        // The connections are opened before the measurement starts. A long pause between
        // measurements would count as silence of the agents.
        let connections = open_connections(process.address, heartbeats.len()).await?;
        let before = read_revision(&operator_client).await?;
        let started = Instant::now();
        let first_contact = send_unthrottled(process.address, &heartbeats, Until::AllSent).await?;
        let commits = read_revision(&operator_client).await? - before;
        let elapsed_ms = started.elapsed().as_millis();
        report.add_figure(
            &format!("{agents} agents, first heartbeat of each"),
            format!(
                "{elapsed_ms} ms, {commits} commits, p99 {}",
                first_contact.p99()
            ),
        );

        let (cpu_before, revision_before) =
            (process.cpu_ms()?, read_revision(&operator_client).await?);
        let started = Instant::now();
        let steady =
            send_at_interval(connections, &heartbeats, Duration::from_secs(seconds)).await?;
        let elapsed_ms = u64::try_from(started.elapsed().as_millis())?;
        let cpu_ms = process.cpu_ms()? - cpu_before;
        report.add_figure(
            &format!("{agents} agents, each every 5 s, nothing changed"),
            format!(
                "{} /s, {} % of a core, {} MiB, p50 {}, p99 {}",
                steady.count() * 1000 / elapsed_ms.max(1),
                cpu_ms * 100 / elapsed_ms.max(1),
                process.resident_mib()?,
                steady.p50(),
                steady.p99()
            ),
        );

        report_unthrottled_rate(&process, &heartbeats, seconds, report).await?;
        let after = read_revision(&operator_client).await?;
        ensure!(
            after == revision_before,
            "heartbeats that change nothing made {} commits",
            after - revision_before
        );
        report.add_figure("commits of all these heartbeats", "0".to_owned());
        process.stop().await
    }

    /// Measures the return of lost agents. Each agent is in its own pool, so that the limit on lost
    /// nodes of a pool does not apply.
    async fn measure_return(&self, report: &mut Report) -> anyhow::Result<()> {
        let settings = [
            ("HAYWARD_HEARTBEAT_MS", "300".to_owned()),
            ("HAYWARD_SUSPECT_MS", "1000".to_owned()),
            ("HAYWARD_LOST_MS", "2000".to_owned()),
            ("HAYWARD_WARM_UP_MS", "2000".to_owned()),
        ];
        let process = self.start(&settings).await?;
        let operator_client = self.operator_client(&process)?;
        let heartbeats = self.heartbeats(RETURNING_PREFIX, RETURNING_AGENTS)?;
        send_unthrottled(process.address, &heartbeats, Until::AllSent).await?;
        let waiting_since = Instant::now();
        while count_agents(&operator_client, Health::Lost).await? < RETURNING_AGENTS {
            ensure!(
                waiting_since.elapsed() < Duration::from_secs(20),
                "the agents do not become lost"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let connections = open_connections(process.address, heartbeats.len()).await?;
        let before = read_revision(&operator_client).await?;
        let started = Instant::now();
        let responses = send_simultaneously(connections, &heartbeats).await?;
        let elapsed_ms = started.elapsed().as_millis();
        let healthy = count_agents(&operator_client, Health::Healthy).await?;
        ensure!(
            healthy == RETURNING_AGENTS,
            "{healthy} of {RETURNING_AGENTS} are healthy again"
        );
        let commits = read_revision(&operator_client).await? - before;
        report.add_figure(
            &format!("{RETURNING_AGENTS} lost nodes return at once"),
            format!(
                "all healthy in {elapsed_ms} ms, {commits} commits, p99 {}",
                responses.p99()
            ),
        );
        process.stop().await
    }
}

/// Reports the rate of heartbeats sent without a pause. The baseline is the rate of requests that
/// do nothing.
async fn report_unthrottled_rate(
    process: &ServiceProcess,
    heartbeats: &Requests,
    seconds: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    let noop = build_request("GET", "/livez", "", "");
    let noop = Arc::new(vec![noop]);
    let duration = Duration::from_secs(seconds.div_ceil(2));
    let (noop_rate, _) = unthrottled_rate(process, &noop, duration).await?;
    let (rate, rate_per_core) = unthrottled_rate(process, heartbeats, duration).await?;
    let label = "heartbeats, nothing changed, without a pause";
    report.add_rates(
        label,
        Comparison {
            figure: rate,
            baseline: noop_rate,
        },
        "/s",
        "requests that do nothing",
    );
    report.add_figure(
        "the same, for each core of the service",
        format!("{rate_per_core:.0} /s"),
    );
    Ok(())
}

/// Returns a heartbeat of a node with 64 GiB. A returning agent is in its own pool.
pub fn heartbeat_of(node: &NodeName) -> Heartbeat {
    let is_returning = node.as_str().starts_with(RETURNING_PREFIX);
    Heartbeat {
        boot_id: "8a0bdb1c-5c1f-4d8c-9a43-1c0b5d4a0e11".into(),
        agent_instance: format!("instance-of-{node}"),
        inventory: Inventory {
            capacity: Size {
                memory_bytes: 64 << 30,
                cpu_milli: 32_000,
                ..Size::default()
            },
            pool: is_returning.then(|| node.to_string()),
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            runtimes: vec!["process".into()],
            version: "0.1.0".into(),
        },
        metrics: Metrics {
            load_centi: 123,
            memory_total_bytes: 64 << 30,
            memory_available_bytes: 32 << 30,
            disk_total_bytes: 1 << 40,
            disk_free_bytes: 1 << 39,
            pressure: Some(Pressure::default()),
            containers: 7,
            complete: true,
            ..Metrics::default()
        },
        quiesced: false,
        quiesce_reason: None,
    }
}

async fn read_revision(operator_client: &Client) -> anyhow::Result<u64> {
    let list: NodeList = operator_client.get("/v1/nodes?limit=1").await?;
    Ok(list.revision)
}

/// Returns the number of returning agents with this health.
async fn count_agents(operator_client: &Client, health: Health) -> anyhow::Result<u64> {
    // The names of these agents sort after those of the other agents.
    let cursor = hayward_service::Listing::new("/v1/nodes").cursor(RETURNING_PREFIX);
    let path = format!("/v1/nodes?limit=1000&cursor={cursor}");
    let list: NodeList = operator_client.get(&path).await?;
    let matching = list.nodes.iter().filter(|node| node.entry.health == health);
    Ok(matching.count() as u64)
}

/// Latencies of the responses in microseconds.
struct Latencies(Vec<u64>);

impl Latencies {
    fn from_unsorted(mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        Self(all)
    }

    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn percentile(&self, percent: usize) -> String {
        let index = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        let micros = self.0.get(index).copied().unwrap_or(0);
        format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
    }

    fn p50(&self) -> String {
        self.percentile(50)
    }

    fn p99(&self) -> String {
        self.percentile(99)
    }
}

async fn measure_request(connection: &mut Connection, request: &[u8]) -> anyhow::Result<u64> {
    let started = Instant::now();
    connection.send(request).await?;
    Ok(u64::try_from(started.elapsed().as_micros())?)
}

async fn collect_latencies(
    mut tasks: JoinSet<anyhow::Result<Vec<u64>>>,
) -> anyhow::Result<Latencies> {
    let mut all = Vec::new();
    while let Some(result) = tasks.join_next().await {
        all.extend(result??);
    }
    Ok(Latencies::from_unsorted(all))
}

/// Condition that ends the sending.
enum Until {
    /// Each request was sent once.
    AllSent,
    /// This time has come. Meanwhile the requests are repeated.
    Deadline(Instant),
}

/// Sends requests without a pause, over a few connections.
async fn send_unthrottled(
    address: SocketAddr,
    requests: &Requests,
    end_condition: Until,
) -> anyhow::Result<Latencies> {
    let deadline = match end_condition {
        Until::AllSent => None,
        Until::Deadline(deadline) => Some(deadline),
    };
    // Number of the next request. The connections share it.
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let (requests, next) = (Arc::clone(requests), Arc::clone(&next));
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut latencies = Vec::new();
            loop {
                let number = usize::try_from(next.fetch_add(1, Ordering::Relaxed))?;
                let is_done = match deadline {
                    Some(deadline) => Instant::now() >= deadline,
                    None => number >= requests.len(),
                };
                if is_done {
                    return Ok(latencies);
                }
                latencies.push(
                    measure_request(&mut connection, &requests[number % requests.len()]).await?,
                );
            }
        });
    }
    collect_latencies(tasks).await
}

/// Returns the responses per second, and per CPU second of the service.
async fn unthrottled_rate(
    process: &ServiceProcess,
    requests: &Requests,
    duration: Duration,
) -> anyhow::Result<(f64, f64)> {
    let (cpu_before_ms, started) = (process.cpu_ms()?, Instant::now());
    let latencies = send_unthrottled(
        process.address,
        requests,
        Until::Deadline(started + duration),
    )
    .await?;
    let count = to_f64(latencies.count());
    let cpu_seconds = to_f64((process.cpu_ms()? - cpu_before_ms).max(1)) / 1000.0;
    Ok((count / started.elapsed().as_secs_f64(), count / cpu_seconds))
}

/// Sends heartbeats at the pace of real agents. Each agent has a connection, and the agents are
/// spread over the period.
async fn send_at_interval(
    connections: Vec<Connection>,
    requests: &Requests,
    duration: Duration,
) -> anyhow::Result<Latencies> {
    let agents = requests.len() as u64;
    let (started, end) = (tokio::time::Instant::now(), Instant::now() + duration);
    let mut tasks = JoinSet::new();
    for (number, mut connection) in connections.into_iter().enumerate() {
        let requests = Arc::clone(requests);
        let offset = Duration::from_millis(PERIOD_MS * number as u64 / agents.max(1));
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            let mut due = started + offset;
            while due.into_std() < end {
                tokio::time::sleep_until(due).await;
                latencies.push(measure_request(&mut connection, &requests[number]).await?);
                due += Duration::from_millis(PERIOD_MS);
            }
            Ok(latencies)
        });
    }
    collect_latencies(tasks).await
}

/// Sends all requests at the same instant, each on its own connection.
async fn send_simultaneously(
    connections: Vec<Connection>,
    requests: &Requests,
) -> anyhow::Result<Latencies> {
    let mut tasks = JoinSet::new();
    for (number, mut connection) in connections.into_iter().enumerate() {
        let requests = Arc::clone(requests);
        tasks.spawn(async move {
            Ok(vec![
                measure_request(&mut connection, &requests[number]).await?,
            ])
        });
    }
    collect_latencies(tasks).await
}

async fn open_connections(address: SocketAddr, count: usize) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(count);
    while connections.len() < count {
        let mut opening = JoinSet::new();
        for _ in 0..MAX_OPENING_CONNECTIONS.min(count - connections.len()) {
            opening.spawn(Connection::open(address));
        }
        while let Some(connection) = opening.join_next().await {
            let connection =
                connection?.context("cannot connect: ulimit -n may be too small for --agents");
            connections.push(connection?);
        }
    }
    Ok(connections)
}
