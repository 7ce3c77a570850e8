//! Relays that forward all connections between processes, so that faults can cut or delay the
//! connections. There is a TCP relay for each pair of caller and replica, and a Unix socket relay
//! for each replica to the database.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::plan::{Caller, Connections, Replica, Service};

/// Name of the socket of Postgres in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// The faults of the connections through one relay.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectionState {
    /// Whether data waits until this is false again.
    pub silent: bool,
    /// Whether connections are closed as soon as they are made.
    pub refused: bool,
    /// Time by which each piece of data is delayed.
    pub delay: Duration,
    /// Number of resets. An increase closes open connections.
    pub resets: u64,
}

type ConnectionControl = watch::Sender<ConnectionState>;

struct HttpRelay {
    port: u16,
    control: ConnectionControl,
}

struct DatabaseRelay {
    socket_folder: PathBuf,
    control: ConnectionControl,
}

pub struct Relays {
    http: BTreeMap<(Caller, Replica), HttpRelay>,
    database: BTreeMap<Replica, DatabaseRelay>,
}

impl Relays {
    /// Starts relays to replicas on these ports and to the socket of Postgres in `postgres`. The
    /// sockets of the relays are in folders below `sockets`.
    pub async fn start(
        ports: &BTreeMap<Replica, u16>,
        postgres: &Path,
        sockets: &Path,
    ) -> anyhow::Result<Self> {
        let mut http = BTreeMap::new();
        for caller in Caller::all() {
            for (replica, port) in ports {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let relay = HttpRelay {
                    port: listener.local_addr()?.port(),
                    control: ConnectionControl::new(ConnectionState::default()),
                };
                tokio::spawn(serve_http(listener, *port, relay.control.subscribe()));
                http.insert((caller, *replica), relay);
            }
        }
        let mut database = BTreeMap::new();
        for replica in Replica::all() {
            let socket_folder = sockets.join(replica.to_string());
            std::fs::create_dir_all(&socket_folder)?;
            let listener = UnixListener::bind(socket_folder.join(SOCKET)).context("a socket")?;
            let control = ConnectionControl::new(ConnectionState::default());
            let target = postgres.join(SOCKET);
            tokio::spawn(serve_database(listener, target, control.subscribe()));
            let relay = DatabaseRelay {
                socket_folder,
                control,
            };
            database.insert(replica, relay);
        }
        Ok(Self { http, database })
    }

    /// Returns the addresses of both replicas of a service for this caller, separated by a comma.
    pub fn urls(&self, caller: Caller, service: Service) -> String {
        let url_of = |number| {
            let relay = &self.http[&(caller, Replica { service, number })];
            format!("http://127.0.0.1:{}", relay.port)
        };
        [1, 2].map(url_of).join(",")
    }

    /// Returns the folder of the database socket for this replica.
    pub fn database_socket_folder(&self, replica: Replica) -> &Path {
        &self.database[&replica].socket_folder
    }

    /// Changes the state of the relays of these connections.
    pub fn update(&self, connections: Connections, update: impl Fn(&mut ConnectionState)) {
        for control in self.controls_of(connections) {
            control.send_modify(&update);
        }
    }

    /// Removes all silence, refusals and delays.
    pub fn reset_all(&self) {
        let http = self.http.values().map(|relay| &relay.control);
        let database = self.database.values().map(|relay| &relay.control);
        for control in http.chain(database) {
            control.send_modify(|state| {
                *state = ConnectionState {
                    resets: state.resets,
                    ..ConnectionState::default()
                };
            });
        }
    }

    fn controls_of(&self, connections: Connections) -> Vec<&ConnectionControl> {
        let is_selected = |(caller, replica): &(Caller, Replica)| match connections {
            Connections::From(from) => *caller == from,
            Connections::To(to) => *replica == to,
            Connections::Between(from, to) => *caller == from && *replica == to,
            Connections::Database(_) => false,
        };
        if let Connections::Database(replica) = connections {
            return vec![&self.database[&replica].control];
        }
        let selected = self.http.iter().filter(|(key, _)| is_selected(key));
        selected.map(|(_, relay)| &relay.control).collect()
    }
}

async fn serve_http(listener: TcpListener, port: u16, state: watch::Receiver<ConnectionState>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let state = state.clone();
        tokio::spawn(async move {
            if state.borrow().refused {
                return;
            }
            // If there is no listener, the connection ends as it would without a relay.
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                relay(client, server, state).await;
            }
        });
    }
}

async fn serve_database(
    listener: UnixListener,
    target: PathBuf,
    state: watch::Receiver<ConnectionState>,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let (state, target) = (state.clone(), target.clone());
        tokio::spawn(async move {
            if state.borrow().refused {
                return;
            }
            if let Ok(server) = UnixStream::connect(&target).await {
                relay(client, server, state).await;
            }
        });
    }
}

/// Relays until one side ends, or the connection is reset.
async fn relay<C, S>(client: C, server: S, state: watch::Receiver<ConnectionState>)
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut reset_watch = state.clone();
    let resets = state.borrow().resets;
    let (client_read, client_write) = tokio::io::split(client);
    let (server_read, server_write) = tokio::io::split(server);
    let to_server = copy_data(client_read, server_write, state.clone());
    let to_client = copy_data(server_read, client_write, state);
    tokio::select! {
        _ = async { tokio::try_join!(to_server, to_client) } => {}
        _ = reset_watch.wait_for(|state| state.resets != resets) => {}
    }
}

async fn copy_data(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<ConnectionState>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        let current = state
            .wait_for(|state| !state.silent)
            .await
            .map(|state| *state);
        let delay = current.map(|state| state.delay).unwrap_or_default();
        if !delay.is_zero() {
            sleep_until(Instant::now() + delay).await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}
