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

use super::super::agents::heartbeat_of;
use super::super::http_client::{BlockingConnection, build_request};
use super::super::keys_and_database::Environment;

/// Number of nodes: an eighth of the 1,000 nodes of the reference load.
const NODES: usize = 125;
/// Interval between writes. It gives an eighth of the 500 writes per second of the reference load.
const WRITE_INTERVAL: Duration = Duration::from_millis(16);
/// Number of clients that read nodes.
const READERS: usize = 5;
/// Interval between reads of one node.
const READ_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between reads of a list page.
const PAGE_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between reads of the status of a service without other load.
const STATUS_INTERVAL: Duration = Duration::from_millis(5);
/// Milliseconds of validity of a token.
const TOKEN_MS: u64 = 3_600_000;

/// An encoded HTTP request.
type Request = Vec<u8>;

/// Requests that clients send in turn, at a constant rate.
#[derive(Clone)]
pub struct Workload {
    pub name: &'static str,
    interval: Duration,
    /// Requests of each client, in the order in which it sends them.
    requests_by_client: Arc<Vec<Vec<Request>>>,
    /// A lasting connection for each client, because a client with a valid token is exempt from the
    /// limits for unknown addresses. (S27)
    connections: Arc<Mutex<Vec<BlockingConnection>>>,
}

/// Latency of each request.
pub type Latencies = Vec<Duration>;

/// Returns the workloads for a service without other load.
pub fn status_workload(environment: &Environment) -> anyhow::Result<Vec<Workload>> {
    let request = build_request(
        "GET",
        "/v1/status",
        &environment.keys.token("operator")?,
        "",
    );
    let requests_by_client = vec![vec![request]];
    Ok(vec![Workload::new(
        "status",
        STATUS_INTERVAL,
        requests_by_client,
    )])
}

/// Returns workloads with an eighth of the reference load: reads and writes of nodes. (G10)
pub fn eighth_of_reference_load(environment: &Environment) -> anyhow::Result<Vec<Workload>> {
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
        let read = |node| build_request("GET", &format!("/v1/nodes/{node}"), token, "");
        nodes.iter().map(read).collect()
    };
    let pages = |token: &String| vec![build_request("GET", "/v1/nodes?limit=100", token, "")];
    let writes = nodes.iter().map(|node| heartbeat_requests(&issuer, node));
    Ok(vec![
        // The write workload is first, so that the other workloads find nodes to read.
        Workload::new("write", WRITE_INTERVAL, writes.collect::<Result<_, _>>()?),
        Workload::new("read", READ_INTERVAL, readers.iter().map(reads).collect()),
        Workload::new("page", PAGE_INTERVAL, readers.iter().map(pages).collect()),
    ])
}

/// Returns two heartbeats of a node with different labels. Sent in turn, each of them is a change.
fn heartbeat_requests(issuer: &Issuer, node: &NodeName) -> anyhow::Result<Vec<Request>> {
    let scope = Scope::Agent(node.clone());
    let token = issuer.mint(&format!("agent-{node}"), &[scope], TOKEN_MS)?;
    let path = format!("/v1/nodes/{node}/heartbeat");
    let heartbeat_request = |zone: &str| {
        let mut body = heartbeat_of(node);
        let labels = &mut body.inventory.labels;
        labels.insert("zone".to_owned(), zone.to_owned());
        let body = serde_json::to_string(&body)?;
        anyhow::Ok(build_request("PUT", &path, &token, &body))
    };
    ["a", "b"].into_iter().map(heartbeat_request).collect()
}

impl Workload {
    fn new(name: &'static str, interval: Duration, requests_by_client: Vec<Vec<Request>>) -> Self {
        Self {
            name,
            interval,
            requests_by_client: Arc::new(requests_by_client),
            connections: Arc::default(),
        }
    }

    /// Sends every request once, so that data exists before the measurement.
    pub fn warm_up(&self, address: SocketAddr) -> anyhow::Result<()> {
        for requests in self.requests_by_client.iter() {
            let mut connection = BlockingConnection::open(address)?;
            for request in requests {
                connection.send(request)?;
            }
            self.connections.blocking_lock().push(connection);
        }
        Ok(())
    }

    /// Measures latencies for this time. A latency counts from the time at which its request was
    /// due, because a late response delays the next request.
    pub fn run(&self, duration: Duration) -> anyhow::Result<Latencies> {
        let mut connections = self.connections.blocking_lock();
        let mut latencies = Vec::new();
        let mut due = Instant::now();
        let end = due + duration;
        while due < end {
            let number = latencies.len();
            let client = number % connections.len();
            let requests = &self.requests_by_client[client];
            // Each client sends its own requests in turn.
            let request = &requests[number / connections.len() % requests.len()];
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            connections[client].send(request)?;
            latencies.push(due.elapsed());
            due += self.interval;
        }
        Ok(latencies)
    }
}

/// Returns the 99th percentile in milliseconds.
pub fn percentile_99(latencies: &mut Latencies) -> anyhow::Result<f64> {
    latencies.sort_unstable();
    let latency = latencies.get(latencies.len() * 99 / 100);
    Ok(latency.context("no request was sent")?.as_secs_f64() * 1_000.0)
}
