//! Runs a private Postgres server in one folder, on a unix socket. It uses the installed binaries.
//!
//! Invariants:
//! - A folder has at most one server. Its owner is the process that holds the lock of the folder;
//!   other processes attach.
//! - The server ends with its owner, also on `kill -9`. The next start recovers committed data.
//! - It does not listen on the network, and the folder is closed to other accounts. The server can
//!   therefore trust every client of its socket.

mod account;
mod binaries;
mod child;
mod pidfile;
mod process_group;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::time::sleep;

use account::Account;
pub use binaries::{binaries, program};
use child::EndReceiver;
use pidfile::Postmaster;

/// Timeout of a start. It includes the recovery of a large journal.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Timeout of a stop. After it, the server is killed.
const STOP_LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time after which a server without an owner gets SIGQUIT. Usually it is already stopping.
const ORPHAN_GRACE: Duration = Duration::from_secs(5);
/// Maximum length of the path of the socket folder, in bytes. A socket path has at most 107 bytes,
/// including the name that Postgres adds.
const SOCKET_PATH_LIMIT: usize = 107 - "/.s.PGSQL.5432".len();

/// Settings of a private server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of data, socket and log. It is created if it is missing.
    pub home: PathBuf,
    /// Whether a commit survives a crash of the system. It is false only in tests, where a commit
    /// survives only a crash of processes.
    pub durable: bool,
    pub max_connections: u32,
}

impl Settings {
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            durable: true,
            max_connections: 200,
        }
    }

    /// Returns the default folder: `/var/lib/hayward/pg` for root, otherwise the data directory of
    /// the user.
    pub fn default_home() -> Option<PathBuf> {
        account::default_home()
    }

    /// Returns whether the folder has data of a server.
    pub fn is_initialized(&self) -> bool {
        self.data_dir().join("PG_VERSION").exists()
    }

    /// Checks that the folder is usable. Creates no files.
    pub fn check(&self) -> Result<(), EmbeddedError> {
        if self.socket_dir().as_os_str().len() > SOCKET_PATH_LIMIT {
            return Err(EmbeddedError::TooLong(self.home.clone()));
        }
        Account::choose()?.check_reachable(&self.home)
    }

    fn data_dir(&self) -> PathBuf {
        self.home.join("data")
    }

    fn socket_dir(&self) -> PathBuf {
        self.home.join("run")
    }
}

/// Why a private server did not start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error("no Postgres on this machine: install it ({0}) or set DATABASE_URL")]
    NotInstalled(&'static str),
    #[error("HAYWARD_PG_BIN is {0}, where there is no initdb and postgres")]
    ConfiguredPrograms(PathBuf),
    #[error(
        "no {0} on this machine: install the client programs of Postgres, of the version of the \
         server or a newer one, or say where they are with HAYWARD_PG_BIN"
    )]
    NoProgram(&'static str),
    #[error("Postgres does not run as root, and there is no account `postgres` or `nobody`")]
    NoAccount,
    #[error("the account of Postgres cannot pass {closed} to reach {home}")]
    Unreachable { home: PathBuf, closed: PathBuf },
    #[error("{0} is too long a path for a unix socket: choose a shorter state directory")]
    TooLong(PathBuf),
    #[error("cannot prepare {folder}")]
    Folder {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot run {program}")]
    Run {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("initdb failed: {0}")]
    Init(String),
    #[error("Postgres ended while starting; the end of its log: {0}")]
    Ended(String),
    #[error("Postgres in {0} did not become ready in time")]
    Slow(PathBuf),
}

/// A running private server.
#[derive(Debug)]
pub struct Embedded {
    settings: Settings,
    server: Postmaster,
    /// Signal of the end of the server. `None` if another process started the server.
    ended: Option<EndReceiver>,
}

impl Embedded {
    /// Starts the server of this folder, or attaches to the one that runs there.
    pub async fn start(settings: Settings) -> Result<Self, EmbeddedError> {
        settings.check()?;
        let account = Account::choose()?;
        account.create_private_directory(&settings.home)?;
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            // The holder of the lock is the owner. While another process holds it, a server runs,
            // starts or stops.
            if let Some(lock) = try_lock_folder(&settings.home)? {
                return Self::start_as_owner(settings, account, lock, deadline).await;
            }
            if let Some(server) = find_ready_server(&settings).await {
                return Ok(Self {
                    settings,
                    server,
                    ended: None,
                });
            }
            sleep(POLL_INTERVAL).await;
        }
        Err(EmbeddedError::Slow(settings.home))
    }

    /// Attaches to the server of another process. Never starts one.
    pub async fn attach(settings: Settings) -> Result<Self, EmbeddedError> {
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Some(server) = find_ready_server(&settings).await {
                return Ok(Self {
                    settings,
                    server,
                    ended: None,
                });
            }
            sleep(POLL_INTERVAL).await;
        }
        Err(EmbeddedError::Slow(settings.home))
    }

    async fn start_as_owner(
        settings: Settings,
        account: Account,
        lock: File,
        deadline: Instant,
    ) -> Result<Self, EmbeddedError> {
        let programs = binaries()?;
        end_orphan(&settings, deadline).await?;
        account.create_private_directory(&settings.socket_dir())?;
        if !settings.is_initialized() {
            init_data(&settings, account, &programs).await?;
        }
        let log = settings.home.join("server.log");
        let command = child::ServerCommand {
            account,
            postgres: programs.join("postgres"),
            arguments: arguments(&settings),
            log: log.clone(),
            lock,
        };
        let ended = child::start(command)
            .await
            .map_err(|source| EmbeddedError::Run {
                program: programs.join("postgres"),
                source,
            })?;
        while Instant::now() < deadline {
            if *ended.borrow() {
                return Err(EmbeddedError::Ended(tail(&log)));
            }
            if let Some(server) = find_ready_server(&settings).await {
                tracing::info!(home = %settings.home.display(), "private Postgres is ready");
                return Ok(Self {
                    settings,
                    server,
                    ended: Some(ended),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
        if let Some(server) = Postmaster::find(&settings.data_dir()) {
            server.signal(Signal::SIGQUIT);
        }
        Err(EmbeddedError::Slow(settings.home))
    }

    /// Returns the URL of a database, as superuser.
    pub fn url(&self, database: &str) -> String {
        self.role_url("postgres", database)
    }

    /// Returns the URL of a database, as `role`. The server needs no password.
    pub fn role_url(&self, role: &str, database: &str) -> String {
        url(&self.settings, role, database)
    }

    /// Returns whether this process owns the server.
    pub fn is_owner(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the process id of the server.
    pub fn pid(&self) -> i32 {
        self.server.pid.as_raw()
    }

    /// Returns when the server has ended. Never returns for the server of another process.
    pub async fn wait_until_ended(&self) {
        match self.ended.clone() {
            Some(mut ended) => {
                let _ = ended.wait_for(|ended| *ended).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Stops the server if this process owns it. Open transactions are rolled back.
    pub async fn stop(self) {
        self.end(&[Signal::SIGINT, Signal::SIGQUIT, Signal::SIGKILL])
            .await;
    }

    /// Kills the server if this process owns it. The next start recovers from the journal. For
    /// tests of crashes.
    pub async fn kill(self) {
        self.end(&[Signal::SIGQUIT, Signal::SIGKILL]).await;
    }

    /// Sends each signal in turn until the server has ended.
    async fn end(mut self, signals: &[Signal]) {
        let Some(mut ended) = self.ended.take() else {
            return;
        };
        for signal in signals {
            if *ended.borrow() {
                return;
            }
            self.server.signal(*signal);
            let stopped = ended.wait_for(|ended| *ended);
            if tokio::time::timeout(STOP_LIMIT, stopped).await.is_ok() {
                return;
            }
            tracing::warn!(%signal, "private Postgres did not stop");
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(ended) = &self.ended
            && !*ended.borrow()
        {
            self.server.signal(Signal::SIGINT);
        }
    }
}

/// Returns the URL of a database. The path of the socket is percent-encoded in it.
fn url(settings: &Settings, role: &str, database: &str) -> String {
    let directory: String = settings
        .socket_dir()
        .to_string_lossy()
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    format!("postgres://{role}@localhost/{database}?host={directory}&sslmode=disable")
}

/// Tries to lock the folder. Returns `None` if another process holds it.
fn try_lock_folder(home: &Path) -> Result<Option<File>, EmbeddedError> {
    let to_error = |source| EmbeddedError::Folder {
        folder: home.to_owned(),
        source,
    };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(home.join("owner.lock"))
        .map_err(to_error)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(source)) => Err(to_error(source)),
    }
}

/// Returns the server of this folder if it accepts connections.
async fn find_ready_server(settings: &Settings) -> Option<Postmaster> {
    let server = Postmaster::find(&settings.data_dir()).filter(|server| server.is_ready)?;
    let connection = PgConnection::connect(&url(settings, "postgres", "postgres")).await;
    let _ = connection.ok()?.close().await;
    Some(server)
}

/// Waits until a server whose owner has died is stopped, and stops it if that takes long. The
/// caller holds the lock of the folder.
async fn end_orphan(settings: &Settings, deadline: Instant) -> Result<(), EmbeddedError> {
    let grace_deadline = Instant::now() + ORPHAN_GRACE;
    let mut is_quit_sent = false;
    // A stale `postmaster.pid` may name another process, so its data directory is checked.
    while let Some(server) = Postmaster::find(&settings.data_dir()) {
        if !is_server_of(server, &settings.data_dir()) {
            break;
        }
        if Instant::now() > deadline {
            return Err(EmbeddedError::Slow(settings.home.clone()));
        }
        if Instant::now() > grace_deadline && !is_quit_sent {
            server.signal(Signal::SIGQUIT);
            is_quit_sent = true;
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Returns whether the process is a server of this data folder, which is then its working
/// directory. Returns false if that cannot be read. Postgres then decides whether its lock file is
/// stale.
fn is_server_of(server: Postmaster, data: &Path) -> bool {
    match fs::read_link(format!("/proc/{}/cwd", server.pid)) {
        Ok(directory) => Some(directory) == fs::canonicalize(data).ok(),
        Err(_) => false,
    }
}

/// Creates the data of a new server.
async fn init_data(
    settings: &Settings,
    account: Account,
    programs: &Path,
) -> Result<(), EmbeddedError> {
    // The data is created in a temporary folder and then moved. An interrupted initdb leaves a
    // folder that initdb refuses later.
    let new_data = settings.home.join("data.new");
    if new_data.exists() {
        fs::remove_dir_all(&new_data).map_err(|source| EmbeddedError::Folder {
            folder: new_data.clone(),
            source,
        })?;
    }
    let program = programs.join("initdb");
    let mut command = account.command(&program);
    command
        .args(["--username=postgres", "--auth=trust", "--encoding=UTF8"])
        .args(["--locale=C", "--no-instructions"])
        .arg("-D")
        .arg(&new_data);
    if !settings.durable {
        command.arg("--no-sync");
    }
    let output = process_group::output(command)
        .await
        .map_err(|source| EmbeddedError::Run { program, source })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(EmbeddedError::Init(text.trim().replace('\n', "; ")));
    }
    fs::rename(&new_data, settings.data_dir()).map_err(|source| EmbeddedError::Folder {
        folder: settings.data_dir(),
        source,
    })
}

/// Returns the command line of the server.
fn arguments(settings: &Settings) -> Vec<String> {
    let durable = if settings.durable { "on" } else { "off" };
    // Test servers limit the journal to save disk space.
    let wal = if settings.durable { "512MB" } else { "96MB" };
    let parameters = [
        ("listen_addresses", String::new()),
        (
            "unix_socket_directories",
            settings.socket_dir().to_string_lossy().into_owned(),
        ),
        ("unix_socket_permissions", "0700".to_owned()),
        ("port", "5432".to_owned()),
        ("max_connections", settings.max_connections.to_string()),
        ("shared_buffers", "128MB".to_owned()),
        ("fsync", durable.to_owned()),
        ("full_page_writes", durable.to_owned()),
        // Tests need this too: a confirmed commit survives a crash of every process.
        ("synchronous_commit", "on".to_owned()),
        ("max_wal_size", wal.to_owned()),
        ("logging_collector", "off".to_owned()),
        ("log_line_prefix", "%m [%p] %q%u@%d ".to_owned()),
        ("timezone", "UTC".to_owned()),
        ("log_timezone", "UTC".to_owned()),
    ];
    let mut arguments = vec![
        "-D".to_owned(),
        settings.data_dir().to_string_lossy().into_owned(),
    ];
    for (name, value) in parameters {
        arguments.push("-c".to_owned());
        arguments.push(format!("{name}={value}"));
    }
    arguments
}

/// Returns the last five lines of the log as one line.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("; ")
}
