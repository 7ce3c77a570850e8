//! The second listener of a process, for Prometheus: one route, `/metrics`, with the same access
//! control as every other route. It is not part of the API or its description (T1).

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::authentication::AuthConfig;
use super::connections;
use super::server::{ServeContext, with_middleware};
use crate::auth::{Caller, Scope, Verifier};
use crate::config::{ServerSettings, insecure_modes};
use crate::problem::{Code, Problem};
use crate::telemetry;

/// The bound listener of the metrics. It does not serve yet.
pub(super) struct ScrapeListener {
    listener: TcpListener,
    pub(super) address: SocketAddr,
}

impl ScrapeListener {
    /// Binds the listener. Returns `None` without the setting. Call it within a runtime.
    ///
    /// # Errors
    /// If the address is not allowed (S3) or in use.
    pub(super) fn bind(settings: &ServerSettings, has_tls: bool) -> anyhow::Result<Option<Self>> {
        let Some(listen) = settings.scrape_listen else {
            return Ok(None);
        };
        insecure_modes::check_address(listen, settings.allow_insecure || has_tls)
            .context("`scrape_listen`")?;
        let bind = || -> std::io::Result<Self> {
            let listener = std::net::TcpListener::bind(listen)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let listener = TcpListener::from_std(listener)?;
            Ok(Self { listener, address })
        };
        let listener = bind().with_context(|| format!("cannot listen for scrapes on {listen}"))?;
        Ok(Some(listener))
    }
}

/// Serves until the shutdown, with the certificate and the limits of the service.
pub(super) async fn serve(
    scrape: Option<ScrapeListener>,
    verifier: Option<Arc<Verifier>>,
    tls: Option<TlsAcceptor>,
    context: &ServeContext,
) {
    let Some(ScrapeListener { listener, address }) = scrape else {
        return;
    };
    tracing::info!(service = context.name, %address, "listening for scrapes");
    let auth = AuthConfig {
        verifier,
        ..AuthConfig::default()
    };
    let router = Router::new().route("/metrics", get(metrics));
    let router = with_middleware(router, auth, context);
    let (limits, shutdown) = (&context.limits, &context.shutdown);
    connections::serve(router, listener, tls, limits, shutdown).await;
}

/// Returns the metrics of the process. They name classes, pools and users, so only the scopes that
/// watch a fleet may read them (S12).
async fn metrics(caller: Caller) -> Result<Response, Problem> {
    caller.require(&[Scope::Scraper, Scope::Viewer, Scope::Operator])?;
    let text = tokio::task::spawn_blocking(telemetry::scrape).await;
    let text = text
        .ok()
        .flatten()
        .ok_or_else(|| Problem::new(Code::Unavailable, "nothing is measured in this process"))?;
    Ok(([(CONTENT_TYPE, telemetry::CONTENT_TYPE)], text).into_response())
}
