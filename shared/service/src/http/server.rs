//! The server of every service: a router, served within limits until the shutdown.
//!
//! A request passes these layers:
//!
//! 1. connection limits and timeouts ([`mod@super::connections`])
//! 2. request id and span
//! 3. conversion of panics
//! 4. the limit of failed authentications per address
//! 5. authentication
//! 6. limits per caller and CPU fairness
//! 7. load shedding with a timeout
//! 8. the queue of expensive routes
//! 9. the route
//!
//! Every refusal is a problem document.
//!
//! A request with `wait` in its query is a long poll. It does not count as work in progress, and
//! its timeout is longer by the maximum wait. It is ended when the shutdown begins. All other
//! requests are finished. A route whose wait is in the body uses [`long_poll`].

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::catch_panic::CatchPanicLayer;

use super::authentication::{AuthConfig, authenticate};
use super::limits::expensive_routes::{self, ExpensiveRoutes};
use super::limits::failed_auth_per_address::{self, FailedAuthLimiter};
use super::limits::per_caller::{self, CallerLimits};
use super::limits::{BodyDeadline, Limits, MAX_BODY_BYTES, MAX_LONG_POLL};
use super::request_context::LongPolled;
use super::request_origin::RefusalObserver;
use super::scrape::{self, ScrapeListener};
use super::tls::{self, Tls};
use super::{connections, request_context};
use crate::auth::Verifier;
use crate::config::ServerSettings;
use crate::config::insecure_modes::{self, InsecureModes};
use crate::metrics::catalogue::{CERTIFICATE_LIFETIME, CERTIFICATE_REMAINING, SERVICE};
use crate::metrics::{Reading, gauges};
use crate::problem::{Code, Problem};
use crate::runtime::RELEASE_MARKER;
use crate::runtime::clock::{Clock as _, SystemClock};
use crate::runtime::shutdown::Shutdown;

/// A configured server that does not serve yet.
pub struct Server {
    name: &'static str,
    auth: AuthConfig,
    allow_insecure: bool,
    /// Names of insecure modes of connections to the database and the collector.
    peer_modes: Vec<String>,
    tls: Option<Tls>,
    scrape: Option<ScrapeListener>,
    limits: Limits,
}

/// Send buffer of a connection in bytes. The kernel allocates twice as much. The default would be
/// megabytes for each client that never reads its response (F39).
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
/// Maximum number of connections that wait in the kernel until the server accepts them.
const ACCEPT_BACKLOG: u32 = 1_024;

impl Server {
    /// Creates a server. Without a verifier no token is valid, and only public paths are served
    /// (S4).
    pub fn new(name: &'static str, verifier: Option<Arc<Verifier>>) -> Self {
        Self {
            name,
            auth: AuthConfig {
                verifier,
                ..AuthConfig::default()
            },
            allow_insecure: false,
            peer_modes: Vec::new(),
            tls: None,
            scrape: None,
            limits: Limits::default(),
        }
    }

    /// Adds a route that requires no token. Its handler checks another proof in the request.
    /// `route` is written as in the router: `/v1/things/{thing}`.
    #[must_use]
    pub fn open_route(mut self, method: http::Method, route: &'static str) -> Self {
        self.auth.open_routes.push((method, route));
        self
    }

    /// Sets the receiver of all refused requests (S24).
    #[must_use]
    pub fn observe_refusals(mut self, observer: Arc<dyn RefusalObserver>) -> Self {
        self.auth.observer = Some(observer);
        self
    }

    /// Applies TLS, limits and the address for metrics from the settings, and binds that address.
    ///
    /// # Errors
    /// If certificate and key are not usable, the address for metrics is not available, or the
    /// database or the collector is reached insecurely (S3).
    pub fn configure(mut self, settings: &ServerSettings) -> anyhow::Result<Self> {
        insecure_modes::check_peers(settings)?;
        self.allow_insecure = settings.allow_insecure;
        self.peer_modes = insecure_modes::peer_modes(settings);
        self.tls = match (&settings.tls_certificate, &settings.tls_key) {
            (Some(certificate), Some(key)) => Some(Tls::open(certificate, key)?),
            (None, None) => None,
            _ => bail!("`tls_certificate` and `tls_key` go together"),
        };
        self.scrape = ScrapeListener::bind(settings, self.tls.is_some())?;
        self.limits.requests_per_second = settings.requests_per_second;
        self.limits.stranger_requests_per_second = settings.stranger_requests_per_second;
        self.limits.tenant_requests_per_second = settings.tenant_requests_per_second;
        self.limits.requests_at_once = settings.requests_at_once;
        self.limits.streams_at_once = settings.streams_at_once;
        self.limits.processor_percent_each = settings.processor_percent_each;
        Ok(self)
    }

    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves until the shutdown. Returns when the last request is finished or ended.
    ///
    /// # Errors
    /// If other nodes can reach the listener and that is not allowed (S3).
    pub async fn serve(
        self,
        router: Router,
        listener: TcpListener,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let address = listener
            .local_addr()
            .context("the listener has no address")?;
        let tls = self.tls;
        insecure_modes::check_address(address, self.allow_insecure || tls.is_some())?;
        let mut insecure = insecure_modes::listener_modes(address, tls.is_some());
        if let Some(scrape) = &self.scrape {
            insecure.extend(insecure_modes::listener_modes(
                scrape.address,
                tls.is_some(),
            ));
            insecure.dedup();
        }
        insecure.extend(self.peer_modes);
        tracing::info!(service = self.name, %address, tls = tls.is_some(), "listening");
        let limits = Arc::new(self.limits);
        insecure_modes::set_gauge(self.name, &insecure);
        publish_certificate_metrics(self.name, tls.as_ref());
        let modes = InsecureModes(insecure.clone().into());
        let router = router.layer(axum::Extension(modes));
        let verifier = self.auth.verifier.clone();
        let context = ServeContext {
            name: self.name,
            limits: Arc::clone(&limits),
            shutdown: shutdown.clone(),
        };
        let router = with_middleware(router, self.auth, &context);
        let acceptor = tls.as_ref().map(|tls| tls.acceptor.clone());
        let metrics_server = scrape::serve(self.scrape, verifier, acceptor.clone(), &context);
        let api_server = connections::serve(router, listener, acceptor, &limits, &shutdown);
        tokio::select! {
            _ = async { tokio::join!(api_server, metrics_server) } => {}
            () = insecure_modes::log_forever(self.name, &insecure) => {}
        }
        tracing::info!(service = self.name, %address, "stopped listening");
        Ok(())
    }
}

/// Serves with the default limits. See [`Server::serve`].
///
/// # Errors
/// Same as [`Server::serve`].
pub async fn serve(
    name: &'static str,
    router: Router,
    listener: TcpListener,
    verifier: Arc<Verifier>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    Server::new(name, Some(verifier))
        .serve(router, listener, shutdown)
        .await
}

/// Binds the address of the settings.
///
/// # Errors
/// If other nodes could reach it without TLS (S3), or it is in use.
pub fn bind(settings: &ServerSettings) -> anyhow::Result<TcpListener> {
    insecure_modes::refuse_in_release(settings.allow_insecure, RELEASE_MARKER)?;
    let has_tls = settings.tls_certificate.is_some();
    insecure_modes::check_address(settings.listen, settings.allow_insecure || has_tls)?;
    bind_listener(settings.listen).with_context(|| format!("cannot listen on {}", settings.listen))
}

fn bind_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Connections inherit the buffer size from the listener.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_BACKLOG)
}

/// Publishes the metrics of the certificate. They are computed at every export, because they change
/// with time (T8).
fn publish_certificate_metrics(name: &'static str, tls: Option<&Tls>) {
    let Some(tls) = tls.cloned() else {
        return;
    };
    gauges::set_live(name, "certificate", move || {
        let now_ms = SystemClock.now().unix_ms();
        let validity = tls.validity();
        validity.map_or_else(Vec::new, |validity| {
            certificate_readings(name, validity, now_ms)
        })
    });
}

fn certificate_readings(name: &'static str, validity: tls::Validity, now_ms: i64) -> Vec<Reading> {
    let attributes = || vec![SERVICE.with(name)];
    let (remaining_s, total_s) = validity.remaining_and_total_s(now_ms);
    vec![
        CERTIFICATE_REMAINING.reading(remaining_s, attributes()),
        CERTIFICATE_LIFETIME.reading(total_s, attributes()),
    ]
}

/// Name, limits and shutdown of a server while it serves.
pub(super) struct ServeContext {
    pub name: &'static str,
    pub limits: Arc<Limits>,
    pub shutdown: Shutdown,
}

/// Wraps a router in the layers described above. The last layer added here runs first.
pub(super) fn with_middleware(router: Router, auth: AuthConfig, context: &ServeContext) -> Router {
    let (name, limits) = (context.name, &context.limits);
    let auth = Arc::new(auth);
    let in_flight = Arc::new(Semaphore::new(limits.in_progress));
    let callers = Arc::new(CallerLimits::new(limits));
    let failed_auth = Arc::new(FailedAuthLimiter::new(limits));
    let failed_auth_config = Arc::clone(&auth);
    let expensive = Arc::new(ExpensiveRoutes::new(limits));
    let load_limit = LoadLimit {
        limits: Arc::clone(limits),
        in_flight,
        shutdown: context.shutdown.clone(),
    };
    router
        .fallback(|| async { Problem::new(Code::NotFound, "there is no such route") })
        .method_not_allowed_fallback(|| async {
            Problem::new(
                Code::MethodNotAllowed,
                "this route has other methods; see allow",
            )
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            expensive_routes::queue_expensive(Arc::clone(&expensive), request, next)
        }))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            limit_load(load_limit.clone(), request, next)
        }))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            per_caller::limit_callers(Arc::clone(&callers), request, next)
        }))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            authenticate(Arc::clone(&auth), request, next)
        }))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            let limiter = Arc::clone(&failed_auth);
            let auth_config = Arc::clone(&failed_auth_config);
            failed_auth_per_address::limit_failed_auth(limiter, auth_config, request, next)
        }))
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            request_context::with_request_context(name, request, next)
        }))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer hands the panic over"
)]
fn panic_response(panic: Box<dyn Any + Send + 'static>) -> Response {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic payload that is not text");
    Problem::internal(anyhow::anyhow!("a handler panicked: {message}")).into_response()
}

/// Permit of a request in progress. It is released while the request only waits.
#[derive(Clone)]
struct WorkPermit(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

/// Limit of the requests in progress.
#[derive(Clone)]
struct LoadLimit {
    limits: Arc<Limits>,
    in_flight: Arc<Semaphore>,
    shutdown: Shutdown,
}

/// Sheds load and applies the timeout, as a middleware.
async fn limit_load(load_limit: LoadLimit, request: Request, next: Next) -> Response {
    let LoadLimit {
        limits,
        in_flight,
        shutdown,
    } = load_limit;
    let has_wait = is_long_poll(request.uri().query());
    let mut timeout = limits.handler_timeout;
    if has_wait {
        timeout += MAX_LONG_POLL;
    }
    if !request.body().is_end_stream() {
        timeout += limits.body_timeout;
    }
    let mut request = request.map(|body| Body::new(BodyDeadline::new(body, limits.body_timeout)));
    // Health checks are answered even if the server is busy.
    let is_exempt = has_wait || matches!(request.uri().path(), "/livez" | "/readyz");
    let permit = match in_flight.try_acquire_owned() {
        _ if is_exempt => None,
        Ok(permit) => Some(permit),
        Err(_) => return Problem::new(Code::Unavailable, "too busy").into_response(),
    };
    let permit = WorkPermit(Arc::new(Mutex::new(permit)));
    request.extensions_mut().insert(shutdown);
    request.extensions_mut().insert(permit.clone());
    let work = async {
        if has_wait {
            long_poll(request, next).await
        } else {
            next.run(request).await
        }
    };
    let response = tokio::time::timeout(timeout, work).await;
    drop(permit);
    response.unwrap_or_else(|_| {
        let cause = anyhow::anyhow!("a handler took longer than {timeout:?}");
        Problem::unavailable("this took too long and was given up", cause).into_response()
    })
}

/// Runs a route whose wait is in the body. Use it with `axum::middleware::from_fn`. The request
/// releases its permit while it waits, and is ended at the shutdown.
pub async fn long_poll(mut request: Request, next: Next) -> Response {
    if let Some(permit) = request.extensions_mut().remove::<WorkPermit>() {
        permit.0.lock().take();
    }
    let shutdown = request
        .extensions()
        .get::<Shutdown>()
        .cloned()
        .unwrap_or_default();
    let mut response = tokio::select! {
        response = next.run(request) => response,
        () = shutdown.wait() => {
            Problem::new(Code::Unavailable, "this replica is shutting down").into_response()
        }
    };
    response.extensions_mut().insert(LongPolled);
    response
}

pub(super) fn is_long_poll(query: Option<&str>) -> bool {
    let parts = query.unwrap_or("").split('&');
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .any(|(name, wait)| matches!(name, "wait" | "wait_ms") && wait != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_of_a_certificate_may_be_negative() {
        let validity = tls::Validity {
            from_ms: 10_000,
            to_ms: 100_000,
        };
        let readings = |now_ms| {
            let readings = certificate_readings("test", validity, now_ms);
            (readings[0].value, readings[1].value)
        };
        assert_eq!(readings(40_000), (60.0, 90.0));
        assert_eq!(readings(105_000), (-5.0, 90.0));
    }

    #[test]
    fn a_long_poll_has_a_wait_other_than_zero() {
        assert!(is_long_poll(Some("since=a&wait=25")));
        for query in [
            None,
            Some(""),
            Some("wait=0"),
            Some("await=1"),
            Some("since=wait"),
        ] {
            assert!(!is_long_poll(query), "{query:?}");
        }
    }
}
