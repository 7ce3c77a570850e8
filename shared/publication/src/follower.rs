//! Follows a publication of a neighbour with long polls. Each response is committed before the next
//! request. While the neighbour is down, the follower retries with a backoff.

use std::sync::Arc;
use std::time::Duration;

use hayward_service::client::{Client, ClientError};
use hayward_service::runtime::shutdown::Shutdown;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::publisher::{Publisher, PublisherRole};
use crate::update::WAIT_SECONDS;
use crate::{CommitError, Committed, Cursor, Update, WentBack};

/// Duration of an outage before it is logged. A shorter outage may be a restart of the neighbour.
const QUIET_START: Duration = Duration::from_secs(3);
/// Pause between two log lines about a neighbour that stays down.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A publication to follow.
#[derive(Debug, Clone)]
pub struct Source {
    /// Name of the publication, such as `nodes`. Its position is stored under the same name.
    pub name: &'static str,
    /// Path of the publication, such as `/v1/nodes/publication`.
    pub path: String,
}

/// Key among the positions. It exists if an operator has started another history, which neighbours
/// may not know yet (R9).
pub const DECIDED: &str = "decided";

/// Follows `source` while `publisher` leads, until shutdown. `absorb` commits one update.
pub async fn follow<T, F, A>(
    source: Source,
    client: Client,
    publisher: Arc<Publisher>,
    shutdown: Shutdown,
    mut absorb: A,
) where
    T: DeserializeOwned,
    F: Future<Output = Result<Committed<()>, CommitError>>,
    A: FnMut(Update<T>) -> F,
{
    tokio::select! {
        () = shutdown.wait() => {}
        () = follow_terms(&source, &client, &publisher, &mut absorb) => {}
    }
}

async fn follow_terms<T, F, A>(
    source: &Source,
    client: &Client,
    publisher: &Publisher,
    absorb: &mut A,
) where
    T: DeserializeOwned,
    F: Future<Output = Result<Committed<()>, CommitError>>,
    A: FnMut(Update<T>) -> F,
{
    let mut terms = publisher.terms();
    let mut cursor: Option<String> = None;
    let mut epoch = None;
    let mut backoff = Backoff::default();
    loop {
        let Some(now) = leading_epoch(&mut terms).await else {
            return;
        };
        if epoch != Some(now) {
            // A new term starts with an empty map and requests a full update.
            (epoch, cursor) = (Some(now), None);
        }
        publisher.update_neighbour(source.name, |neighbour| {
            neighbour
                .requested_at
                .get_or_insert_with(std::time::Instant::now);
        });
        let answer = poll::<T>(source, client, cursor.as_deref()).await;
        publisher.update_neighbour(source.name, |neighbour| {
            neighbour.requested_at = neighbour.requested_at.filter(|_| answer.is_err());
        });
        match answer {
            Ok(update) => {
                backoff = Backoff::default();
                if went_back(source, publisher, &update) {
                    continue;
                }
                let next = update.cursor.clone();
                publisher.update_neighbour(source.name, |neighbour| {
                    neighbour.answered_at = Some(std::time::Instant::now());
                    neighbour.cursor = Some(next.clone());
                    neighbour.fault = None;
                });
                match absorb(update).await {
                    Ok(_) => cursor = Some(next),
                    // The outcome is unknown, so the follower starts again with a full update.
                    Err(_) => cursor = None,
                }
            }
            Err(error) => {
                if let Some(fault) = record_fault(source, publisher, cursor.as_deref(), &error) {
                    backoff.wait(source, &fault).await;
                }
            }
        }
    }
}

/// Records why a poll failed. Returns `None` if the neighbour reports that this database went back
/// in time.
fn record_fault(
    source: &Source,
    publisher: &Publisher,
    cursor: Option<&str>,
    error: &ClientError,
) -> Option<String> {
    if let Some(found) = reported_by_neighbour(source, publisher, cursor, error) {
        publisher.went_back(found);
        return None;
    }
    let fault = describe(error);
    publisher.update_neighbour(source.name, |neighbour| {
        neighbour.fault = Some(fault.clone());
    });
    Some(fault)
}

/// Waits until this replica leads. Returns `None` if the publisher was dropped.
async fn leading_epoch(terms: &mut watch::Receiver<PublisherRole>) -> Option<u64> {
    let leads = |role: &PublisherRole| matches!(role, PublisherRole::Leading { .. });
    match *terms.wait_for(leads).await.ok()? {
        PublisherRole::Leading { epoch, .. } => Some(epoch),
        _ => None,
    }
}

async fn poll<T: DeserializeOwned>(
    source: &Source,
    client: &Client,
    cursor: Option<&str>,
) -> Result<Update<T>, ClientError> {
    let path = match cursor {
        Some(cursor) => format!("{}?wait={WAIT_SECONDS}&since={cursor}", source.path),
        None => format!("{}?wait=0", source.path),
    };
    client
        .get_with_timeout(&path, Duration::from_secs(WAIT_SECONDS + 10))
        .await
}

/// Returns the error with its causes, in one line.
fn describe(error: &ClientError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Returns whether the neighbour went back: it has the same lineage, and a smaller revision than an
/// earlier read (R9).
fn went_back<T>(source: &Source, publisher: &Publisher, update: &Update<T>) -> bool {
    let (Some(known), Some(now)) = (
        publisher.position(source.name),
        Cursor::parse(&update.cursor),
    ) else {
        return false;
    };
    let back = known.lineage == now.lineage && now.revision < known.revision;
    if back {
        let lineage = publisher.lineage();
        let evidence = format!(
            "{} answers with revision {}, {} was read before",
            source.name, now.revision, known.revision
        );
        publisher.went_back(WentBack { lineage, evidence });
    }
    back
}

/// Returns whether evidence from a stopped neighbour counts, so that the whole fleet stops. It
/// counts only for the history that was read from the neighbour. The neighbour may not know a
/// decision of the operator yet (R9).
fn reported_by_neighbour(
    source: &Source,
    publisher: &Publisher,
    cursor: Option<&str>,
    error: &ClientError,
) -> Option<WentBack> {
    let found = WentBack::from_problem(error.problem()?)?;
    let read = cursor.and_then(Cursor::parse);
    let read = read.or_else(|| publisher.read_position(source.name));
    let believed = match read {
        Some(read) => read.lineage == found.lineage,
        // Without any position the neighbour is trusted, except after a decision of an operator.
        None => publisher.position(DECIDED).is_none(),
    };
    believed.then(|| WentBack {
        lineage: publisher.lineage(),
        evidence: format!("{} are not told any more: {found}", source.name),
    })
}

/// Exponential backoff with jitter, and log lines with a rate limit.
#[derive(Default)]
struct Backoff {
    failures: u32,
    since: Option<Instant>,
    logged_at: Option<Instant>,
}

impl Backoff {
    async fn wait(&mut self, source: &Source, fault: &str) {
        self.failures = self.failures.saturating_add(1);
        let since = *self.since.get_or_insert_with(Instant::now);
        let quiet = self
            .logged_at
            .map_or(since + QUIET_START, |at| at + LOG_INTERVAL);
        if Instant::now() >= quiet {
            self.logged_at = Some(Instant::now());
            tracing::warn!(source = source.name, fault, "cannot follow");
        }
        let longest = (20_u64 << self.failures.min(6)).min(1000);
        let pause = rand::random_range(longest / 2..=longest);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}
