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
const STRANGERS: usize = 10_000;
/// Number of idle connections from one address without a valid token.
const SILENT: usize = 256;

/// Measures the latency without abusive clients, after both sides have warmed up.
async fn alone(client: &Client) -> Duration {
    behaves(client).await;
    behaves(client).await
}

/// Sends requests one after the other, and returns the 99th percentile of the latency. Any replica
/// answers them, even one that does not lead.
async fn behaves(client: &Client) -> Duration {
    let mut took = Vec::with_capacity(REQUESTS);
    let mut pace = tokio::time::interval(Duration::from_millis(3));
    for number in 0..REQUESTS {
        pace.tick().await;
        let began = Instant::now();
        let answer: Result<Value, _> = client.get("/v1/status").await;
        took.push(began.elapsed());
        assert!(answer.is_ok(), "request {number}: {answer:?}");
    }
    took.sort_unstable();
    took[REQUESTS * 99 / 100]
}

fn report(what: &str, alone: Duration, with_abuse: Duration) {
    let ratio = with_abuse.as_secs_f64() / alone.as_secs_f64();
    println!("{what}: p99 {alone:?} alone, {with_abuse:?} with them, ratio {ratio:.1}");
}

/// Returns the number of connections that this machine allows, at most as many as ten thousand
/// clients need.
fn strangers_possible() -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    STRANGERS.min(
        usize::try_from(hard)
            .unwrap_or(usize::MAX)
            .saturating_sub(500),
    )
}

fn host(fleet: &TestFleet) -> String {
    fleet
        .url("node-status")
        .trim_start_matches("http://")
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_are_survived() {
    let fleet = TestFleet::start().await;
    let ada = fleet.client("node-status", "operator");
    let alone = alone(&ada).await;
    let wanted = strangers_possible();
    let host = host(&fleet);
    let mut known = TcpStream::connect(&host).await.unwrap();
    let token = fleet.keys.token("user-ben").unwrap();
    let asks =
        format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    check_good_answer(&mut known, &asks).await;
    let mut idle = Vec::with_capacity(wanted);
    while idle.len() < wanted {
        idle.push(TcpStream::connect(&host).await.unwrap());
    }
    let with_abuse = behaves(&ada).await;
    report(&format!("{wanted} idle connections"), alone, with_abuse);
    // A new connection is admitted as well.
    let fresh = fleet.client("node-status", "user-ben");
    fresh.get::<Value>("/v1/status").await.unwrap();
    // Only the number of connections without a token is limited per address (S27).
    let open = |stream: &&TcpStream| {
        let read = stream.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    until_within("most to be gone", Duration::from_mins(1), async || {
        (idle.iter().filter(open).count() <= SILENT).then_some(())
    })
    .await;
    check_good_answer(&mut known, &asks).await;
}

/// Sends on this connection, and checks that the answer is good.
async fn check_good_answer(stream: &mut TcpStream, asks: &str) {
    stream.write_all(asks.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        assert_ne!(
            stream.read_buf(&mut answer).await.unwrap(),
            0,
            "it was closed"
        );
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_heads_bodies_and_readers_are_cut_and_harm_no_other_caller() {
    let fleet = TestFleet::start().await;
    let ada = fleet.client("node-status", "operator");
    let alone = alone(&ada).await;
    let (host, token) = (host(&fleet), fleet.keys.token("user-ben").unwrap());
    let (over, cut) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut strangers = JoinSet::new();
    for number in 0..300 {
        let (host, token) = (host.clone(), token.clone());
        let (over, cut) = (Arc::clone(&over), Arc::clone(&cut));
        strangers.spawn(async move {
            let authorised = format!("host: x\r\nauthorization: Bearer {token}\r\n");
            let begin = match number % 3 {
                // The three kinds are a head without end, a body without end, and an answer that is
                // never read.
                0 => "GET /v1/nodes HTTP/1.1\r\n".to_owned(),
                1 => format!(
                    "POST /v1/enrolments HTTP/1.1\r\n{authorised}idempotency-key: k\r\n\
                     content-type: application/json\r\ncontent-length: 100000\r\n\r\n"
                ),
                _ => format!("GET /v1/openapi.json HTTP/1.1\r\n{authorised}\r\n").repeat(50),
            };
            let mut stream = TcpStream::connect(&host).await.unwrap();
            let _ = stream.write_all(begin.as_bytes()).await;
            let mut tick = tokio::time::interval(Duration::from_millis(100));
            while !over.load(Ordering::Relaxed) {
                tick.tick().await;
                if number % 3 != 2 && stream.write_all(b"x").await.is_err() {
                    cut.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        });
    }
    let with_abuse = behaves(&ada).await;
    report("300 slow clients", alone, with_abuse);
    // The server cuts a head after ten seconds, even if the clock is changed.
    until_within("slow heads to be cut", Duration::from_mins(1), async || {
        (cut.load(Ordering::Relaxed) >= 100).then_some(())
    })
    .await;
    ada.get::<Value>("/v1/status").await.unwrap();
    over.store(true, Ordering::Relaxed);
    strangers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flooding_caller_is_limited_and_the_others_are_not() {
    let fleet = TestFleet::strict().await;
    let ada = fleet.client("node-status", "operator");
    let alone = alone(&ada).await;
    let (over, refused) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let answered = Arc::new(AtomicU64::new(0));
    let mut flood = JoinSet::new();
    for _ in 0..16 {
        let (over, refused) = (Arc::clone(&over), Arc::clone(&refused));
        let answered = Arc::clone(&answered);
        let (host, token) = (host(&fleet), fleet.keys.token("user-ben").unwrap());
        flood.spawn(async move {
            let ask = format!(
                "GET /v1/nodes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
                 connection: close\r\n\r\n"
            );
            while !over.load(Ordering::Relaxed) {
                let Ok(mut stream) = TcpStream::connect(&host).await else {
                    continue;
                };
                let _ = stream.write_all(ask.as_bytes()).await;
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer).await;
                if answer.starts_with(b"HTTP/1.1 429") {
                    refused.fetch_add(1, Ordering::Relaxed);
                    assert!(String::from_utf8_lossy(&answer).contains("retry-after: "));
                } else {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    until_within("the flood to be held back", LONG, async || {
        (refused.load(Ordering::Relaxed) > 0).then_some(())
    })
    .await;
    let with_abuse = behaves(&ada).await;
    report("a flood of one caller", alone, with_abuse);
    over.store(true, Ordering::Relaxed);
    while let Some(it) = flood.join_next().await {
        it.unwrap();
    }
    let (answered, refused) = (
        answered.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed),
    );
    println!("of the flood {answered} were answered, {refused} refused");
}

/// Asserts that valid tokens are admitted that the service has not seen before.
async fn new_tokens_are_admitted(fleet: &TestFleet) {
    let ours = fleet.keys.issuer(Arc::new(SystemClock)).unwrap();
    for number in 0..20 {
        let token = ours.mint(&format!("user-{number}"), &[Scope::Submitter], 60_000);
        let token = TokenSource::fixed(token.unwrap());
        let client = Client::new([fleet.url("node-status")], token).unwrap();
        client.get::<Value>("/v1/status").await.unwrap();
    }
}

/// Failed tokens come from the same address as all other callers in this test (S28).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_tokens_are_limited_and_valid_ones_from_the_same_address_are_not() {
    let fleet = TestFleet::start().await;
    let ada = fleet.client("node-status", "operator");
    let alone = alone(&ada).await;
    let dir = tempfile::tempdir().unwrap();
    let theirs = Keys::create(dir.path()).unwrap();
    let theirs = theirs.issuer(Arc::new(SystemClock)).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let counts = Arc::new([const { AtomicU64::new(0) }; 3]);
    let mut flood = JoinSet::new();
    for number in 0..16 {
        let (over, counts) = (Arc::clone(&over), Arc::clone(&counts));
        let (host, name) = (host(&fleet), format!("mallory-{number}"));
        let forged = theirs.mint(&name, &[Scope::Operator], 60_000).unwrap();
        // A third of the requests has no token, a third the same one, and a third a new one each
        // time.
        let token = match number % 3 {
            0 => String::new(),
            _ => forged,
        };
        flood.spawn(async move {
            let mut attempts = 0_u32;
            while !over.load(Ordering::Relaxed) {
                attempts += 1;
                let token = match number % 3 {
                    2 => format!("{}{attempts:08}", &token[..token.len() - 8]),
                    _ => token.clone(),
                };
                let answer = refused(&host, &token).await;
                let kind = match answer.get(..12).unwrap_or_default() {
                    b"HTTP/1.1 401" => 0,
                    b"HTTP/1.1 429" => 1,
                    _ => 2,
                };
                counts[kind].fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let count = |kind: usize| counts[kind].load(Ordering::Relaxed);
    until_within("the flood to be held back", LONG, async || {
        (count(1) > 0).then_some(())
    })
    .await;
    let with_abuse = behaves(&ada).await;
    report("a flood of forged tokens", alone, with_abuse);
    new_tokens_are_admitted(&fleet).await;
    let before = count(1);
    until_within("it to be held back still", LONG, async || {
        (count(1) > before).then_some(())
    })
    .await;
    over.store(true, Ordering::Relaxed);
    while let Some(it) = flood.join_next().await {
        it.unwrap();
    }
    println!("of the flood {} got 401, {} 429", count(0), count(1));
    assert_eq!(count(2), 0, "no other answer");
}

const LONG: Duration = Duration::from_mins(2);

/// Returns the answer to this token, on a connection of its own.
async fn refused(host: &str, token: &str) -> Vec<u8> {
    let ask = format!(
        "GET /v1/nodes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\n\r\n"
    );
    let mut answer = Vec::new();
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(ask.as_bytes()).await.unwrap();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}
