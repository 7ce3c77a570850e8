//! Connections: how many, how long, and how they end.

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
use super::limits::cpu_fairness::Arrival;
use super::limits::cpu_timer::metered;
use super::limits::guarded_body::Lasting;
use crate::runtime::shutdown::Shutdown;
use accept_rate::Arrivals;
use connection_limit::Crowd;
use timeouts::{Pace, Paced, Phase};
use unauthenticated::{Strangers, Visitor};

/// After a failed accept, which mostly means that descriptors ran out.
const BREATH: Duration = Duration::from_millis(50);

pub(super) async fn serve(
    router: Router,
    (listener, tls): (TcpListener, Option<TlsAcceptor>),
    limits: &Arc<Limits>,
    shutdown: &Shutdown,
) {
    let crowd = Arc::new(Crowd::new(
        limits.connections.min(crate::http::limits::descriptors()),
    ));
    let strangers = Strangers::new(limits.connections_per_address);
    let (mut connections, mut arrivals) = (JoinSet::new(), Arrivals::default());
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
        let (limits, crowd) = (Arc::clone(limits), Arc::clone(&crowd));
        let (router, shutdown) = (router.clone(), shutdown.clone());
        let (tls, visitor) = (tls.clone(), strangers.enter(peer.ip()));
        connections.spawn(async move {
            let _held = permit;
            let guest = Guest {
                peer,
                visitor,
                pace: Pace::new(),
                house: House {
                    limits,
                    crowd,
                    shutdown,
                },
            };
            if guest.says_something(&stream).await {
                // In a place of its own: who says nothing costs no more than a look.
                Box::pin(guest.talk(stream, router, tls)).await;
            }
        });
        arrivals.let_those_inside_go_first().await;
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

/// What all connections of a server have in common.
struct House {
    limits: Arc<Limits>,
    crowd: Arc<Crowd>,
    shutdown: Shutdown,
}

/// One connection.
struct Guest {
    peer: SocketAddr,
    visitor: Arc<Visitor>,
    pace: Arc<Pace>,
    house: House,
}

impl Guest {
    /// Ends when it was silent for too long, or has to make room.
    async fn must_go(&self) {
        let House { limits, crowd, .. } = &self.house;
        tokio::select! {
            () = self.pace.overstayed(limits, crowd) => {
                tracing::debug!(peer = %self.peer, "connection was too slow");
            }
            () = self.visitor.sent_away() => {
                tracing::debug!(peer = %self.peer, "too many silent ones of one address");
            }
        }
    }

    /// Waits for the first byte. Nothing is made ready for a conversation before there is one: of
    /// ten thousand who come and stay silent (F39) none costs more than its place.
    async fn says_something(&self, stream: &TcpStream) -> bool {
        tokio::select! {
            ready = stream.readable() => ready.is_ok(),
            () = self.must_go() => false,
            () = self.house.shutdown.wait() => false,
        }
    }

    async fn talk(self, stream: TcpStream, router: Router, tls: Option<TlsAcceptor>) {
        // Small answers go out at once; where this fails they go out a little later.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else {
            let arrival = Arrival::new(Duration::ZERO);
            return self.converse(router, stream, arrival).await;
        };
        let (stream, handshake) = metered(self.shaken(&tls, stream)).await;
        if let Some(stream) = stream {
            self.pace.enter(Phase::Idle);
            self.converse(router, stream, Arrival::new(handshake)).await;
        }
    }

    /// Shakes hands, in the connection's own task and within the time of a head, so that who is
    /// slow at it keeps nobody waiting.
    async fn shaken(&self, tls: &TlsAcceptor, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let peer = self.peer;
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.house.limits.head, tls.accept(stream)) => shaken,
            () = self.must_go() => return None,
            () = self.house.shutdown.wait() => return None,
        };
        match shaken {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%error, %peer, "no handshake"),
            Err(_) => tracing::debug!(%peer, "the handshake was too slow"),
        }
        None
    }

    async fn converse<S>(&self, router: Router, stream: S, arrival: Arrival)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (peer, limits) = (self.peer, &self.house.limits);
        let arrival = Mutex::new(Some(arrival));
        let io = TokioIo::new(Paced {
            stream,
            pace: Arc::clone(&self.pace),
        });
        let service = service_fn(|request: http::Request<Incoming>| {
            let busy = Busy::enter(self);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(Arc::clone(&self.visitor));
            if let Some(arrival) = arrival.lock().take() {
                request.extensions_mut().insert(arrival);
            }
            let answer = router.clone().oneshot(request);
            async move {
                let answer = answer.await?;
                let lasting = answer.map(|body| Lasting { body, _kept: busy });
                Ok::<_, std::convert::Infallible>(lasting)
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
                () = self.must_go() => return,
                () = self.house.shutdown.wait(), if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// While this lives the connection works on a request.
struct Busy {
    pace: Arc<Pace>,
    visitor: Arc<Visitor>,
}

impl Busy {
    fn enter(guest: &Guest) -> Self {
        guest.pace.enter(Phase::Busy);
        guest.visitor.asks();
        Self {
            pace: Arc::clone(&guest.pace),
            visitor: Arc::clone(&guest.visitor),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.pace.enter(Phase::Idle);
        self.visitor.falls_silent();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use axum::extract::Request;
    use axum::routing::get;

    use super::*;

    const WORDS: [&str; 2] = ["comes", "stays"];

    /// The last word of the answer on this connection.
    fn ask(line: &mut std::net::TcpStream) -> &'static str {
        line.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        loop {
            let mut some = [0; 1_024];
            let read = line.read(&mut some).unwrap();
            assert!(read > 0, "it hung up");
            answer.extend_from_slice(&some[..read]);
            let word = WORDS.iter().find(|it| answer.ends_with(it.as_bytes()));
            if let Some(word) = word {
                return word;
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn g13_the_first_request_of_a_connection_owes_its_coming() {
        let who = |request: Request| async move {
            let comes = request.extensions().get::<Arrival>().is_some();
            WORDS[usize::from(!comes)]
        };
        let router = Router::new().route("/", get(who));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (limits, shutdown) = (Arc::new(Limits::default()), Shutdown::new());
        let asked = tokio::task::spawn_blocking(move || {
            let open = || std::net::TcpStream::connect(address).unwrap();
            let (mut one, mut other) = (open(), open());
            [ask(&mut one), ask(&mut one), ask(&mut other)]
        });
        let answers = tokio::select! {
            () = serve(router, (listener, None), &limits, &shutdown) => unreachable!("it serves"),
            asked = asked => asked.unwrap(),
        };
        assert_eq!(answers, ["comes", "stays", "comes"]);
    }
}
