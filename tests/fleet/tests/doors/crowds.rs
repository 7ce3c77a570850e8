//! G13, F39, F40: what strangers who are slow, idle or greedy cost a caller who behaves. One
//! service as a process of its own, the strangers in another. What is asserted is that every
//! request of the well-behaved caller is answered; how long it took is printed, with and without
//! the strangers in the same run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::World;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const REQUESTS: usize = 400;
const STRANGERS: usize = 10_000;

/// Without strangers, when both sides have warmed up.
async fn alone(client: &Client) -> Duration {
    behaves(client).await;
    behaves(client).await
}

/// Asks one after the other, and tells how long the slowest of a hundred took. What it asks for any
/// replica answers, also one that does not lead for a moment.
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

fn told(what: &str, alone: Duration, beside: Duration) {
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    println!("{what}: p99 {alone:?} alone, {beside:?} beside them, ratio {ratio:.1}");
}

/// As many descriptors as ten thousand strangers need, where this machine allows it.
fn strangers_possible() -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    STRANGERS.min(
        usize::try_from(hard)
            .unwrap_or(usize::MAX)
            .saturating_sub(500),
    )
}

fn host(world: &World) -> String {
    world
        .url("node-status")
        .trim_start_matches("http://")
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f39_ten_thousand_idle_connections_are_survived() {
    let world = World::start().await;
    let ada = world.client("node-status", "operator");
    let alone = alone(&ada).await;
    let wanted = strangers_possible();
    let host = host(&world);
    let mut idle = Vec::with_capacity(wanted);
    while idle.len() < wanted {
        idle.push(TcpStream::connect(&host).await.unwrap());
    }
    let beside = behaves(&ada).await;
    told(&format!("{wanted} idle connections"), alone, beside);
    // A connection that begins now is let in as well.
    let fresh = world.client("node-status", "user-ben");
    fresh.get::<Value>("/v1/status").await.unwrap();
    // Whoever is idle is not thrown out while there is room for all.
    let still = idle.iter().filter(|stream| {
        let mut byte = [0];
        let read = stream.try_read(&mut byte);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    });
    println!("{} of {wanted} are still open", still.count());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f39_slow_heads_bodies_and_readers_are_cut_and_harm_nobody() {
    let world = World::start().await;
    let ada = world.client("node-status", "operator");
    let alone = alone(&ada).await;
    let (host, token) = (host(&world), world.keys.token("user-ben").unwrap());
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
                // A head without end, a body without end, an answer that nobody reads.
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
    let beside = behaves(&ada).await;
    told("300 slow clients", alone, beside);
    // Heads have ten seconds: whatever the clock does, they end by the server's word.
    until_within("slow heads to be cut", Duration::from_mins(1), async || {
        (cut.load(Ordering::Relaxed) >= 100).then_some(())
    })
    .await;
    ada.get::<Value>("/v1/status").await.unwrap();
    over.store(true, Ordering::Relaxed);
    strangers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f40_a_caller_who_floods_is_held_back_and_the_others_are_not() {
    let world = World::strict().await;
    let ada = world.client("node-status", "operator");
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
        let (host, token) = (host(&world), world.keys.token("user-ben").unwrap());
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
                let mut said = Vec::new();
                let _ = stream.read_to_end(&mut said).await;
                if said.starts_with(b"HTTP/1.1 429") {
                    refused.fetch_add(1, Ordering::Relaxed);
                    assert!(String::from_utf8_lossy(&said).contains("retry-after: "));
                } else {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    until_within(
        "the flood to be held back",
        Duration::from_mins(2),
        async || (refused.load(Ordering::Relaxed) > 0).then_some(()),
    )
    .await;
    let beside = behaves(&ada).await;
    told("a flood of one caller", alone, beside);
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
