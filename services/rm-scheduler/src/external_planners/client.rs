//! Sends questions to external planners and returns their answers.
//!
//! Addresses come from the policy, which only operators change. Redirects and proxies are not
//! followed, and no secret is sent. Time and size are limited (S22).

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_publication::Handle;
use hayward_rm_scheduler_api::policy::PoolPlanner;
use hayward_rm_scheduler_domain::snapshot::outside::Answer;
use hayward_rm_scheduler_external_planner::{MAX_BYTES, PlannerRequest, clip, parse_response};
use hayward_service::Shutdown;
use hayward_service::client::install_crypto;
use reqwest::header::CONTENT_TYPE;
use tokio::sync::mpsc;

use crate::command::{Command, PlannerOutcome};
use crate::context::Question;

/// Most bytes of one question, enough for the largest fleets.
const MAX_QUESTION_BYTES: usize = 256 << 20;
/// Most characters of an error text.
const WORDS: usize = 200;

/// Sends questions until the shutdown.
pub fn start(
    handle: Handle<Command>,
    mut questions: mpsc::Receiver<Question>,
    shutdown: Shutdown,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut clients = Clients::default();
        loop {
            let question = tokio::select! {
                () = shutdown.wait() => return,
                question = questions.recv() => question,
            };
            let Some(question) = question else { return };
            let client = clients.client_for(&question.planner.url);
            tokio::spawn(carry(client, question, handle.clone()));
        }
    })
}

/// HTTP clients, created at their first use.
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
            builder = builder.tls_certs_only([]);
        }
        let client = builder
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(1)
            .user_agent(concat!("hayward/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| format!("no client can be made: {}", cause(&error)))?;
        Ok(cached.insert(client).clone())
    }
}

async fn carry(
    client: Result<reqwest::Client, String>,
    question: Question,
    handle: Handle<Command>,
) {
    let Question { planner, ask } = question;
    let began = Instant::now();
    let outcome = match client {
        Ok(client) => within(&client, &planner, &ask).await,
        Err(why) => Err(why),
    };
    let answered = PlannerOutcome {
        pool: ask.pool.clone(),
        revision: ask.revision,
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        outcome,
    };
    // A process that no longer leads drops the answer.
    let sent = handle.ask(|reply| Command::PlannerAnswered(Box::new(answered), reply));
    if let Err(problem) = sent.await {
        tracing::debug!(?problem, "an answer of an external planner came too late");
    }
}

async fn within(
    client: &reqwest::Client,
    planner: &PoolPlanner,
    ask: &Arc<PlannerRequest>,
) -> Result<Answer, String> {
    let patience = Duration::from_millis(planner.timeout_ms);
    let answer = tokio::time::timeout(patience, post(client, &planner.url, ask)).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {} ms", planner.timeout_ms)))
}

async fn post(
    client: &reqwest::Client,
    url: &str,
    ask: &Arc<PlannerRequest>,
) -> Result<Answer, String> {
    let unreachable = |error: reqwest::Error| {
        let why = format!("unreachable: {}", cause(&error));
        clip(&why, WORDS)
    };
    // The question about a large pool takes many megabytes, so another thread writes it.
    let question = ask.clone();
    let written = on_blocking_thread(move || write(&question, MAX_QUESTION_BYTES)).await?;
    let mut response = client
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .body(written)
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
    let sent = response.content_length();
    if sent.is_some_and(|bytes| bytes > MAX_BYTES as u64) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(unreachable)? {
        if body.len() + part.len() > MAX_BYTES {
            return Err(too_large());
        }
        body.extend_from_slice(&part);
    }
    let revision = ask.revision;
    on_blocking_thread(move || parse_response(&body, revision)).await
}

/// Runs long work on a blocking thread.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err("reading or writing it was given up".to_owned()))
}

/// Returns the question as JSON, or an error if it exceeds `most` bytes.
fn write(ask: &PlannerRequest, most: usize) -> Result<Vec<u8>, String> {
    let mut limited = Limited {
        bytes: Vec::new(),
        most,
    };
    let written = serde_json::to_writer(&mut limited, ask);
    let why = |_| format!("the question is too large: it has more than {most} bytes");
    written.map_err(why)?;
    Ok(limited.bytes)
}

struct Limited {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Limited {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + part.len() > self.most {
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
fn cause(error: &dyn std::error::Error) -> String {
    let path = std::iter::successors(Some(error), |error| error.source());
    path.last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::working_set::external_planners::tests::question;

    #[test]
    fn a_question_above_the_limit_is_not_sent() {
        let ask = question();
        let written = write(&ask, MAX_QUESTION_BYTES).unwrap();
        assert_eq!(written, serde_json::to_vec(&ask).unwrap());
        assert_eq!(write(&ask, written.len()).unwrap(), written);
        let sent = write(&ask, written.len() - 1).unwrap_err();
        assert!(sent.starts_with("the question is too large: it has more than"));
    }
}
