//! Normal clients. Each workload has a constant rate and a separate thread. The thread sleeps until
//! the exact instant, because the timer of the runtime has a resolution of milliseconds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hayward_service::auth::Issuer;
use hayward_service::{Scope, SystemClock};
use hayward_vocabulary::NodeName;
use tokio::sync::Mutex;

use super::super::agents::heartbeat;
use super::super::environment::Environment;
use super::super::wire::{Blocking, request};

/// Number of nodes. They are an eighth of the reference load, like the rate of writes: the
/// reference load has 500 writes a second.
const NODES: usize = 125;
const WRITES_EACH: Duration = Duration::from_millis(16);
const READERS: usize = 5;
const READS_EACH: Duration = Duration::from_millis(10);
const PAGES_EACH: Duration = Duration::from_millis(20);
const TOKEN_MS: u64 = 3_600_000;

/// A request that clients repeat in turn, at a constant rate.
#[derive(Clone)]
pub struct Workload {
    pub what: &'static str,
    pace: Duration,
    /// Requests of each client, in the order in which it sends them.
    callers: Arc<Vec<Vec<Vec<u8>>>>,
    /// A lasting connection for each client, because a client with a valid token is exempt from the
    /// limits for unknown addresses. (S27)
    connections: Arc<Mutex<Vec<Blocking>>>,
}

/// Latency of each request.
pub type Took = Vec<Duration>;

/// Returns the workloads for a service without other load.
pub fn alone(environment: &Environment) -> anyhow::Result<Vec<Workload>> {
    let ask = request(
        "GET",
        "/v1/status",
        &environment.keys.token("operator")?,
        "",
    );
    let pace = Duration::from_millis(5);
    Ok(vec![Workload::new("status", pace, vec![vec![ask]])])
}

/// Returns workloads with an eighth of the reference load: reads and writes of nodes. (G10)
pub fn at_an_eighth(environment: &Environment) -> anyhow::Result<Vec<Workload>> {
    let issuer = environment.keys.issuer(Arc::new(SystemClock))?;
    let nodes: Vec<_> = (0..NODES)
        .map(|number| NodeName::new(format!("node-{number}")))
        .collect::<Result<_, _>>()?;
    let reader = |number: usize| {
        let name = format!("reader-{number}");
        issuer.mint(&name, &[Scope::Viewer], TOKEN_MS)
    };
    let readers: Vec<_> = (0..READERS).map(reader).collect::<Result<_, _>>()?;
    let reads = |token: &String| {
        let read = |node| request("GET", &format!("/v1/nodes/{node}"), token, "");
        nodes.iter().map(read).collect()
    };
    let pages = |token: &String| vec![request("GET", "/v1/nodes?limit=100", token, "")];
    let writes = nodes.iter().map(|node| reports(&issuer, node));
    Ok(vec![
        // The write workload is first, so that the other workloads find nodes to read.
        Workload::new("write", WRITES_EACH, writes.collect::<Result<_, _>>()?),
        Workload::new("read", READS_EACH, readers.iter().map(reads).collect()),
        Workload::new("page", PAGES_EACH, readers.iter().map(pages).collect()),
    ])
}

/// Returns reports of the agent of a node, each with a change.
fn reports(issuer: &Issuer, node: &NodeName) -> anyhow::Result<Vec<Vec<u8>>> {
    let scope = Scope::Agent(node.clone());
    let token = issuer.mint(&format!("agent-{node}"), &[scope], TOKEN_MS)?;
    let path = format!("/v1/nodes/{node}/heartbeat");
    let report = |zone: &str| {
        let mut beat = heartbeat(node);
        let labels = &mut beat.inventory.labels;
        labels.insert("zone".to_owned(), zone.to_owned());
        let body = serde_json::to_string(&beat)?;
        anyhow::Ok(request("PUT", &path, &token, &body))
    };
    ["a", "b"].into_iter().map(report).collect()
}

impl Workload {
    fn new(what: &'static str, pace: Duration, callers: Vec<Vec<Vec<u8>>>) -> Self {
        Self {
            what,
            pace,
            callers: Arc::new(callers),
            connections: Arc::default(),
        }
    }

    /// Sends every request once, so that data exists before the measurement.
    pub fn begin(&self, address: SocketAddr) -> anyhow::Result<()> {
        for asks in self.callers.iter() {
            let mut connection = Blocking::open(address)?;
            for ask in asks {
                connection.ask(ask)?;
            }
            self.connections.blocking_lock().push(connection);
        }
        Ok(())
    }

    /// Measures latencies for this time. A latency counts from the due time, because a late
    /// response delays the next request.
    pub fn run(&self, span: Duration) -> anyhow::Result<Took> {
        let mut connections = self.connections.blocking_lock();
        let mut took = Vec::new();
        let mut due = Instant::now();
        let end = due + span;
        while due < end {
            let number = took.len();
            let client = number % connections.len();
            let asks = &self.callers[client];
            let ask = &asks[number / connections.len() % asks.len()];
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            connections[client].ask(ask)?;
            took.push(due.elapsed());
            due += self.pace;
        }
        Ok(took)
    }
}

/// Returns the 99th percentile in milliseconds.
pub fn percentile_99(took: &mut Took) -> anyhow::Result<f64> {
    took.sort_unstable();
    let at = took.get(took.len() * 99 / 100);
    Ok(at.context("nothing was asked")?.as_secs_f64() * 1_000.0)
}
