//! What strangers who are slow, idle or greedy cost a caller who behaves (G13, F39, F40): one
//! service as a process of its own, asked two hundred times a second for as long as they are there.
//!
//! Strangers have machines of their own; here theirs is a thread that runs where nobody else wants
//! to, so that what is measured is what they take from the service, and not what making them up
//! takes from it. Merely of the lowest priority it would not do: it keeps a processor to the end of
//! its turn, milliseconds after the service has woken up. How much they did is told as well.
//!
//! Who behaves is a thread that sleeps to the instant: the clock of a runtime has milliseconds, in
//! which what is measured here would drown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use hayward_service::{Keys, Scope, SystemClock};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::ground::Ground;
use super::process::Process;
use super::report::Report;
use super::wire::{Blocking, request};
use crate::fleet::Ports;

/// Of each kind of strangers.
const ROUNDS: usize = 3;
const PACE: Duration = Duration::from_millis(5);
const IDLE: usize = 10_000;
const SLOW: usize = 300;
const GREEDY: usize = 16;
const MANY: usize = 100;
/// Where a forged token has another number each time: none is like one that was seen before.
const NUMBER: &str = "0123456789AB";
/// Between two bytes of a slow one.
const DRIP: Duration = Duration::from_millis(100);
/// The limits of an installation, which benchmarks otherwise switch off.
const LIMITS: [(&str, &str); 4] = [
    ("HAYWARD_STRANGER_REQUESTS_PER_SECOND", "50"),
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

/// What strangers are told, and what they tell: when it is over, and how much they did.
#[derive(Clone, Default)]
struct Day(Arc<Told>);

#[derive(Default)]
struct Told {
    over: AtomicBool,
    did: AtomicU64,
}

impl Day {
    fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Relaxed)
    }

    /// How many there were before.
    fn did_one(&self) -> u64 {
        self.0.did.fetch_add(1, Ordering::Relaxed)
    }

    async fn until_over(&self) {
        let mut tick = tokio::time::interval(DRIP);
        while !self.is_over() {
            tick.tick().await;
        }
    }
}

impl Stand {
    async fn all(&self, report: &mut Report) -> anyhow::Result<()> {
        self.behave().await?;
        let idle = possible()?;
        let (address, token) = (self.address, self.greedy.clone());
        let who = format!("{idle} idle connections");
        self.beside(&who, report, |day| wait_idly(address, idle, day))
            .await?;
        let who = format!("{SLOW} slow heads, bodies and readers");
        self.beside(&who, report, |day| drip(address, token.clone(), day))
            .await?;
        let asks = greed("GET /v1/nodes", "", &self.greedy);
        self.floods("a flood", (asks, GREEDY), report).await?;
        let orders = greed(
            "POST /v1/enrolments",
            "idempotency-key: k\r\n",
            &self.greedy,
        );
        self.floods("a flood of orders that are refused", (orders, MANY), report)
            .await?;
        let forged = greed("GET /v1/nodes", "", &forged()?);
        self.floods("a flood of forged tokens", (forged, MANY), report)
            .await
    }

    async fn floods(
        &self,
        what: &str,
        (ask, connections): (String, usize),
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let (address, who) = (
            self.address,
            format!("{what}, over {connections} connections"),
        );
        self.beside(&who, report, |day| {
            flood(address, (ask.clone(), connections), day)
        })
        .await
    }

    /// The middle one of some rounds by its ratio, and how far the others are from it: a single one
    /// says as much of this machine's other business.
    async fn beside<F>(
        &self,
        who: &str,
        report: &mut Report,
        strangers: impl Fn(Day) -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let day = Day::default();
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(self.round(&day, &strangers).await?);
        }
        let ratio = |(beside, alone): &(f64, f64)| beside / alone.max(0.001);
        rounds.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let [least, .., most] = &rounds[..] else {
            bail!("there were no rounds");
        };
        report.times(&format!("p99 beside {who}"), rounds[ROUNDS / 2], "alone");
        let spread = format!("{:.1} to {:.1}", ratio(least), ratio(most));
        report.figure(&format!("  its ratio in {ROUNDS} rounds"), spread);
        let seconds = self.span.as_secs().max(1) * ROUNDS as u64;
        let did = day.0.did.load(Ordering::Relaxed) / seconds;
        report.figure("  what they did meanwhile", format!("{did} /s"));
        Ok(())
    }

    /// Beside them, and the mean of alone before and after.
    async fn round<F>(&self, day: &Day, strangers: impl Fn(Day) -> F) -> anyhow::Result<(f64, f64)>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let before = self.behave().await?;
        day.0.over.store(false, Ordering::Relaxed);
        let crowd = apart(strangers(day.clone()))?;
        let beside = self.behave().await;
        day.0.over.store(true, Ordering::Relaxed);
        let ended = tokio::task::spawn_blocking(move || crowd.join()).await?;
        ended.map_err(|_| anyhow::anyhow!("the strangers panicked"))??;
        let after = self.behave().await?;
        Ok((beside?, f64::midpoint(before, after)))
    }

    async fn behave(&self) -> anyhow::Result<f64> {
        let ask = request("GET", "/v1/status", &self.behaved, "");
        let (address, span) = (self.address, self.span);
        tokio::task::spawn_blocking(move || behave(address, &ask, span)).await?
    }
}

/// Asks at an even pace; milliseconds within which 99 of 100 were answered. Whoever is answered
/// late asks late, so what it waited for counts from when it was due.
fn behave(address: SocketAddr, ask: &[u8], span: Duration) -> anyhow::Result<f64> {
    let mut line = Blocking::open(address)?;
    let mut took = Vec::new();
    let mut due = Instant::now();
    let end = due + span;
    while due < end {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        line.ask(ask)?;
        took.push(due.elapsed());
        due += PACE;
    }
    took.sort_unstable();
    let at = took
        .get(took.len() * 99 / 100)
        .context("nothing was asked")?;
    Ok(at.as_secs_f64() * 1_000.0)
}

/// What a greedy one sends, on a connection for each time.
fn greed(what: &str, more: &str, token: &str) -> String {
    format!(
        "{what} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{more}\
         content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    )
}

/// A token as ours are, with a signature that is none.
fn forged() -> anyhow::Result<String> {
    let dir = tempfile::tempdir()?;
    let issuer = Keys::create(dir.path())?.issuer(Arc::new(SystemClock))?;
    let token = issuer.mint("mallory", &[Scope::Operator], 3_600_000)?;
    let (said, signature) = token.rsplit_once('.').context("a token has three parts")?;
    let rest = signature
        .get(NUMBER.len()..)
        .context("a signature is long")?;
    Ok(format!("{said}.{NUMBER}{rest}"))
}

/// On a thread that runs when nobody else wants to.
fn apart<F>(strangers: F) -> anyhow::Result<JoinHandle<anyhow::Result<()>>>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(std::thread::spawn(move || {
        let this = nix::unistd::gettid().to_string();
        let lowered = std::process::Command::new("chrt")
            .args(["--idle", "--pid", "0", &this])
            .stdout(std::process::Stdio::null())
            .status()
            .context("cannot run `chrt`")?;
        ensure!(lowered.success(), "cannot lower the priority of strangers");
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

async fn wait_idly(address: SocketAddr, count: usize, day: Day) -> anyhow::Result<()> {
    let mut idle = Vec::with_capacity(count);
    while idle.len() < count && !day.is_over() {
        idle.push(TcpStream::connect(address).await?);
        day.did_one();
    }
    day.until_over().await;
    Ok(())
}

/// A third sends a head without end, a third a body without end, and a third never reads the many
/// answers it asked for. Whoever is cut comes again.
async fn drip(address: SocketAddr, token: String, day: Day) -> anyhow::Result<()> {
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
        let (begin, day) = (Arc::clone(&begin), day.clone());
        crowd.spawn(async move {
            while !day.is_over() {
                let _ = drip_once(address, &begin, number % 3, &day).await;
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
    day: &Day,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(begin[kind].as_bytes()).await?;
    let mut tick = tokio::time::interval(DRIP);
    while !day.is_over() {
        tick.tick().await;
        if kind != 2 {
            stream.write_all(b"x").await?;
            day.did_one();
        }
    }
    Ok(())
}

/// Each request on a connection of its own, as fast as they are answered or refused.
async fn flood(
    address: SocketAddr,
    (ask, connections): (String, usize),
    day: Day,
) -> anyhow::Result<()> {
    let ask = Arc::new(ask);
    let mut crowd = JoinSet::new();
    for _ in 0..connections {
        let (ask, day) = (Arc::clone(&ask), day.clone());
        crowd.spawn(async move {
            while !day.is_over() {
                let Ok(mut stream) = TcpStream::connect(address).await else {
                    continue;
                };
                let ask = ask.replace(NUMBER, &format!("{:012}", day.did_one()));
                let _ = stream.write_all(ask.as_bytes()).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
    }
    crowd.join_all().await;
    Ok(())
}
