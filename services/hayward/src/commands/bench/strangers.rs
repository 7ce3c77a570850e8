//! What strangers who are slow, idle or greedy cost a caller who behaves (G13, F39, F40): one
//! service as a process of its own, asked two hundred times a second for as long as they are there.
//!
//! Strangers have machines of their own; here theirs is a thread of the lowest priority, so that
//! what is measured is what they take from the service, and not what making them up takes from it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::ground::Ground;
use super::process::Process;
use super::report::Report;
use super::wire::{Line, request};
use crate::fleet::Ports;

const PACE: Duration = Duration::from_millis(5);
const IDLE: usize = 10_000;
const SLOW: usize = 300;
const GREEDY: usize = 16;
const MANY: usize = 100;
/// Between two bytes of a slow one.
const DRIP: Duration = Duration::from_millis(100);
/// The limits of an installation, which benchmarks otherwise switch off.
const LIMITS: [(&str, &str); 3] = [
    ("HAYWARD_REQUESTS_PER_SECOND", "2000"),
    ("HAYWARD_REQUESTS_AT_ONCE", "64"),
    ("HAYWARD_STREAMS_AT_ONCE", "16"),
];

pub async fn measure(seconds: u64, report: &mut Report) -> anyhow::Result<()> {
    let ground = Ground::open(&[], "greedy").await?;
    let url = ground.database.urls["node_status"].clone();
    let mut settings = vec![("HAYWARD_DATABASE_URL", url)];
    settings.extend(LIMITS.map(|(name, value)| (name, value.to_owned())));
    let port = Ports::free()?.first();
    let process = Process::start("node-status", port, ground.keys.dir(), &settings).await?;
    let stand = Stand {
        address: process.address,
        behaved: ground.keys.token("operator")?,
        greedy: ground.keys.token("user-greedy")?,
        span: Duration::from_secs(seconds.max(1)),
    };
    let measured = stand.all(report).await;
    process.stop().await?;
    ground.database.stop().await;
    measured
}

struct Stand {
    address: SocketAddr,
    behaved: String,
    greedy: String,
    span: Duration,
}

impl Stand {
    async fn all(&self, report: &mut Report) -> anyhow::Result<()> {
        self.behave().await?;
        let idle = possible()?;
        let (address, token) = (self.address, self.greedy.clone());
        self.beside(&format!("{idle} idle connections"), report, move |over| {
            wait_idly(address, idle, over)
        })
        .await?;
        self.beside(
            &format!("{SLOW} slow heads, bodies and readers"),
            report,
            move |over| drip(address, token, over),
        )
        .await?;
        let asks = self.greed("GET /v1/nodes", "");
        self.beside(
            &format!("a flood over {GREEDY} connections"),
            report,
            move |over| flood(address, (asks, GREEDY), over),
        )
        .await?;
        let orders = self.greed("POST /v1/enrolments", "idempotency-key: k\r\n");
        self.beside(
            &format!("a flood of orders that are refused, over {MANY} connections"),
            report,
            move |over| flood(address, (orders, MANY), over),
        )
        .await
    }

    /// What the greedy one sends, on a connection for each time.
    fn greed(&self, what: &str, more: &str) -> String {
        format!(
            "{what} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n{more}\
             content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}",
            self.greedy
        )
    }

    /// Alone, beside them, and alone again.
    async fn beside<F>(
        &self,
        who: &str,
        report: &mut Report,
        strangers: impl FnOnce(Arc<AtomicBool>) -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let before = self.behave().await?;
        let over = Arc::new(AtomicBool::new(false));
        let crowd = apart(strangers(Arc::clone(&over)))?;
        let beside = self.behave().await;
        over.store(true, Ordering::Relaxed);
        let ended = tokio::task::spawn_blocking(move || crowd.join()).await?;
        ended.map_err(|_| anyhow::anyhow!("the strangers panicked"))??;
        let after = self.behave().await?;
        let alone = f64::midpoint(before, after);
        report.times(&format!("p99 beside {who}"), (beside?, alone), "alone");
        Ok(())
    }

    /// Asks at an even pace; milliseconds within which 99 of 100 were answered. Whoever is answered
    /// late asks late, so what it waited for counts from when it was due.
    async fn behave(&self) -> anyhow::Result<f64> {
        let ask = request("GET", "/v1/status", &self.behaved, "");
        let mut line = Line::open(self.address).await?;
        let mut took = Vec::new();
        let end = Instant::now() + self.span;
        let mut due = tokio::time::interval(PACE);
        while Instant::now() < end {
            let due = due.tick().await;
            line.ask(&ask).await?;
            took.push(due.elapsed());
        }
        took.sort_unstable();
        let at = took
            .get(took.len() * 99 / 100)
            .context("nothing was asked")?;
        Ok(at.as_secs_f64() * 1_000.0)
    }
}

/// On a thread of the lowest priority.
fn apart<F>(strangers: F) -> anyhow::Result<JoinHandle<anyhow::Result<()>>>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(std::thread::spawn(move || {
        let this = nix::unistd::gettid().to_string();
        let lowered = std::process::Command::new("renice")
            .args(["-n", "19", "-p", &this])
            .stdout(std::process::Stdio::null())
            .status();
        lowered.context("cannot lower the priority of strangers")?;
        runtime.block_on(strangers)
    }))
}

/// As many as descriptors allow, with some kept back.
fn possible() -> anyhow::Result<usize> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let hard = usize::try_from(hard).unwrap_or(usize::MAX);
    Ok(IDLE.min(hard.saturating_sub(500)))
}

async fn until(over: &AtomicBool) {
    let mut tick = tokio::time::interval(DRIP);
    while !over.load(Ordering::Relaxed) {
        tick.tick().await;
    }
}

async fn wait_idly(address: SocketAddr, count: usize, over: Arc<AtomicBool>) -> anyhow::Result<()> {
    let mut idle = Vec::with_capacity(count);
    while idle.len() < count && !over.load(Ordering::Relaxed) {
        idle.push(TcpStream::connect(address).await?);
    }
    until(&over).await;
    Ok(())
}

/// A third sends a head without end, a third a body without end, and a third never reads the many
/// answers it asked for. Whoever is cut comes again.
async fn drip(address: SocketAddr, token: String, over: Arc<AtomicBool>) -> anyhow::Result<()> {
    let known = format!("host: x\r\nauthorization: Bearer {token}\r\n");
    let begin = [
        "GET /v1/nodes HTTP/1.1\r\n".to_owned(),
        format!(
            "POST /v1/enrolments HTTP/1.1\r\n{known}idempotency-key: k\r\n\
             content-type: application/json\r\ncontent-length: 100000\r\n\r\n"
        ),
        format!("GET /v1/openapi.json HTTP/1.1\r\n{known}\r\n").repeat(50),
    ];
    let begin = Arc::new(begin);
    let mut crowd = JoinSet::new();
    for number in 0..SLOW {
        let (begin, over) = (Arc::clone(&begin), Arc::clone(&over));
        crowd.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let _ = drip_once(address, &begin, number % 3, &over).await;
                tokio::time::sleep(DRIP).await;
            }
        });
    }
    crowd.join_all().await;
    Ok(())
}

async fn drip_once(
    address: SocketAddr,
    begin: &[String; 3],
    kind: usize,
    over: &AtomicBool,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(begin[kind].as_bytes()).await?;
    let mut tick = tokio::time::interval(DRIP);
    while !over.load(Ordering::Relaxed) {
        tick.tick().await;
        if kind != 2 {
            stream.write_all(b"x").await?;
        }
    }
    Ok(())
}

/// Each request on a connection of its own, as fast as they are answered or refused.
async fn flood(
    address: SocketAddr,
    (ask, connections): (String, usize),
    over: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let ask = Arc::new(ask);
    let mut crowd = JoinSet::new();
    for _ in 0..connections {
        let (ask, over) = (Arc::clone(&ask), Arc::clone(&over));
        crowd.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let Ok(mut stream) = TcpStream::connect(address).await else {
                    continue;
                };
                let _ = stream.write_all(ask.as_bytes()).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
    }
    crowd.join_all().await;
    Ok(())
}
