//! Sends requests to external planners and returns their responses.
//!
//! The addresses come from the policy, which only operators change. No redirect is followed, no
//! proxy is used, and no secret is sent. Time and size are limited (S22).

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_publication::Handle;
use hayward_rm_scheduler_api::policy::PoolPlanner;
use hayward_rm_scheduler_domain::snapshot::external_planners::PlannerResponse;
use hayward_rm_scheduler_external_planner::{MAX_BYTES, PlannerRequest, clip, parse_response};
use hayward_service::Shutdown;
use hayward_service::client::install_crypto;
use reqwest::header::CONTENT_TYPE;
use tokio::sync::mpsc;

use crate::command::{Command, PlannerOutcome};
use crate::context::OutgoingRequest;

/// Maximum number of bytes of a request, enough for the largest fleets.
const MAX_REQUEST_BYTES: usize = 256 << 20;
/// Maximum number of characters of an error text.
const MAX_ERROR_CHARS: usize = 200;

/// Sends requests until the shutdown.
pub fn start(
    handle: Handle<Command>,
    mut requests: mpsc::Receiver<OutgoingRequest>,
    shutdown: Shutdown,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut clients = Clients::default();
        loop {
            let outgoing = tokio::select! {
                () = shutdown.wait() => return,
                outgoing = requests.recv() => outgoing,
            };
            let Some(outgoing) = outgoing else { return };
            let client = clients.client_for(&outgoing.planner.url);
            tokio::spawn(send_and_report(client, outgoing, handle.clone()));
        }
    })
}

/// HTTP clients without and with TLS, created at their first use.
#[derive(Default)]
struct Clients {
    plain: Option<reqwest::Client>,
    secure: Option<reqwest::Client>,
}

impl Clients {
    fn client_for(&mut self, url: &str) -> Result<reqwest::Client, String> {
        let secure = url.starts_with("https:");
        let cached = if secure {
            &mut self.secure
        } else {
            &mut self.plain
        };
        if let Some(client) = cached {
            return Ok(client.clone());
        }
        install_crypto();
        let mut builder = reqwest::Client::builder();
        if !secure {
            // A client without TLS loads no certificates.
            builder = builder.tls_certs_only([]);
        }
        let client = builder
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(1)
            .user_agent(concat!("hayward/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| format!("no client can be made: {}", innermost_cause(&error)))?;
        Ok(cached.insert(client).clone())
    }
}

async fn send_and_report(
    client: Result<reqwest::Client, String>,
    outgoing: OutgoingRequest,
    handle: Handle<Command>,
) {
    let OutgoingRequest { planner, request } = outgoing;
    let started = Instant::now();
    let outcome = match client {
        Ok(client) => send_with_timeout(&client, &planner, &request).await,
        Err(why) => Err(why),
    };
    let planner_outcome = PlannerOutcome {
        pool: request.pool.clone(),
        revision: request.revision,
        took_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        outcome,
    };
    // If this scheduler is no longer the leader, the response is dropped.
    let sent =
        handle.execute(|reply| Command::ApplyPlannerOutcome(Box::new(planner_outcome), reply));
    if let Err(problem) = sent.await {
        tracing::debug!(?problem, "an answer of an external planner came too late");
    }
}

async fn send_with_timeout(
    client: &reqwest::Client,
    planner: &PoolPlanner,
    request: &Arc<PlannerRequest>,
) -> Result<PlannerResponse, String> {
    let timeout = Duration::from_millis(planner.timeout_ms);
    let response = tokio::time::timeout(timeout, post(client, &planner.url, request)).await;
    response.unwrap_or_else(|_| Err(format!("no answer within {} ms", planner.timeout_ms)))
}

async fn post(
    client: &reqwest::Client,
    url: &str,
    request: &Arc<PlannerRequest>,
) -> Result<PlannerResponse, String> {
    let unreachable = |error: reqwest::Error| {
        let why = format!("unreachable: {}", innermost_cause(&error));
        clip(&why, MAX_ERROR_CHARS)
    };
    // The request for a large pool takes many megabytes, so another thread serializes it.
    let body = request.clone();
    let body = on_blocking_thread(move || serialize(&body, MAX_REQUEST_BYTES)).await?;
    let mut response = client
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .body(body)
        .send()
        .await
        .map_err(unreachable)?;
    let status = response.status();
    if status.is_redirection() {
        return Err(format!(
            "it answers {status}, and redirects are not followed"
        ));
    }
    if !status.is_success() {
        return Err(format!("it answers {status}"));
    }
    let too_large = || format!("its answer has more than {MAX_BYTES} bytes");
    let content_length = response.content_length();
    if content_length.is_some_and(|bytes| bytes > MAX_BYTES as u64) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(unreachable)? {
        if body.len() + part.len() > MAX_BYTES {
            return Err(too_large());
        }
        body.extend_from_slice(&part);
    }
    let revision = request.revision;
    on_blocking_thread(move || parse_response(&body, revision)).await
}

/// Runs long work on a blocking thread.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let result = tokio::task::spawn_blocking(work).await;
    result.unwrap_or_else(|_| Err("reading or writing it was given up".to_owned()))
}

/// Returns the request as JSON, or an error if it exceeds `max_bytes`.
fn serialize(request: &PlannerRequest, max_bytes: usize) -> Result<Vec<u8>, String> {
    let mut limited = LimitedBuffer {
        bytes: Vec::new(),
        max_bytes,
    };
    let written = serde_json::to_writer(&mut limited, request);
    let why = |_| format!("the question is too large: it has more than {max_bytes} bytes");
    written.map_err(why)?;
    Ok(limited.bytes)
}

/// A buffer that refuses to grow beyond `max_bytes`.
struct LimitedBuffer {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl Write for LimitedBuffer {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + part.len() > self.max_bytes {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the text of the innermost error, which is the most specific.
fn innermost_cause(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::working_set::external_planners::tests::planner_request;

    #[test]
    fn a_request_above_the_size_limit_is_not_sent() {
        let request = planner_request();
        let written = serialize(&request, MAX_REQUEST_BYTES).unwrap();
        assert_eq!(written, serde_json::to_vec(&request).unwrap());
        assert_eq!(serialize(&request, written.len()).unwrap(), written);
        let error = serialize(&request, written.len() - 1).unwrap_err();
        assert!(error.starts_with("the question is too large: it has more than"));
    }
}
