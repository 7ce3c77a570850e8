//! HTTP client of the exporters. It is used only on the threads of the exporters.
//!
//! Over TLS the client trusts the authorities of a file, which is read again when it changes.
//! Without a file it trusts those of the system. It follows no redirect and no proxy (S22).

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::Certificate;
use reqwest::blocking::{Client, ClientBuilder};

use super::otlp::SEND_TIMEOUT;
use crate::runtime::file_watch::Watched;

/// HTTP client. Clones share it.
#[derive(Clone)]
pub(super) enum OtlpHttp {
    Fixed(Client),
    Watched(Arc<Watched<Client>>),
}

impl OtlpHttp {
    /// Creates the client. Do not call it on a thread of the runtime.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub(super) fn new(endpoint: &str, authority: Option<&Path>) -> anyhow::Result<Self> {
        if endpoint.starts_with("http://") {
            // Plain HTTP needs no certificates, so the trust store of the system is not loaded.
            return build(Client::builder().tls_certs_only([])).map(Self::Fixed);
        }
        let Some(authority) = authority else {
            return build(Client::builder()).map(Self::Fixed);
        };
        let watched = Watched::open(authority.to_owned(), client_with_authorities)?;
        Ok(Self::Watched(Arc::new(watched)))
    }

    fn client(&self) -> Client {
        match self {
            Self::Fixed(client) => client.clone(),
            Self::Watched(watched) => Client::clone(&watched.get()),
        }
    }
}

impl std::fmt::Debug for OtlpHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OtlpHttp")
    }
}

impl HttpClient for OtlpHttp {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.client().send_bytes(request).await })
    }
}

fn client_with_authorities(authority: &Path) -> anyhow::Result<Client> {
    let path = authority.display();
    let pem = std::fs::read(authority).with_context(|| format!("cannot read {path}"))?;
    let certificates =
        Certificate::from_pem_bundle(&pem).with_context(|| format!("{path} is not PEM"))?;
    ensure!(
        !certificates.is_empty(),
        "there is no certificate in {path}"
    );
    build(Client::builder().tls_certs_only(certificates))
}

fn build(builder: ClientBuilder) -> anyhow::Result<Client> {
    builder
        .timeout(SEND_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .context("cannot make an http client")
}
