//! Connections: how many, how long, and how they end.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt as _;

use super::courtesy;
use super::crowd::Crowd;
use super::lasting::Lasting;
use super::pace::{Pace, Paced, Phase};
use crate::limits::Limits;
use crate::shutdown::Shutdown;

/// After a failed accept, which mostly means that descriptors ran out.
const BREATH: Duration = Duration::from_millis(50);

pub(super) async fn serve(
    router: Router,
    (listener, tls): (TcpListener, Option<TlsAcceptor>),
    limits: &Arc<Limits>,
    shutdown: &Shutdown,
) {
    let crowd = Arc::new(Crowd::new(
        limits.connections.min(crate::limits::descriptors()),
    ));
    let addresses = Arc::new(Addresses::default());
    let mut connections = JoinSet::new();
    loop {
        // Finished connections are collected here, so that the set does not grow.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = shutdown.wait() => break,
            accepted = accept(&listener, &crowd) => accepted,
        };
        let Some((stream, peer, permit)) = accepted else {
            continue;
        };
        let Some(counted) = addresses.enter(peer.ip(), limits.connections_per_address) else {
            tracing::debug!(%peer, "too many connections from one address");
            continue;
        };
        let (router, limits) = (router.clone(), Arc::clone(limits));
        let (shutdown, crowd) = (shutdown.clone(), Arc::clone(&crowd));
        let tls = tls.clone();
        connections.spawn(async move {
            let _held = (permit, counted);
            // Small answers go out at once; where this fails they go out a little later.
            let _ = stream.set_nodelay(true);
            let Some(tls) = tls else {
                return converse(router, (stream, peer), (&limits, &crowd), &shutdown).await;
            };
            if let Some(stream) = shaken(&tls, (stream, peer), &limits, &shutdown).await {
                converse(router, (stream, peer), (&limits, &crowd), &shutdown).await;
            }
        });
        courtesy::let_those_inside_go_first().await;
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.drain, all).await.is_err() {
        tracing::warn!(
            left = connections.len(),
            "cutting requests that did not finish in time"
        );
        connections.shutdown().await;
    }
}

type Accepted = (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit);

async fn accept(listener: &TcpListener, crowd: &Arc<Crowd>) -> Option<Accepted> {
    // The permit first: whoever finds no room waits in the kernel's queue.
    let permit = crowd.enter().await?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, permit)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(BREATH).await;
            None
        }
    }
}

/// Shakes hands, in the connection's own task and within the time of a head, so that who is slow at
/// it keeps nobody waiting.
async fn shaken(
    tls: &TlsAcceptor,
    (stream, peer): (TcpStream, SocketAddr),
    limits: &Limits,
    shutdown: &Shutdown,
) -> Option<TlsStream<TcpStream>> {
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(limits.head, tls.accept(stream)) => shaken,
        () = shutdown.wait() => return None,
    };
    match shaken {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::debug!(%error, %peer, "no handshake"),
        Err(_) => tracing::debug!(%peer, "the handshake was too slow"),
    }
    None
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    router: Router,
    (stream, peer): (S, SocketAddr),
    (limits, crowd): (&Limits, &Crowd),
    shutdown: &Shutdown,
) {
    let pace = Pace::new();
    let io = TokioIo::new(Paced {
        stream,
        pace: Arc::clone(&pace),
    });
    let service = service_fn(|request: http::Request<Incoming>| {
        let busy = Busy::enter(&pace);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = router.clone().oneshot(request);
        async move {
            let answer = answer.await?;
            Ok::<_, std::convert::Infallible>(answer.map(|body| Lasting { body, _kept: busy }))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // The pace has shorter deadlines; this one holds should the two ever disagree.
        .header_read_timeout(limits.head + limits.idle)
        .max_buf_size(limits.head_bytes)
        .half_close(false)
        .serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    let mut told = false;
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, %peer, "connection ended");
                }
                return;
            }
            () = pace.overstayed(limits, crowd) => {
                tracing::debug!(%peer, "connection was too slow");
                return;
            }
            () = shutdown.wait(), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// While this lives the connection works on a request.
struct Busy(Arc<Pace>);

impl Busy {
    fn enter(pace: &Arc<Pace>) -> Self {
        pace.enter(Phase::Busy);
        Self(Arc::clone(pace))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

/// Connections per address. This machine's own have no limit: a whole fleet may live on it.
#[derive(Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

struct Counted {
    address: IpAddr,
    addresses: Arc<Addresses>,
}

impl Addresses {
    fn enter(self: &Arc<Self>, address: IpAddr, limit: usize) -> Option<Counted> {
        let mut counts = self.0.lock();
        let count = counts.entry(address).or_default();
        if *count >= limit && !address.is_loopback() {
            return None;
        }
        *count += 1;
        Some(Counted {
            address,
            addresses: Arc::clone(self),
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.addresses.0.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_gives_it_back() {
        let addresses = Arc::new(Addresses::default());
        let far: IpAddr = "192.0.2.1".parse().unwrap();
        let first = addresses.enter(far, 1);
        assert!(first.is_some() && addresses.enter(far, 1).is_none());
        drop(first);
        assert!(addresses.enter(far, 1).is_some());
        assert!(
            addresses.0.lock().is_empty(),
            "nothing is kept of who is gone"
        );
        assert!(addresses.enter("127.0.0.1".parse().unwrap(), 0).is_some());
    }
}
