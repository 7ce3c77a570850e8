//! Abusive clients: slow, idle or greedy ones. (F39)

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hayward_service::{Keys, Scope, SystemClock};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const IDLE: usize = 10_000;
const SLOW: usize = 300;
const GREEDY: usize = 16;
const MANY: usize = 100;
/// Placeholder in a forged token. A number replaces it, so that every forged token is different.
const NUMBER: &str = "0123456789AB";
/// Pause between two bytes of a slow client.
const DRIP: Duration = Duration::from_millis(100);

/// Shared state of the abusive clients: the end signal and the number of their actions.
#[derive(Clone, Default)]
pub struct AbuseRun(Arc<RunState>);

#[derive(Default)]
struct RunState {
    over: AtomicBool,
    actions: AtomicU64,
}

impl AbuseRun {
    pub fn end(&self) {
        self.0.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Relaxed)
    }

    /// Counts an action. Returns the number before it.
    fn count_action(&self) -> u64 {
        self.0.actions.fetch_add(1, Ordering::Relaxed)
    }

    pub fn actions(&self) -> u64 {
        self.0.actions.load(Ordering::Relaxed)
    }

    async fn until_over(&self) {
        let mut tick = tokio::time::interval(DRIP);
        while !self.is_over() {
            tick.tick().await;
        }
    }
}

/// One kind of abusive clients.
#[derive(Clone)]
pub enum AbusiveClients {
    /// Number of connections without a request.
    Idle(usize),
    /// Token for the requests that need one.
    Slow(String),
    /// Name, request and number of connections.
    Flood(&'static str, String, usize),
}

impl AbusiveClients {
    /// Returns all kinds of abusive clients. The greedy ones use this token.
    pub fn all(greedy: &str) -> anyhow::Result<[Self; 5]> {
        let list = greed("GET /v1/nodes", "", greedy);
        let order = greed("POST /v1/enrolments", "idempotency-key: k\r\n", greedy);
        let forged = greed("GET /v1/nodes", "", &forged()?);
        Ok([
            Self::Idle(possible()?),
            Self::Slow(greedy.to_owned()),
            Self::Flood("a flood", list, GREEDY),
            Self::Flood("a flood of orders that are refused", order, MANY),
            Self::Flood("a flood of forged tokens", forged, MANY),
        ])
    }

    pub fn name(&self) -> String {
        match self {
            Self::Idle(count) => format!("{count} idle connections"),
            Self::Slow(_) => format!("{SLOW} slow heads, bodies and readers"),
            Self::Flood(what, _, connections) => format!("{what}, over {connections} connections"),
        }
    }

    async fn run(self, address: SocketAddr, run: AbuseRun) -> anyhow::Result<()> {
        match self {
            Self::Idle(count) => wait_idly(address, count, run).await,
            Self::Slow(token) => drip(address, token, run).await,
            Self::Flood(_, ask, connections) => flood(address, ask, connections, run).await,
        }
    }

    /// Runs the clients on a thread of the idle scheduling class.
    pub fn spawn(
        self,
        address: SocketAddr,
        run: AbuseRun,
    ) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
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
            ensure!(
                lowered.success(),
                "cannot lower the priority of abusive clients"
            );
            runtime.block_on(self.run(address, run))
        }))
    }
}

/// Returns a greedy request that opens a new connection each time.
fn greed(what: &str, more: &str, token: &str) -> String {
    format!(
        "{what} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{more}\
         content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    )
}

/// Returns a well-formed token with an invalid signature.
fn forged() -> anyhow::Result<String> {
    let dir = tempfile::tempdir()?;
    let issuer = Keys::create(dir.path())?.issuer(Arc::new(SystemClock))?;
    let token = issuer.mint("mallory", &[Scope::Operator], 3_600_000)?;
    let (signed, signature) = token.rsplit_once('.').context("a token has three parts")?;
    let rest = signature
        .get(NUMBER.len()..)
        .context("a signature is long")?;
    Ok(format!("{signed}.{NUMBER}{rest}"))
}

/// Raises the limit of open files. Returns the number of idle connections that the limit permits,
/// less a reserve.
fn possible() -> anyhow::Result<usize> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let hard = usize::try_from(hard).unwrap_or(usize::MAX);
    Ok(IDLE.min(hard.saturating_sub(500)))
}

async fn wait_idly(address: SocketAddr, count: usize, run: AbuseRun) -> anyhow::Result<()> {
    let mut idle = Vec::with_capacity(count);
    while idle.len() < count && !run.is_over() {
        idle.push(TcpStream::connect(address).await?);
        run.count_action();
    }
    run.until_over().await;
    Ok(())
}

/// Sends slowly. A third of the clients send an endless head, a third send an endless body, and a
/// third never read their responses. A closed connection is opened again.
async fn drip(address: SocketAddr, token: String, run: AbuseRun) -> anyhow::Result<()> {
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
    let mut clients = JoinSet::new();
    for number in 0..SLOW {
        let (begin, run) = (Arc::clone(&begin), run.clone());
        clients.spawn(async move {
            while !run.is_over() {
                let _ = drip_once(address, &begin, number % 3, &run).await;
                tokio::time::sleep(DRIP).await;
            }
        });
    }
    clients.join_all().await;
    Ok(())
}

async fn drip_once(
    address: SocketAddr,
    begin: &[String; 3],
    kind: usize,
    run: &AbuseRun,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(begin[kind].as_bytes()).await?;
    let mut tick = tokio::time::interval(DRIP);
    while !run.is_over() {
        tick.tick().await;
        if kind != 2 {
            stream.write_all(b"x").await?;
            run.count_action();
        }
    }
    Ok(())
}

/// Sends each request on a new connection, as fast as the service answers or refuses.
async fn flood(
    address: SocketAddr,
    ask: String,
    connections: usize,
    run: AbuseRun,
) -> anyhow::Result<()> {
    let ask = Arc::new(ask);
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (ask, run) = (Arc::clone(&ask), run.clone());
        clients.spawn(async move {
            while !run.is_over() {
                let Ok(mut stream) = TcpStream::connect(address).await else {
                    continue;
                };
                let ask = ask.replace(NUMBER, &format!("{:012}", run.count_action()));
                let _ = stream.write_all(ask.as_bytes()).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
    }
    clients.join_all().await;
    Ok(())
}
