//! Relays for all connections between processes, so that they can be cut or delayed. There is one
//! for each caller and replica over TCP, and one for each replica and the database.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::plan::{Caller, Lines, Replica, Service};

/// Name of the socket of Postgres in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// The condition of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Condition {
    /// Whether data is delayed until the condition changes.
    pub silent: bool,
    /// Whether connections are closed as soon as they are made.
    pub refused: bool,
    pub delay: Duration,
    /// Number of resets. An increase closes open connections.
    pub resets: u64,
}

type Wire = watch::Sender<Condition>;

pub struct Wires {
    http: BTreeMap<(Caller, Replica), (u16, Wire)>,
    database: BTreeMap<Replica, (PathBuf, Wire)>,
}

impl Wires {
    /// Starts relays to replicas on these ports and to the socket of Postgres in `postgres`. The
    /// sockets of the relays are in folders below `sockets`.
    pub async fn lay(
        ports: &BTreeMap<Replica, u16>,
        postgres: &Path,
        sockets: &Path,
    ) -> anyhow::Result<Self> {
        let mut http = BTreeMap::new();
        for caller in Caller::all() {
            for (replica, port) in ports {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let own = listener.local_addr()?.port();
                let wire = Wire::new(Condition::default());
                tokio::spawn(serve_http(listener, *port, wire.subscribe()));
                http.insert((caller, *replica), (own, wire));
            }
        }
        let mut database = BTreeMap::new();
        for replica in Replica::all() {
            let folder = sockets.join(replica.to_string());
            std::fs::create_dir_all(&folder)?;
            let listener = UnixListener::bind(folder.join(SOCKET)).context("a socket")?;
            let wire = Wire::new(Condition::default());
            let target = postgres.join(SOCKET);
            tokio::spawn(serve_database(listener, target, wire.subscribe()));
            database.insert(replica, (folder, wire));
        }
        Ok(Self { http, database })
    }

    /// Returns the addresses of a service for this caller.
    pub fn urls(&self, caller: Caller, service: Service) -> String {
        let address = |number| {
            let (port, _) = &self.http[&(caller, Replica { service, number })];
            format!("http://127.0.0.1:{port}")
        };
        [1, 2].map(address).join(",")
    }

    /// Returns the folder of the database socket for this replica.
    pub fn database(&self, replica: Replica) -> &Path {
        &self.database[&replica].0
    }

    pub fn change(&self, lines: Lines, change: impl Fn(&mut Condition)) {
        for wire in self.wires_of(lines) {
            wire.send_modify(&change);
        }
    }

    /// Removes all silence, refusals and delays.
    pub fn open_all(&self) {
        let http = self.http.values().map(|(_, wire)| wire);
        let database = self.database.values().map(|(_, wire)| wire);
        for wire in http.chain(database) {
            wire.send_modify(|it| {
                *it = Condition {
                    resets: it.resets,
                    ..Condition::default()
                };
            });
        }
    }

    fn wires_of(&self, lines: Lines) -> Vec<&Wire> {
        let wanted = |(caller, replica): &(Caller, Replica)| match lines {
            Lines::From(from) => *caller == from,
            Lines::To(to) => *replica == to,
            Lines::Between(from, to) => *caller == from && *replica == to,
            Lines::Database(_) => false,
        };
        if let Lines::Database(replica) = lines {
            return vec![&self.database[&replica].1];
        }
        let found = self.http.iter().filter(|(key, _)| wanted(key));
        found.map(|(_, (_, wire))| wire).collect()
    }
}

async fn serve_http(listener: TcpListener, port: u16, wire: watch::Receiver<Condition>) {
    loop {
        let Ok((near, _)) = listener.accept().await else {
            continue;
        };
        let wire = wire.clone();
        tokio::spawn(async move {
            if wire.borrow().refused {
                return;
            }
            // If there is no listener, the connection ends as it would without a relay.
            if let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await {
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                relay(near, far, wire).await;
            }
        });
    }
}

async fn serve_database(listener: UnixListener, target: PathBuf, wire: watch::Receiver<Condition>) {
    loop {
        let Ok((near, _)) = listener.accept().await else {
            continue;
        };
        let (wire, target) = (wire.clone(), target.clone());
        tokio::spawn(async move {
            if wire.borrow().refused {
                return;
            }
            if let Ok(far) = UnixStream::connect(&target).await {
                relay(near, far, wire).await;
            }
        });
    }
}

/// Relays until one side ends, or the connection is reset.
async fn relay<N, F>(near: N, far: F, wire: watch::Receiver<Condition>)
where
    N: AsyncRead + AsyncWrite + Unpin,
    F: AsyncRead + AsyncWrite + Unpin,
{
    let mut watched = wire.clone();
    let resets = wire.borrow().resets;
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    let there = pump(near_read, far_write, wire.clone());
    let back = pump(far_read, near_write, wire);
    tokio::select! {
        _ = async { tokio::try_join!(there, back) } => {}
        _ = watched.wait_for(|it| it.resets != resets) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut wire: watch::Receiver<Condition>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        let now = wire.wait_for(|it| !it.silent).await.map(|it| *it);
        let delay = now.map(|it| it.delay).unwrap_or_default();
        if !delay.is_zero() {
            sleep_until(Instant::now() + delay).await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}
