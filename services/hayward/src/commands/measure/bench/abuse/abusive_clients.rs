//! Abusive clients of a service. Idle clients open connections and send nothing. Slow clients send
//! byte by byte or never read. Greedy clients send as many requests as possible. (F39)

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

const MAX_IDLE_CONNECTIONS: usize = 10_000;
const SLOW_CLIENTS: usize = 300;
/// Connections of a flood that the service accepts.
const GREEDY_CONNECTIONS: usize = 16;
/// Connections of a flood that the service refuses.
const FLOOD_CONNECTIONS: usize = 100;
/// Files and connections that this process needs besides the idle connections.
const FILE_RESERVE: usize = 500;
/// Placeholder in a forged token. A number replaces it, so that every forged token is different.
const NUMBER_PLACEHOLDER: &str = "0123456789AB";
/// Pause between two bytes of a slow client.
const BYTE_INTERVAL: Duration = Duration::from_millis(100);

/// Shared state of the abusive clients: the end signal and the number of their actions.
#[derive(Clone, Default)]
pub struct AbuseRun(Arc<RunState>);

#[derive(Default)]
struct RunState {
    has_ended: AtomicBool,
    actions: AtomicU64,
}

impl AbuseRun {
    pub fn end(&self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Relaxed)
    }

    /// Counts an action. Returns the number before it.
    fn count_action(&self) -> u64 {
        self.0.actions.fetch_add(1, Ordering::Relaxed)
    }

    pub fn actions(&self) -> u64 {
        self.0.actions.load(Ordering::Relaxed)
    }

    async fn wait_for_end(&self) {
        let mut tick = tokio::time::interval(BYTE_INTERVAL);
        while !self.has_ended() {
            tick.tick().await;
        }
    }
}

/// One kind of abusive clients.
#[derive(Clone)]
pub enum AbusiveClients {
    /// Number of connections without a request.
    Idle(usize),
    /// Token for the slow requests.
    Slow(String),
    /// The same request again and again, over several connections at a time.
    Flood {
        name: &'static str,
        request: String,
        connections: usize,
    },
}

impl AbusiveClients {
    /// Returns all kinds of abusive clients. The greedy ones use this token.
    pub fn all_kinds(greedy_token: &str) -> anyhow::Result<[Self; 5]> {
        let list_request = build_request("GET /v1/nodes", "", greedy_token);
        let enrolment = build_request(
            "POST /v1/enrolments",
            "idempotency-key: k\r\n",
            greedy_token,
        );
        let forged_request = build_request("GET /v1/nodes", "", &forge_token()?);
        Ok([
            Self::Idle(max_idle_connections()?),
            Self::Slow(greedy_token.to_owned()),
            Self::Flood {
                name: "a flood",
                request: list_request,
                connections: GREEDY_CONNECTIONS,
            },
            Self::Flood {
                name: "a flood of refused requests",
                request: enrolment,
                connections: FLOOD_CONNECTIONS,
            },
            Self::Flood {
                name: "a flood of forged tokens",
                request: forged_request,
                connections: FLOOD_CONNECTIONS,
            },
        ])
    }

    pub fn name(&self) -> String {
        match self {
            Self::Idle(count) => format!("{count} idle connections"),
            Self::Slow(_) => format!("{SLOW_CLIENTS} slow heads, bodies and readers"),
            Self::Flood {
                name, connections, ..
            } => format!("{name}, over {connections} connections"),
        }
    }

    /// Runs the clients until the end of the run.
    async fn run(self, address: SocketAddr, run: AbuseRun) -> anyhow::Result<()> {
        match self {
            Self::Idle(count) => hold_idle_connections(address, count, run).await,
            Self::Slow(token) => send_slowly(address, token, run).await,
            Self::Flood {
                request,
                connections,
                ..
            } => flood(address, request, connections, run).await,
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
            let thread_id = nix::unistd::gettid().to_string();
            let status = std::process::Command::new("chrt")
                .args(["--idle", "--pid", "0", &thread_id])
                .stdout(std::process::Stdio::null())
                .status()
                .context("cannot run `chrt`")?;
            ensure!(
                status.success(),
                "cannot lower the priority of abusive clients"
            );
            runtime.block_on(self.run(address, run))
        }))
    }
}

/// Returns a greedy request that opens a new connection each time.
fn build_request(request_line: &str, extra_headers: &str, token: &str) -> String {
    format!(
        "{request_line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{extra_headers}\
         content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    )
}

/// Returns a well-formed token with an invalid signature.
fn forge_token() -> anyhow::Result<String> {
    let dir = tempfile::tempdir()?;
    let issuer = Keys::create(dir.path())?.issuer(Arc::new(SystemClock))?;
    let token = issuer.mint("mallory", &[Scope::Operator], 3_600_000)?;
    let (signed, signature) = token.rsplit_once('.').context("a token has three parts")?;
    let signature_end = signature
        .get(NUMBER_PLACEHOLDER.len()..)
        .context("a signature is long")?;
    Ok(format!("{signed}.{NUMBER_PLACEHOLDER}{signature_end}"))
}

/// Raises the limit of open files. Returns the number of idle connections that the limit permits.
fn max_idle_connections() -> anyhow::Result<usize> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let hard = usize::try_from(hard).unwrap_or(usize::MAX);
    Ok(MAX_IDLE_CONNECTIONS.min(hard.saturating_sub(FILE_RESERVE)))
}

async fn hold_idle_connections(
    address: SocketAddr,
    count: usize,
    run: AbuseRun,
) -> anyhow::Result<()> {
    let mut idle = Vec::with_capacity(count);
    while idle.len() < count && !run.has_ended() {
        idle.push(TcpStream::connect(address).await?);
        run.count_action();
    }
    run.wait_for_end().await;
    Ok(())
}

/// A kind of slow client.
struct SlowKind {
    /// Beginning of the request, which is sent at once.
    prefix: String,
    /// True if single bytes follow the prefix.
    sends_bytes: bool,
}

/// Sends slowly. A third of the clients send an endless head, a third send an endless body, and a
/// third never read their responses. A closed connection is opened again.
async fn send_slowly(address: SocketAddr, token: String, run: AbuseRun) -> anyhow::Result<()> {
    let headers = format!("host: x\r\nauthorization: Bearer {token}\r\n");
    let kinds = [
        SlowKind {
            prefix: "GET /v1/nodes HTTP/1.1\r\n".to_owned(),
            sends_bytes: true,
        },
        SlowKind {
            prefix: format!(
                "POST /v1/enrolments HTTP/1.1\r\n{headers}idempotency-key: k\r\n\
                 content-type: application/json\r\ncontent-length: 100000\r\n\r\n"
            ),
            sends_bytes: true,
        },
        SlowKind {
            // The responses to many requests fill the buffers of the connection.
            prefix: format!("GET /v1/openapi.json HTTP/1.1\r\n{headers}\r\n").repeat(50),
            sends_bytes: false,
        },
    ];
    let kinds = Arc::new(kinds);
    let mut clients = JoinSet::new();
    for number in 0..SLOW_CLIENTS {
        let (kinds, run) = (Arc::clone(&kinds), run.clone());
        clients.spawn(async move {
            while !run.has_ended() {
                let kind = &kinds[number % kinds.len()];
                let _ = send_slowly_once(address, kind, &run).await;
                tokio::time::sleep(BYTE_INTERVAL).await;
            }
        });
    }
    clients.join_all().await;
    Ok(())
}

/// Opens one connection, and sends the prefix and then one byte after the other. No response is
/// ever read.
async fn send_slowly_once(
    address: SocketAddr,
    kind: &SlowKind,
    run: &AbuseRun,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(kind.prefix.as_bytes()).await?;
    let mut tick = tokio::time::interval(BYTE_INTERVAL);
    while !run.has_ended() {
        tick.tick().await;
        if kind.sends_bytes {
            stream.write_all(b"x").await?;
            run.count_action();
        }
    }
    Ok(())
}

/// Sends each request on a new connection, as fast as the service answers or refuses.
async fn flood(
    address: SocketAddr,
    request: String,
    connections: usize,
    run: AbuseRun,
) -> anyhow::Result<()> {
    let request = Arc::new(request);
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (request, run) = (Arc::clone(&request), run.clone());
        clients.spawn(async move {
            while !run.has_ended() {
                let Ok(mut stream) = TcpStream::connect(address).await else {
                    continue;
                };
                let request =
                    request.replace(NUMBER_PLACEHOLDER, &format!("{:012}", run.count_action()));
                let _ = stream.write_all(request.as_bytes()).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
    }
    clients.join_all().await;
    Ok(())
}
