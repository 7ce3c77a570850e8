//! Asking other services, and only these: one client for JSON over HTTP.
//!
//! It knows several addresses of one service and stays with the one that answered; a connection
//! that fails or a 503 moves it to the next, among replicas behind one name too. A request that may
//! have been done is sent again only where that does no harm: its method says so, or it bears an
//! idempotency key. Redirects and proxies are never followed (S22), every wait has an end.

mod call;
pub(crate) mod crypto;
mod resolver;
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

use crate::http::problem::Problem;

pub use call::{Answer, Call};
pub use crypto::install_crypto;
pub use token::TokenSource;
pub use trust::{Authority, CA_FILE, CA_IN_KEYS};

/// How long a call may take unless it says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than the server's, so that it is we who end an idle connection.
const IDLE: Duration = Duration::from_secs(45);
const CONNECT: Duration = Duration::from_secs(3);

/// Why a call brought no answer that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The service answered, and said no.
    #[error("refused")]
    Problem(#[source] Problem),
    /// No address could be reached, or the answer broke off.
    #[error("cannot reach {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The answer is not what the contract says.
    #[error("cannot read the answer of {url}")]
    Unreadable {
        url: String,
        #[source]
        source: serde_json::Error,
    },
    /// The request cannot be made.
    #[error("cannot make a request")]
    InvalidRequest(#[source] anyhow::Error),
}

impl ClientError {
    /// The refusal, when it is one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }

    /// Whether the same call may do better later.
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

struct Shared {
    http: trust::Http,
    urls: Vec<Url>,
    token: TokenSource,
    /// Which address answered last; any number, reduced to the length of the list.
    current: AtomicUsize,
}

/// A client of one service. Clones share connections and the address they stay with.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

impl Client {
    /// `urls` are base addresses of replicas of one service.
    ///
    /// # Errors
    /// When there is no address, or one is not an address.
    pub fn new<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        token: TokenSource,
    ) -> anyhow::Result<Self> {
        install_crypto();
        let urls = urls
            .into_iter()
            .map(|url| {
                // Without the slash, joining would replace the last part of a base path.
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
            trust::Http::plain()?
        } else {
            trust::Http::trusting(token.authority())?
        };
        Ok(Self(Arc::new(Shared {
            http,
            urls,
            token,
            current: AtomicUsize::new(0),
        })))
    }

    /// From a comma-separated list of addresses, as settings have it.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn from_list(urls: &str, token: TokenSource) -> anyhow::Result<Self> {
        Self::new(urls.split(',').filter(|url| !url.trim().is_empty()), token)
    }

    /// A call to be refined before it is sent. The path begins with `/`.
    pub fn call(&self, method: Method, path: impl Into<String>) -> Call {
        Call::new(self.clone(), method, path.into())
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path).send().await
    }

    /// A long poll: `patience` is the wait asked for and some time on top of it.
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

    /// Sent once only, unless it bears a key: see [`Call::idempotency_key`].
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

    fn current_address(&self) -> usize {
        self.0.current.load(Ordering::Relaxed)
    }

    /// Leaves the address that failed, unless another call already did.
    fn leave_address(&self, failed: usize) {
        let next = failed.wrapping_add(1);
        let _ = self
            .0
            .current
            .compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}
