//! The cost of slow, idle and greedy clients for a well-behaved caller. One service and the abusive
//! clients are separate processes. The test asserts that every request of the well-behaved caller
//! is answered, and prints the latency with and without abuse (G13).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hayward_service::{Client, Keys, Scope, SystemClock, TokenSource};
use hayward_testkit::until_within;
use hayward_tests_fleet::TestFleet;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const REQUESTS: usize = 400;
const MAX_IDLE_CONNECTIONS: usize = 10_000;
/// Maximum number of idle connections from one address without a valid token.
const ALLOWED_IDLE_CONNECTIONS: usize = 256;

/// Maximum time of each wait.
const LIMIT: Duration = Duration::from_mins(2);

/// Numbers of responses by status.
#[derive(Default)]
struct ResponseCounts {
    /// Responses with status 401.
    denied: AtomicU64,
    /// Responses with status 429.
    limited: AtomicU64,
    other: AtomicU64,
}

impl ResponseCounts {
    fn record(&self, response: &[u8]) {
        let count = match response.get(..12).unwrap_or_default() {
            b"HTTP/1.1 401" => &self.denied,
            b"HTTP/1.1 429" => &self.limited,
            _ => &self.other,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Measures the latency without abusive clients, after both sides have warmed up.
async fn baseline_p99(client: &Client) -> Duration {
    measure_p99(client).await;
    measure_p99(client).await
}

/// Sends requests one after the other, and returns the 99th percentile of the latency. Any replica
/// answers them, even one that does not lead.
async fn measure_p99(client: &Client) -> Duration {
    let mut latencies = Vec::with_capacity(REQUESTS);
    let mut pace = tokio::time::interval(Duration::from_millis(3));
    for number in 0..REQUESTS {
        pace.tick().await;
        let started = Instant::now();
        let response: Result<Value, _> = client.get("/v1/status").await;
        latencies.push(started.elapsed());
        assert!(response.is_ok(), "request {number}: {response:?}");
    }
    latencies.sort_unstable();
    latencies[REQUESTS * 99 / 100]
}

fn report(abuse: &str, baseline: Duration, with_abuse: Duration) {
    let ratio = with_abuse.as_secs_f64() / baseline.as_secs_f64();
    println!("{abuse}: p99 {baseline:?} alone, {with_abuse:?} with abuse, ratio {ratio:.1}");
}

/// Returns the number of idle connections to open: ten thousand, or fewer if this machine allows
/// fewer open files.
fn possible_connections() -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    MAX_IDLE_CONNECTIONS.min(
        usize::try_from(hard)
            .unwrap_or(usize::MAX)
            .saturating_sub(500),
    )
}

fn service_address(fleet: &TestFleet) -> String {
    fleet
        .url("node-status")
        .trim_start_matches("http://")
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_answers_while_ten_thousand_connections_are_idle() {
    let fleet = TestFleet::start().await;
    let operator = fleet.client("node-status", "operator");
    let baseline = baseline_p99(&operator).await;
    let connections = possible_connections();
    let host = service_address(&fleet);
    let mut authenticated = TcpStream::connect(&host).await.unwrap();
    let token = fleet.keys.token("user-ben").unwrap();
    let request =
        format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    assert_ok_response(&mut authenticated, &request).await;
    let mut idle = Vec::with_capacity(connections);
    while idle.len() < connections {
        idle.push(TcpStream::connect(&host).await.unwrap());
    }
    let with_abuse = measure_p99(&operator).await;
    report(
        &format!("{connections} idle connections"),
        baseline,
        with_abuse,
    );
    // A new connection is admitted as well.
    let new_client = fleet.client("node-status", "user-ben");
    new_client.get::<Value>("/v1/status").await.unwrap();
    // Only the number of connections without a token is limited per address (S27).
    let is_open = |stream: &&TcpStream| {
        let result = stream.try_read(&mut [0]);
        result.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    until_within(
        "most idle connections to be closed",
        Duration::from_mins(1),
        async || (idle.iter().filter(is_open).count() <= ALLOWED_IDLE_CONNECTIONS).then_some(()),
    )
    .await;
    assert_ok_response(&mut authenticated, &request).await;
}

/// Sends a request on this connection, and asserts that the response has status 200.
async fn assert_ok_response(stream: &mut TcpStream, request: &str) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"}") {
        assert_ne!(
            stream.read_buf(&mut response).await.unwrap(),
            0,
            "the connection was closed"
        );
    }
    assert!(response.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_disconnected_and_other_callers_are_answered() {
    let fleet = TestFleet::start().await;
    let operator = fleet.client("node-status", "operator");
    let baseline = baseline_p99(&operator).await;
    let (host, token) = (
        service_address(&fleet),
        fleet.keys.token("user-ben").unwrap(),
    );
    let (stop, disconnected) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut slow_clients = JoinSet::new();
    for number in 0..300 {
        let (host, token) = (host.clone(), token.clone());
        let (stop, disconnected) = (Arc::clone(&stop), Arc::clone(&disconnected));
        slow_clients.spawn(async move {
            let headers = format!("host: x\r\nauthorization: Bearer {token}\r\n");
            // A client sends a head without end or a body without end, or never reads the answer.
            let request_start = match number % 3 {
                0 => "GET /v1/nodes HTTP/1.1\r\n".to_owned(),
                1 => format!(
                    "POST /v1/enrolments HTTP/1.1\r\n{headers}idempotency-key: k\r\n\
                     content-type: application/json\r\ncontent-length: 100000\r\n\r\n"
                ),
                _ => format!("GET /v1/openapi.json HTTP/1.1\r\n{headers}\r\n").repeat(50),
            };
            let mut stream = TcpStream::connect(&host).await.unwrap();
            let _ = stream.write_all(request_start.as_bytes()).await;
            let never_reads = number % 3 == 2;
            let mut tick = tokio::time::interval(Duration::from_millis(100));
            while !stop.load(Ordering::Relaxed) {
                tick.tick().await;
                if !never_reads && stream.write_all(b"x").await.is_err() {
                    disconnected.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        });
    }
    let with_abuse = measure_p99(&operator).await;
    report("300 slow clients", baseline, with_abuse);
    // After ten seconds the server closes a connection without a complete head. A change of the
    // clock has no effect.
    until_within(
        "clients with slow heads to be disconnected",
        Duration::from_mins(1),
        async || (disconnected.load(Ordering::Relaxed) >= 100).then_some(()),
    )
    .await;
    operator.get::<Value>("/v1/status").await.unwrap();
    stop.store(true, Ordering::Relaxed);
    slow_clients.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flooding_caller_is_limited_and_the_others_are_not() {
    let fleet = TestFleet::start_with_rate_limits().await;
    let operator = fleet.client("node-status", "operator");
    let baseline = baseline_p99(&operator).await;
    let (stop, refused) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let answered = Arc::new(AtomicU64::new(0));
    let mut flood = JoinSet::new();
    for _ in 0..16 {
        let (stop, refused) = (Arc::clone(&stop), Arc::clone(&refused));
        let answered = Arc::clone(&answered);
        let (host, token) = (
            service_address(&fleet),
            fleet.keys.token("user-ben").unwrap(),
        );
        flood.spawn(async move {
            let request = format!(
                "GET /v1/nodes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
                 connection: close\r\n\r\n"
            );
            while !stop.load(Ordering::Relaxed) {
                let Ok(mut stream) = TcpStream::connect(&host).await else {
                    continue;
                };
                let _ = stream.write_all(request.as_bytes()).await;
                let mut response = Vec::new();
                let _ = stream.read_to_end(&mut response).await;
                if response.starts_with(b"HTTP/1.1 429") {
                    refused.fetch_add(1, Ordering::Relaxed);
                    assert!(String::from_utf8_lossy(&response).contains("retry-after: "));
                } else {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    until_within("the flood to be limited", LIMIT, async || {
        (refused.load(Ordering::Relaxed) > 0).then_some(())
    })
    .await;
    let with_abuse = measure_p99(&operator).await;
    report("a flood of one caller", baseline, with_abuse);
    stop.store(true, Ordering::Relaxed);
    while let Some(client) = flood.join_next().await {
        client.unwrap();
    }
    let (answered, refused) = (
        answered.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed),
    );
    println!("of the flood {answered} were answered, {refused} refused");
}

/// Asserts that the service admits valid tokens that it has not seen before.
async fn assert_new_tokens_are_admitted(fleet: &TestFleet) {
    let issuer = fleet.keys.issuer(Arc::new(SystemClock)).unwrap();
    for number in 0..20 {
        let token = issuer.mint(&format!("user-{number}"), &[Scope::Submitter], 60_000);
        let token = TokenSource::fixed(token.unwrap());
        let client = Client::new([fleet.url("node-status")], token).unwrap();
        client.get::<Value>("/v1/status").await.unwrap();
    }
}

/// The forged tokens come from the same address as all other callers in this test (S28).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_tokens_are_limited_and_valid_ones_from_the_same_address_are_not() {
    let fleet = TestFleet::start().await;
    let operator = fleet.client("node-status", "operator");
    let baseline = baseline_p99(&operator).await;
    let dir = tempfile::tempdir().unwrap();
    let foreign_keys = Keys::create(dir.path()).unwrap();
    let foreign_issuer = foreign_keys.issuer(Arc::new(SystemClock)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let counts = Arc::new(ResponseCounts::default());
    let mut flood = JoinSet::new();
    for number in 0..16 {
        let (stop, counts) = (Arc::clone(&stop), Arc::clone(&counts));
        let (host, name) = (service_address(&fleet), format!("mallory-{number}"));
        let forged = foreign_issuer
            .mint(&name, &[Scope::Operator], 60_000)
            .unwrap();
        // A third of the requests has no token, a third the same one, and a third a new one each
        // time.
        let token = match number % 3 {
            0 => String::new(),
            _ => forged,
        };
        flood.spawn(async move {
            let mut attempts = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                attempts += 1;
                let token = match number % 3 {
                    2 => format!("{}{attempts:08}", &token[..token.len() - 8]),
                    _ => token.clone(),
                };
                let response = request_with_token(&host, &token).await;
                counts.record(&response);
            }
        });
    }
    let limited_count = || counts.limited.load(Ordering::Relaxed);
    until_within("the flood to be limited", LIMIT, async || {
        (limited_count() > 0).then_some(())
    })
    .await;
    let with_abuse = measure_p99(&operator).await;
    report("a flood of forged tokens", baseline, with_abuse);
    assert_new_tokens_are_admitted(&fleet).await;
    let before = limited_count();
    until_within("more forged tokens to be limited", LIMIT, async || {
        (limited_count() > before).then_some(())
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    while let Some(client) = flood.join_next().await {
        client.unwrap();
    }
    let denied = counts.denied.load(Ordering::Relaxed);
    println!("flood: {denied} got 401, {} got 429", limited_count());
    let other = counts.other.load(Ordering::Relaxed);
    assert_eq!(other, 0, "only 401 and 429 are answered");
}

/// Sends a request with this token on a new connection, and returns the response.
async fn request_with_token(host: &str, token: &str) -> Vec<u8> {
    let request = format!(
        "GET /v1/nodes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\n\r\n"
    );
    let mut response = Vec::new();
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_to_end(&mut response).await.unwrap();
    response
}
