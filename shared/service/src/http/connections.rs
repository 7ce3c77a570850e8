//! Accepts connections, limits them, applies timeouts, and closes them at the shutdown.

mod accept_rate;
mod connection_limit;
mod timeouts;
pub(super) mod unauthenticated;

use std::net::SocketAddr;
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

use super::limits::Limits;
use super::limits::cpu_fairness::ConnectionCost;
use super::limits::cpu_timer::with_cpu_time;
use super::limits::guarded_body::GuardedBody;
use crate::runtime::shutdown::Shutdown;
use accept_rate::AcceptRate;
use connection_limit::ConnectionLimit;
use timeouts::{ConnectionTimer, Phase, TimedStream};
use unauthenticated::{TrackedConnection, UnauthenticatedConnections};

/// Pause after a failed accept. The usual cause is a lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Serves connections of a listener until the shutdown. Then requests in progress get some time to
/// finish.
pub(super) async fn serve(
    router: Router,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    limits: &Arc<Limits>,
    shutdown: &Shutdown,
) {
    let connection_limit = Arc::new(ConnectionLimit::new(
        limits
            .connections
            .min(crate::http::limits::connection_descriptors()),
    ));
    let unauthenticated = UnauthenticatedConnections::new(limits.connections_per_address);
    let (mut connections, mut accept_rate) = (JoinSet::new(), AcceptRate::default());
    loop {
        // Finished connections are removed from the set.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = shutdown.wait() => break,
            accepted = accept(&listener, &connection_limit) => accepted,
        };
        let Some((stream, peer, permit)) = accepted else {
            continue;
        };
        let (limits, connection_limit) = (Arc::clone(limits), Arc::clone(&connection_limit));
        let (router, shutdown) = (router.clone(), shutdown.clone());
        let (tls, tracked) = (tls.clone(), unauthenticated.add(peer.ip()));
        connections.spawn(async move {
            let _permit = permit;
            let connection = Connection {
                peer,
                tracked,
                timer: ConnectionTimer::new(),
                context: ServerContext {
                    limits,
                    connection_limit,
                    shutdown,
                },
            };
            if connection.wait_for_first_byte(&stream).await {
                // The future is boxed, so that a silent connection needs little memory.
                Box::pin(connection.serve(stream, router, tls)).await;
            }
        });
        accept_rate.pause().await;
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.drain_timeout, finished)
        .await
        .is_err()
    {
        tracing::warn!(
            left = connections.len(),
            "cutting requests that did not finish in time"
        );
        connections.shutdown().await;
    }
}

type Accepted = (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit);

async fn accept(
    listener: &TcpListener,
    connection_limit: &Arc<ConnectionLimit>,
) -> Option<Accepted> {
    // The permit is acquired first. Without a permit, a connection waits in the kernel queue.
    let permit = connection_limit.acquire().await?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, permit)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_RETRY).await;
            None
        }
    }
}

/// Context that all connections of a server share.
struct ServerContext {
    limits: Arc<Limits>,
    connection_limit: Arc<ConnectionLimit>,
    shutdown: Shutdown,
}

/// One connection.
struct Connection {
    peer: SocketAddr,
    tracked: Arc<TrackedConnection>,
    timer: Arc<ConnectionTimer>,
    context: ServerContext,
}

impl Connection {
    /// Waits until a timeout has passed, or until this connection must close in favour of another.
    async fn wait_until_must_close(&self) {
        let ServerContext {
            limits,
            connection_limit,
            ..
        } = &self.context;
        tokio::select! {
            () = self.timer.wait_for_deadline(limits, connection_limit) => {
                tracing::debug!(peer = %self.peer, "connection was too slow");
            }
            () = self.tracked.wait_for_eviction() => {
                tracing::debug!(peer = %self.peer, "too many silent connections from one address");
            }
        }
    }

    /// Waits for the first byte. Before that, a connection has no buffers and no TLS state (F39).
    async fn wait_for_first_byte(&self, stream: &TcpStream) -> bool {
        tokio::select! {
            ready = stream.readable() => ready.is_ok(),
            () = self.wait_until_must_close() => false,
            () = self.context.shutdown.wait() => false,
        }
    }

    async fn serve(self, stream: TcpStream, router: Router, tls: Option<TlsAcceptor>) {
        // Small responses are sent without delay. A failure here only delays them.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else {
            let cost = ConnectionCost::new(Duration::ZERO);
            return self.serve_http(router, stream, cost).await;
        };
        let (stream, handshake) = with_cpu_time(self.tls_handshake(&tls, stream)).await;
        if let Some(stream) = stream {
            self.timer.set_phase(Phase::Idle);
            self.serve_http(router, stream, ConnectionCost::new(handshake))
                .await;
        }
    }

    /// Performs the TLS handshake in the task of the connection. It has the timeout of a request
    /// head.
    async fn tls_handshake(
        &self,
        tls: &TlsAcceptor,
        stream: TcpStream,
    ) -> Option<TlsStream<TcpStream>> {
        let peer = self.peer;
        let head_timeout = self.context.limits.head_timeout;
        let result = tokio::select! {
            done = tokio::time::timeout(head_timeout, tls.accept(stream)) => done,
            () = self.wait_until_must_close() => return None,
            () = self.context.shutdown.wait() => return None,
        };
        match result {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%error, %peer, "the TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "the TLS handshake was too slow"),
        }
        None
    }

    async fn serve_http<S>(&self, router: Router, stream: S, cost: ConnectionCost)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (peer, limits) = (self.peer, &self.context.limits);
        let cost = Mutex::new(Some(cost));
        let io = TokioIo::new(TimedStream {
            stream,
            timer: Arc::clone(&self.timer),
        });
        let service = service_fn(|request: http::Request<Incoming>| {
            let in_request = InRequest::start(self);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(Arc::clone(&self.tracked));
            if let Some(cost) = cost.lock().take() {
                request.extensions_mut().insert(cost);
            }
            let response = router.clone().oneshot(request);
            async move {
                let response = response.await?;
                let guarded = response.map(|body| GuardedBody {
                    body,
                    _guard: in_request,
                });
                Ok::<_, std::convert::Infallible>(guarded)
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            // A fallback: `ConnectionTimer` has shorter timeouts.
            .header_read_timeout(limits.head_timeout + limits.idle_timeout)
            .max_buf_size(limits.max_head_bytes)
            .half_close(false)
            .serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        let mut draining = false;
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(%error, %peer, "connection ended");
                    }
                    return;
                }
                () = self.wait_until_must_close() => return,
                () = self.context.shutdown.wait(), if !draining => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Guard that marks the connection as having a request in progress.
struct InRequest {
    timer: Arc<ConnectionTimer>,
    tracked: Arc<TrackedConnection>,
}

impl InRequest {
    fn start(connection: &Connection) -> Self {
        connection.timer.set_phase(Phase::Busy);
        connection.tracked.mark_request_started();
        Self {
            timer: Arc::clone(&connection.timer),
            tracked: Arc::clone(&connection.tracked),
        }
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        self.timer.set_phase(Phase::Idle);
        self.tracked.mark_request_finished();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use axum::extract::Request;
    use axum::routing::get;

    use super::*;

    /// Replies to the first request of a connection, and to later ones.
    const REPLIES: [&str; 2] = ["first", "later"];

    /// Sends a request. Returns the reply, which is the body of the response.
    fn send_request(stream: &mut std::net::TcpStream) -> &'static str {
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .unwrap();
        let mut response = Vec::new();
        loop {
            let mut buffer = [0; 1_024];
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "it hung up");
            response.extend_from_slice(&buffer[..read]);
            let reply = REPLIES.iter().find(|it| response.ends_with(it.as_bytes()));
            if let Some(reply) = reply {
                return reply;
            }
        }
    }

    /// The handler replies whether the request has the cost of the connection.
    #[tokio::test(flavor = "multi_thread")]
    async fn only_the_first_request_is_charged_the_cost_of_its_connection() {
        let handler = |request: Request| async move {
            let is_first = request.extensions().get::<ConnectionCost>().is_some();
            REPLIES[usize::from(!is_first)]
        };
        let router = Router::new().route("/", get(handler));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (limits, shutdown) = (Arc::new(Limits::default()), Shutdown::new());
        let requests = tokio::task::spawn_blocking(move || {
            let connect = || std::net::TcpStream::connect(address).unwrap();
            let (mut one, mut other) = (connect(), connect());
            [
                send_request(&mut one),
                send_request(&mut one),
                send_request(&mut other),
            ]
        });
        let replies = tokio::select! {
            () = serve(router, listener, None, &limits, &shutdown) => unreachable!("it serves"),
            requests = requests => requests.unwrap(),
        };
        assert_eq!(replies, ["first", "later", "first"]);
    }
}
