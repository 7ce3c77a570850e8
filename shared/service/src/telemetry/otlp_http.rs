//! How batches go to a collector: one HTTP client for all of them, on the exporters' own threads.
//!
//! Over TLS it believes the authorities of a file, which is read again when it changes, or the
//! machine's own. Like every client of ours it follows no redirect and no proxy (S22).

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::Certificate;
use reqwest::blocking::{Client, ClientBuilder};

use super::otlp::PATIENCE;
use crate::runtime::file_watch::Watched;

/// Clones share it.
#[derive(Clone)]
pub(super) enum Post {
    Fixed(Client),
    Believing(Arc<Watched<Client>>),
}

impl Post {
    /// Not to be called on a thread of the runtime.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub(super) fn to(endpoint: &str, authority: Option<&Path>) -> anyhow::Result<Self> {
        if endpoint.starts_with("http://") {
            // Nothing is checked against the machine's trust store, which is hundreds of files.
            return build(Client::builder().tls_certs_only([])).map(Self::Fixed);
        }
        let Some(authority) = authority else {
            return build(Client::builder()).map(Self::Fixed);
        };
        let watched = Watched::open(authority.to_owned(), believing)?;
        Ok(Self::Believing(Arc::new(watched)))
    }

    fn now(&self) -> Client {
        match self {
            Self::Fixed(client) => client.clone(),
            Self::Believing(watched) => Client::clone(&watched.now()),
        }
    }
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Post")
    }
}

impl HttpClient for Post {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.now().send_bytes(request).await })
    }
}

fn believing(authority: &Path) -> anyhow::Result<Client> {
    let place = authority.display();
    let pem = std::fs::read(authority).with_context(|| format!("cannot read {place}"))?;
    let certificates =
        Certificate::from_pem_bundle(&pem).with_context(|| format!("{place} is not PEM"))?;
    ensure!(
        !certificates.is_empty(),
        "there is no certificate in {place}"
    );
    build(Client::builder().tls_certs_only(certificates))
}

fn build(builder: ClientBuilder) -> anyhow::Result<Client> {
    builder
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .context("cannot make an http client")
}
