//! The server every service runs in: a router, served within limits until the shutdown.
//!
//! In the order a request meets them: connection limits and deadlines ([`mod@connection`]), its id
//! and span, panics turned into problems, the caller, load shedding, time to work, the route. Every
//! refusal on the way is a problem document.
//!
//! A request with `wait` in its query is a long poll: it is not counted as work, may take its
//! wait longer, and is cut when the shutdown begins; everything else is finished. Where the wait
//! stands in the body, the route says so with [`long_poll`].

mod connection;
mod crowd;
mod pace;

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::catch_panic::CatchPanicLayer;

use crate::auth::{OpenRoute, Verifier, authenticate};
use crate::limits::{BODY, Deadline, LONGEST_WAIT, Limits};
use crate::problem::{Code, Problem};
use crate::request;
use crate::settings::FrameSettings;
use crate::shutdown::Shutdown;

/// Logged again this often while an insecure mode is on (S3).
const REMIND: Duration = Duration::from_mins(1);

/// A server before it serves.
pub struct Frame {
    name: &'static str,
    verifier: Option<Arc<Verifier>>,
    allow_insecure: bool,
    limits: Limits,
    open: Vec<OpenRoute>,
}

impl Frame {
    /// Without a verifier nobody has a good token, so only the open paths answer (S4).
    pub fn new(name: &'static str, verifier: Option<Arc<Verifier>>) -> Self {
        Self {
            name,
            verifier,
            allow_insecure: false,
            limits: Limits::default(),
            open: Vec::new(),
        }
    }

    /// A route that takes no token because its request carries a proof of its own, which the
    /// handler checks. Its text is as in the router: `/v1/things/{thing}`.
    #[must_use]
    pub fn open(mut self, method: http::Method, route: &'static str) -> Self {
        self.open.push((method, route));
        self
    }

    #[must_use]
    pub fn allow_insecure(mut self, allow: bool) -> Self {
        self.allow_insecure = allow;
        self
    }

    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves until the shutdown, and returns when the last request is finished or cut.
    ///
    /// # Errors
    /// When the listener can be reached from elsewhere and that is not allowed (S3).
    pub async fn serve(
        self,
        router: Router,
        listener: TcpListener,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let address = listener
            .local_addr()
            .context("a listener without an address")?;
        check_address(address, self.allow_insecure)?;
        let insecure = insecure_modes(address);
        tracing::info!(service = self.name, %address, "listening");
        let limits = Arc::new(self.limits);
        let router = surrounded(router, (self.verifier, self.open), &limits, &shutdown);
        tokio::select! {
            () = connection::serve(router, listener, &limits, &shutdown) => {}
            () = remind(self.name, &insecure) => {}
        }
        tracing::info!(service = self.name, %address, "stopped listening");
        Ok(())
    }
}

/// Serves with the default limits; see [`Frame::serve`].
///
/// # Errors
/// As [`Frame::serve`].
pub async fn serve(
    name: &'static str,
    router: Router,
    listener: TcpListener,
    verifier: Arc<Verifier>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    Frame::new(name, Some(verifier))
        .serve(router, listener, shutdown)
        .await
}

/// Binds the address of the settings, unless strangers could reach it (S3).
///
/// # Errors
/// When it is not allowed, or taken.
pub async fn bind(settings: &FrameSettings) -> anyhow::Result<TcpListener> {
    check_address(settings.listen, settings.allow_insecure)?;
    TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("cannot listen on {}", settings.listen))
}

fn check_address(address: SocketAddr, allow_insecure: bool) -> anyhow::Result<()> {
    if address.ip().is_loopback() || allow_insecure {
        return Ok(());
    }
    bail!(
        "{address} can be reached from other machines and there is no TLS; listen on 127.0.0.1, \
         or set `allow_insecure` where something else protects the network"
    )
}

/// What the status names and the log repeats each minute (S3).
pub fn insecure_modes(address: SocketAddr) -> Vec<String> {
    if address.ip().is_loopback() {
        return Vec::new();
    }
    vec![format!("plain_http_on_{}", address.ip())]
}

async fn remind(name: &str, insecure: &[String]) {
    if insecure.is_empty() {
        return std::future::pending().await;
    }
    let mut tick = tokio::time::interval(REMIND);
    loop {
        tick.tick().await;
        tracing::warn!(service = name, modes = ?insecure, "insecure mode is on");
    }
}

fn surrounded(
    router: Router,
    (verifier, open): (Option<Arc<Verifier>>, Vec<OpenRoute>),
    limits: &Arc<Limits>,
    shutdown: &Shutdown,
) -> Router {
    let open: Arc<[OpenRoute]> = open.into();
    let working = Arc::new(Semaphore::new(limits.working));
    let (limits, shutdown) = (Arc::clone(limits), shutdown.clone());
    router
        .fallback(|| async { Problem::new(Code::NotFound, "there is no such route") })
        .method_not_allowed_fallback(|| async {
            Problem::new(
                Code::MethodNotAllowed,
                "this route has other methods; see allow",
            )
        })
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            bounded(
                request,
                next,
                (Arc::clone(&limits), Arc::clone(&working), shutdown.clone()),
            )
        }))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            authenticate((verifier.clone(), Arc::clone(&open)), request, next)
        }))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(request::surround))
        .layer(tower_otel::metrics::HttpLayer::server(
            &opentelemetry::global::meter("hayward"),
        ))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer hands the panic over"
)]
fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("something that is no text");
    Problem::internal(anyhow::anyhow!("a handler panicked: {said}")).into_response()
}

/// The place of a request among those worked on; given back when it only waits.
#[derive(Clone)]
struct Place(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

/// Sheds load and bounds the time to work.
async fn bounded(
    request: Request,
    next: Next,
    (limits, working, shutdown): (Arc<Limits>, Arc<Semaphore>, Shutdown),
) -> Response {
    let waits = asks_to_wait(request.uri().query());
    let mut patience = limits.work;
    if waits {
        patience += LONGEST_WAIT;
    }
    if !request.body().is_end_stream() {
        patience += limits.body;
    }
    let mut request = request.map(|body| Body::new(Deadline::new(body, limits.body)));
    // Whoever asks whether we live must hear it above all when we are busy.
    let free = waits || matches!(request.uri().path(), "/livez" | "/readyz");
    let place = match working.try_acquire_owned() {
        _ if free => None,
        Ok(permit) => Some(permit),
        Err(_) => return Problem::new(Code::Unavailable, "too busy").into_response(),
    };
    let place = Place(Arc::new(Mutex::new(place)));
    request.extensions_mut().insert(shutdown);
    request.extensions_mut().insert(place.clone());
    let work = async {
        if waits {
            long_poll(request, next).await
        } else {
            next.run(request).await
        }
    };
    let answer = tokio::time::timeout(patience, work).await;
    drop(place);
    answer.unwrap_or_else(|_| {
        let cause = anyhow::anyhow!("a handler took longer than {patience:?}");
        Problem::unavailable("this took too long and was given up", cause).into_response()
    })
}

/// Middleware for a route whose wait stands in its body: with `axum::middleware::from_fn` it is a
/// long poll like those with `wait` in their query. It does no work while it waits, and there may
/// be one for every agent, so it gives its place back; and it is cut at the shutdown.
pub async fn long_poll(mut request: Request, next: Next) -> Response {
    if let Some(place) = request.extensions_mut().remove::<Place>() {
        place.0.lock().take();
    }
    let shutdown = request
        .extensions()
        .get::<Shutdown>()
        .cloned()
        .unwrap_or_default();
    tokio::select! {
        answer = next.run(request) => answer,
        () = shutdown.wait() => {
            Problem::new(Code::Unavailable, "this replica is shutting down").into_response()
        }
    }
}

fn asks_to_wait(query: Option<&str>) -> bool {
    let parts = query.unwrap_or("").split('&');
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .any(|(name, wait)| matches!(name, "wait" | "wait_ms") && wait != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_only_loopback_is_served_without_being_told() {
        let (near, far) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        check_address(near, false).unwrap();
        assert!(
            check_address(far, false)
                .unwrap_err()
                .to_string()
                .contains("allow_insecure")
        );
        check_address(far, true).unwrap();
        assert!(insecure_modes(near).is_empty());
        assert_eq!(insecure_modes(far), ["plain_http_on_0.0.0.0"]);
    }

    #[test]
    fn a_long_poll_asks_to_wait() {
        assert!(asks_to_wait(Some("since=a&wait=25")));
        for none in [
            None,
            Some(""),
            Some("wait=0"),
            Some("await=1"),
            Some("since=wait"),
        ] {
            assert!(!asks_to_wait(none), "{none:?}");
        }
    }
}
