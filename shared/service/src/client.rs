//! HTTP client for other services, with JSON bodies.
//!
//! A client has several addresses of one service and stays with the one that responds. After a
//! failed connection or a 503 it moves to the next one, also among replicas behind one name. A
//! request that may have been executed is repeated only if its method is idempotent or it has an
//! idempotency key. Redirects and proxies are never followed, and every wait has a timeout (S22).

mod call;
pub(crate) mod resolver;
mod token;
mod trust;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use http::Method;
use reqwest::Url;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

pub use crate::runtime::tls_provider::install_crypto;
pub use call::{Call, Response};
pub use token::TokenSource;
pub use trust::{Authority, CA_FILE, CA_IN_KEYS};

/// Default timeout of a call.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle timeout of a connection. It is shorter than the timeout of the server, so that the client
/// does not use a connection that the server is closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The service refused the request.
    #[error("refused")]
    Problem(#[source] Problem),
    /// The client reached no address, or the response was incomplete.
    #[error("cannot reach {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The response has an unexpected shape.
    #[error("cannot read the answer of {url}")]
    Unreadable {
        url: String,
        #[source]
        source: serde_json::Error,
    },
    /// The request is invalid.
    #[error("cannot make a request")]
    InvalidRequest(#[source] anyhow::Error),
}

impl ClientError {
    /// Returns the problem document of a refusal. Returns `None` for other errors.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }

    /// Returns whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.retryable,
            Self::Unreachable { .. } => true,
            Self::Unreadable { .. } | Self::InvalidRequest(_) => false,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.problem()
            .is_some_and(|problem| problem.code == crate::Code::NotFound)
    }
}

struct ClientState {
    http: trust::HttpClient,
    urls: Vec<Url>,
    token: TokenSource,
    /// Index of the current address, modulo the length of the list.
    current: AtomicUsize,
}

/// A client of one service. Clones share connections and the current address.
#[derive(Clone)]
pub struct Client(Arc<ClientState>);

impl Client {
    /// Creates a client. `urls` are base addresses of replicas of one service.
    ///
    /// # Errors
    /// If there is no address, or one is invalid.
    pub fn new<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        token: TokenSource,
    ) -> anyhow::Result<Self> {
        install_crypto();
        let urls = urls
            .into_iter()
            .map(|url| {
                // Without the trailing slash, joining would replace the last part of a base path.
                let base = format!("{}/", url.as_ref().trim().trim_end_matches('/'));
                let url = Url::parse(&base)
                    .with_context(|| format!("{:?} is not an address", url.as_ref()))?;
                ensure!(
                    matches!(url.scheme(), "http" | "https"),
                    "{url} is not an http address"
                );
                Ok(url)
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(!urls.is_empty(), "a client needs at least one address");
        let http = if urls.iter().all(|url| url.scheme() == "http") {
            trust::HttpClient::without_tls()?
        } else {
            trust::HttpClient::with_authority(token.authority())?
        };
        Ok(Self(Arc::new(ClientState {
            http,
            urls,
            token,
            current: AtomicUsize::new(0),
        })))
    }

    /// Creates a client from a comma-separated list of addresses.
    ///
    /// # Errors
    /// Same as [`Client::new`].
    pub fn from_list(urls: &str, token: TokenSource) -> anyhow::Result<Self> {
        Self::new(urls.split(',').filter(|url| !url.trim().is_empty()), token)
    }

    /// Creates a call. The caller adds headers and a body, and then sends it. The path begins with
    /// `/`.
    pub fn call(&self, method: Method, path: impl Into<String>) -> Call {
        Call::new(self.clone(), method, path.into())
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path).send().await
    }

    /// Sends a long poll. `timeout` is the requested wait plus some slack.
    pub async fn get_with_timeout<T: DeserializeOwned>(
        &self,
        path: &str,
        timeout: Duration,
    ) -> Result<T, ClientError> {
        self.call(Method::GET, path).timeout(timeout).send().await
    }

    pub async fn put<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        self.call(Method::PUT, path).body(body).send().await
    }

    /// Sends a `POST`. It is sent only once unless it has a key: see [`Call::idempotency_key`].
    pub async fn post<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        idempotency_key: Option<&str>,
    ) -> Result<T, ClientError> {
        let call = self.call(Method::POST, path).body(body);
        match idempotency_key {
            Some(key) => call.idempotency_key(key).send().await,
            None => call.send().await,
        }
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::DELETE, path).send().await
    }

    fn current_index(&self) -> usize {
        self.0.current.load(Ordering::Relaxed)
    }

    /// Moves on from a failed address unless another call already did.
    fn advance_from(&self, failed: usize) {
        let next = failed.wrapping_add(1);
        let _ = self
            .0
            .current
            .compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}
