//! Carries questions to planners outside, and their answers back. It is told which address to ask
//! by the policy, which only operators change. Redirects and proxies are never followed (S22), no
//! secret is sent, every wait has an end and every answer a limit.

use std::time::{Duration, Instant};

use hayward_publication::Handle;
use hayward_rm_scheduler_api::policy::PoolPlanner;
use hayward_rm_scheduler_domain::snapshot::outside::Answer;
use hayward_rm_scheduler_outside::{Ask, MOST_BYTES, clipped, read};
use hayward_service::Shutdown;
use hayward_service::client::install_crypto;
use tokio::sync::mpsc;

use super::Answered;
use crate::ledger::Command;

/// On their way to the one who carries them: one of each pool, and there are fewer pools.
const MOST_WAITING: usize = 1_000;
/// Characters of what went wrong.
const WORDS: usize = 200;

pub struct Question {
    pub planner: PoolPlanner,
    pub ask: Ask,
}

/// Where rounds leave their questions.
pub struct Questions(mpsc::Sender<Question>);

impl Questions {
    pub fn new() -> (Self, mpsc::Receiver<Question>) {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        (Self(sender), receiver)
    }

    /// What cannot be carried is asked again when it is given up.
    pub fn send(&self, question: Question) {
        if self.0.try_send(question).is_err() {
            tracing::warn!("a question to a planner outside could not be carried");
        }
    }
}

/// Until the shutdown.
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
            let client = clients.of(&question.planner.url);
            tokio::spawn(carry(client, question, handle.clone()));
        }
    })
}

/// Made when they are needed first: a fleet without planners outside pays for none.
#[derive(Default)]
struct Clients {
    plain: Option<reqwest::Client>,
    secure: Option<reqwest::Client>,
}

impl Clients {
    fn of(&mut self, url: &str) -> Result<reqwest::Client, String> {
        let secure = url.starts_with("https:");
        let place = if secure {
            &mut self.secure
        } else {
            &mut self.plain
        };
        if let Some(client) = place {
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
        Ok(place.insert(client).clone())
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
    let answered = Answered {
        pool: ask.pool,
        revision: ask.revision,
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        outcome,
    };
    // Who does not lead any more has nobody to tell.
    let told = handle.ask(|reply| Command::Answered(Box::new(answered), reply));
    if let Err(problem) = told.await {
        tracing::debug!(?problem, "an answer of a planner outside came too late");
    }
}

async fn within(
    client: &reqwest::Client,
    planner: &PoolPlanner,
    ask: &Ask,
) -> Result<Answer, String> {
    let patience = Duration::from_millis(planner.timeout_ms);
    let answer = tokio::time::timeout(patience, post(client, &planner.url, ask)).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {} ms", planner.timeout_ms)))
}

async fn post(client: &reqwest::Client, url: &str, ask: &Ask) -> Result<Answer, String> {
    let unreachable = |error: reqwest::Error| {
        let why = format!("it cannot be reached: {}", cause(&error));
        clipped(&why, WORDS)
    };
    let mut response = client
        .post(url)
        .json(ask)
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
    let too_large = || format!("its answer has more than {MOST_BYTES} bytes");
    let told = response.content_length();
    if told.is_some_and(|bytes| bytes > MOST_BYTES as u64) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(unreachable)? {
        if body.len() + part.len() > MOST_BYTES {
            return Err(too_large());
        }
        body.extend_from_slice(&part);
    }
    read(&body, ask.revision)
}

/// The innermost reason, which says most.
fn cause(error: &dyn std::error::Error) -> String {
    let path = std::iter::successors(Some(error), |error| error.source());
    path.last().map(ToString::to_string).unwrap_or_default()
}
