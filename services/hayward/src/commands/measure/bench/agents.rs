//! Measures one node-status process with ten thousand agents that each send a heartbeat every five
//! seconds. It measures the cost without changes, and the effect of a thousand agents that return
//! at once.

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

use super::environment::Environment;
use super::process::Process;
use super::real;
use super::report::{Pair, Report};
use super::wire::{Connection, request};
use crate::fleet::Ports;

/// Milliseconds between two heartbeats of an agent.
const PERIOD_MS: u64 = 5_000;
/// Number of agents that return at the same time after node-status has given them up.
const RETURNING: u64 = 1_000;
/// Connections that send requests without a pause.
const CLIENTS: usize = 32;
/// Connections that are opened at the same time.
const AT_A_TIME: usize = 64;
const TOKEN_MS: u64 = 3_600_000;

type Requests = Arc<Vec<Vec<u8>>>;

pub async fn measure(agents: u64, seconds: u64, report: &mut Report) -> anyhow::Result<()> {
    ensure!(
        (1..=100_000).contains(&agents),
        "--agents takes 1 to 100,000"
    );
    let environment = Environment::open(&[], "bench").await?;
    let bench = Bench {
        issuer: environment.keys.issuer(Arc::new(SystemClock))?,
        url: environment.database.urls["node_status"].clone(),
        keys: environment.keys,
    };
    let result = async {
        bench.steady_load(agents, seconds.min(8), report).await?;
        bench.returning(report).await
    };
    let result = result.await;
    environment.database.stop().await;
    result
}

struct Bench {
    keys: Keys,
    issuer: Issuer,
    url: String,
}

impl Bench {
    async fn start(&self, settings: &[(&str, String)]) -> anyhow::Result<Process> {
        let port = Ports::free()?.first();
        let mut all = vec![("HAYWARD_DATABASE_URL", self.url.clone())];
        all.extend_from_slice(settings);
        Process::start("node-status", port, self.keys.dir(), &all).await
    }

    fn beats(&self, name: &str, count: u64) -> anyhow::Result<Requests> {
        let one = |number: u64| {
            let node = NodeName::new(format!("{name}-{number}"))?;
            let scope = Scope::Agent(node.clone());
            let token = self
                .issuer
                .mint(&format!("agent-{node}"), &[scope], TOKEN_MS)?;
            let body = serde_json::to_string(&heartbeat(&node))?;
            let path = format!("/v1/nodes/{node}/heartbeat");
            anyhow::Ok(request("PUT", &path, &token, &body))
        };
        Ok(Arc::new((0..count).map(one).collect::<Result<_, _>>()?))
    }

    fn operator(&self, process: &Process) -> anyhow::Result<Client> {
        let token = TokenSource::file(self.keys.token_path("operator"));
        Client::new(&[format!("http://{}", process.address)], token)
    }

    async fn steady_load(
        &self,
        agents: u64,
        seconds: u64,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let process = self
            .start(&[("HAYWARD_HEARTBEAT_MS", PERIOD_MS.to_string())])
            .await?;
        let operator = self.operator(&process)?;
        let beats = self.beats("crowd", agents)?;
        // The connections are opened before the measurement starts. A long pause between
        // measurements would count as silence of the agents.
        let connections = connected(process.address, beats.len()).await?;
        let before = revision(&operator).await?;
        let began = Instant::now();
        let met = flat_out(process.address, &beats, Until::All).await?;
        let commits = revision(&operator).await? - before;
        let took = began.elapsed().as_millis();
        report.figure(
            &format!("{agents} agents met for the first time"),
            format!("{took} ms, {commits} commits, p99 {}", met.p99()),
        );

        let (cpu, quiet) = (process.cpu_ms()?, revision(&operator).await?);
        let began = Instant::now();
        let steady = paced(connections, &beats, Duration::from_secs(seconds)).await?;
        let elapsed_ms = u64::try_from(began.elapsed().as_millis())?;
        let used = process.cpu_ms()? - cpu;
        report.figure(
            &format!("{agents} agents, each every 5 s, nothing changed"),
            format!(
                "{} /s, {} % of a core, {} MiB, p50 {}, p99 {}",
                steady.count() * 1000 / elapsed_ms.max(1),
                used * 100 / elapsed_ms.max(1),
                process.resident_mib()?,
                steady.p50(),
                steady.p99()
            ),
        );

        report_flat_rate(&process, &beats, seconds, report).await?;
        let after = revision(&operator).await?;
        ensure!(
            after == quiet,
            "heartbeats that change nothing made {} commits",
            after - quiet
        );
        report.figure("commits for all of them", "0".to_owned());
        process.stop().await
    }

    /// Measures the return of lost agents. Each agent is in its own pool, so that the limit on lost
    /// nodes of a pool does not apply.
    async fn returning(&self, report: &mut Report) -> anyhow::Result<()> {
        let settings = [
            ("HAYWARD_HEARTBEAT_MS", "300".to_owned()),
            ("HAYWARD_SUSPECT_MS", "1000".to_owned()),
            ("HAYWARD_LOST_MS", "2000".to_owned()),
            ("HAYWARD_WARM_UP_MS", "2000".to_owned()),
        ];
        let process = self.start(&settings).await?;
        let operator = self.operator(&process)?;
        let beats = self.beats("late", RETURNING)?;
        flat_out(process.address, &beats, Until::All).await?;
        let patience = Instant::now();
        while count(&operator, Health::Lost).await? < RETURNING {
            ensure!(
                patience.elapsed() < Duration::from_secs(20),
                "they are not given up"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let connections = connected(process.address, beats.len()).await?;
        let before = revision(&operator).await?;
        let began = Instant::now();
        let answers = at_once(connections, &beats).await?;
        let took = began.elapsed().as_millis();
        let healthy = count(&operator, Health::Healthy).await?;
        ensure!(
            healthy == RETURNING,
            "{healthy} of {RETURNING} are healthy again"
        );
        let commits = revision(&operator).await? - before;
        report.figure(
            &format!("{RETURNING} nodes given up return at once"),
            format!(
                "all healthy in {took} ms, {commits} commits, p99 {}",
                answers.p99()
            ),
        );
        process.stop().await
    }
}

/// Reports the rate of heartbeats sent without a pause, next to that of requests without work.
async fn report_flat_rate(
    process: &Process,
    beats: &Requests,
    seconds: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    let noop = request("GET", "/livez", "", "");
    let noop = Arc::new(vec![noop]);
    let half = Duration::from_secs(seconds.div_ceil(2));
    let (bare, _) = flat_rate(process, &noop, half).await?;
    let (rate, a_core) = flat_rate(process, beats, half).await?;
    let what = "heartbeats, nothing changed, as fast as they go";
    report.rates(
        what,
        Pair {
            figure: rate,
            baseline: bare,
        },
        "/s",
        "requests that do nothing",
    );
    report.figure(
        "the same, for each core of the service",
        format!("{a_core:.0} /s"),
    );
    Ok(())
}

pub fn heartbeat(node: &NodeName) -> Heartbeat {
    Heartbeat {
        boot_id: "8a0bdb1c-5c1f-4d8c-9a43-1c0b5d4a0e11".into(),
        agent_instance: format!("instance-of-{node}"),
        inventory: Inventory {
            capacity: Size {
                memory_bytes: 64 << 30,
                cpu_milli: 32_000,
                ..Size::default()
            },
            pool: node.as_str().starts_with("late").then(|| node.to_string()),
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

async fn revision(operator: &Client) -> anyhow::Result<u64> {
    let list: NodeList = operator.get("/v1/nodes?limit=1").await?;
    Ok(list.revision)
}

/// Returns the number of returning agents with this health.
async fn count(operator: &Client, health: Health) -> anyhow::Result<u64> {
    // The names of these agents sort after those of the other agents.
    let cursor = hayward_service::Listing::new("/v1/nodes").cursor("late");
    let path = format!("/v1/nodes?limit=1000&cursor={cursor}");
    let list: NodeList = operator.get(&path).await?;
    let alike = list.nodes.iter().filter(|node| node.entry.health == health);
    Ok(alike.count() as u64)
}

/// Latencies of the responses in microseconds.
struct Answers(Vec<u64>);

impl Answers {
    fn from_unsorted(mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        Self(all)
    }

    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn at(&self, percent: usize) -> String {
        let place = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        let micros = self.0.get(place).copied().unwrap_or(0);
        format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
    }

    fn p50(&self) -> String {
        self.at(50)
    }

    fn p99(&self) -> String {
        self.at(99)
    }
}

async fn timed(connection: &mut Connection, request: &[u8]) -> anyhow::Result<u64> {
    let started = Instant::now();
    connection.ask(request).await?;
    Ok(u64::try_from(started.elapsed().as_micros())?)
}

async fn gathered(mut tasks: JoinSet<anyhow::Result<Vec<u64>>>) -> anyhow::Result<Answers> {
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.extend(done??);
    }
    Ok(Answers::from_unsorted(all))
}

enum Until {
    /// Ends after each request was sent once.
    All,
    Then(Instant),
}

/// Sends requests without a pause, over a few connections.
async fn flat_out(
    address: SocketAddr,
    requests: &Requests,
    until: Until,
) -> anyhow::Result<Answers> {
    let (next, end) = match until {
        Until::All => (Arc::new(AtomicU64::new(0)), None),
        Until::Then(end) => (Arc::new(AtomicU64::new(0)), Some(end)),
    };
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let (requests, next) = (Arc::clone(requests), Arc::clone(&next));
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut took = Vec::new();
            loop {
                let number = usize::try_from(next.fetch_add(1, Ordering::Relaxed))?;
                let over = end.map_or(number >= requests.len(), |end| Instant::now() >= end);
                if over {
                    return Ok(took);
                }
                took.push(timed(&mut connection, &requests[number % requests.len()]).await?);
            }
        });
    }
    gathered(tasks).await
}

/// Returns the responses per second, and per CPU second of the service.
async fn flat_rate(
    process: &Process,
    requests: &Requests,
    span: Duration,
) -> anyhow::Result<(f64, f64)> {
    let (cpu, began) = (process.cpu_ms()?, Instant::now());
    let answers = flat_out(process.address, requests, Until::Then(began + span)).await?;
    let count = real(answers.count());
    let used = real((process.cpu_ms()? - cpu).max(1)) / 1000.0;
    Ok((count / began.elapsed().as_secs_f64(), count / used))
}

/// Sends heartbeats at the pace of real agents. Each agent has a connection, and the agents are
/// spread over the period.
async fn paced(
    connections: Vec<Connection>,
    requests: &Requests,
    span: Duration,
) -> anyhow::Result<Answers> {
    let agents = requests.len() as u64;
    let (began, end) = (tokio::time::Instant::now(), Instant::now() + span);
    let mut tasks = JoinSet::new();
    for (number, mut connection) in connections.into_iter().enumerate() {
        let requests = Arc::clone(requests);
        let offset = Duration::from_millis(PERIOD_MS * number as u64 / agents.max(1));
        tasks.spawn(async move {
            let mut took = Vec::new();
            let mut due = began + offset;
            while due.into_std() < end {
                tokio::time::sleep_until(due).await;
                took.push(timed(&mut connection, &requests[number]).await?);
                due += Duration::from_millis(PERIOD_MS);
            }
            Ok(took)
        });
    }
    gathered(tasks).await
}

/// Sends all requests at the same instant, each on its own connection.
async fn at_once(connections: Vec<Connection>, requests: &Requests) -> anyhow::Result<Answers> {
    let mut tasks = JoinSet::new();
    for (number, mut connection) in connections.into_iter().enumerate() {
        let requests = Arc::clone(requests);
        tasks.spawn(async move { Ok(vec![timed(&mut connection, &requests[number]).await?]) });
    }
    gathered(tasks).await
}

async fn connected(address: SocketAddr, count: usize) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(count);
    while connections.len() < count {
        let mut opening = JoinSet::new();
        for _ in 0..AT_A_TIME.min(count - connections.len()) {
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
