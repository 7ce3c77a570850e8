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
const LOG_DELAY: Duration = Duration::from_secs(3);
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

/// Key among the stored positions. It marks that an operator has started another history of this
/// service, which neighbours may not know yet (R9).
pub const HISTORY_DECISION: &str = "decided";

/// Follows `source` while this replica leads, until shutdown. `absorb` commits one update.
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
    let mut roles = publisher.watch_role();
    let mut cursor: Option<String> = None;
    let mut epoch = None;
    let mut backoff = Backoff::default();
    loop {
        let Some(current_epoch) = leading_epoch(&mut roles).await else {
            return;
        };
        if epoch != Some(current_epoch) {
            // A new term starts with an empty map and requests a full update.
            (epoch, cursor) = (Some(current_epoch), None);
        }
        publisher.update_neighbour(source.name, |neighbour| {
            neighbour
                .requested_at
                .get_or_insert_with(std::time::Instant::now);
        });
        let result = poll::<T>(source, client, cursor.as_deref()).await;
        publisher.update_neighbour(source.name, |neighbour| {
            neighbour.requested_at = neighbour.requested_at.filter(|_| result.is_err());
        });
        match result {
            Ok(update) => {
                backoff = Backoff::default();
                if stop_if_older(source, publisher, &update) {
                    continue;
                }
                let next = update.cursor.clone();
                publisher.update_neighbour(source.name, |neighbour| {
                    neighbour.responded_at = Some(std::time::Instant::now());
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
    if let Some(found) = evidence_of_neighbour(source, publisher, cursor, error) {
        publisher.stop_writing(found);
        return None;
    }
    let fault = describe(error);
    publisher.update_neighbour(source.name, |neighbour| {
        neighbour.fault = Some(fault.clone());
    });
    Some(fault)
}

/// Waits until this replica leads. Returns `None` if the publisher was dropped.
async fn leading_epoch(roles: &mut watch::Receiver<PublisherRole>) -> Option<u64> {
    let leads = |role: &PublisherRole| matches!(role, PublisherRole::Leading { .. });
    match *roles.wait_for(leads).await.ok()? {
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

/// Stops writing if the neighbour went back in time: it has the same lineage, and a smaller
/// revision than an earlier read. Returns whether it went back (R9).
fn stop_if_older<T>(source: &Source, publisher: &Publisher, update: &Update<T>) -> bool {
    let (Some(known), Some(current)) = (
        publisher.position(source.name),
        Cursor::parse(&update.cursor),
    ) else {
        return false;
    };
    let is_older = known.lineage == current.lineage && current.revision < known.revision;
    if is_older {
        let lineage = publisher.lineage();
        let evidence = format!(
            "{} answers with revision {}, {} was read before",
            source.name, current.revision, known.revision
        );
        publisher.stop_writing(WentBack { lineage, evidence });
    }
    is_older
}

/// Returns the evidence from a stopped neighbour if it counts, so that the whole fleet stops. It
/// counts only for the history that was read from the neighbour. The neighbour may not know a
/// decision of the operator yet (R9).
fn evidence_of_neighbour(
    source: &Source,
    publisher: &Publisher,
    cursor: Option<&str>,
    error: &ClientError,
) -> Option<WentBack> {
    let found = WentBack::from_problem(error.problem()?)?;
    let read_cursor = cursor.and_then(Cursor::parse);
    let read_cursor = read_cursor.or_else(|| publisher.read_position(source.name));
    let is_trusted = match read_cursor {
        Some(read_cursor) => read_cursor.lineage == found.lineage,
        // Without any position the neighbour is trusted, except after a decision of an operator.
        None => publisher.position(HISTORY_DECISION).is_none(),
    };
    is_trusted.then(|| WentBack {
        lineage: publisher.lineage(),
        evidence: format!("the publisher of {} has stopped: {found}", source.name),
    })
}

/// Exponential backoff with jitter, and log lines with a rate limit.
#[derive(Default)]
struct Backoff {
    failures: u32,
    /// Time of the first failure. `None` before it.
    since: Option<Instant>,
    logged_at: Option<Instant>,
}

impl Backoff {
    async fn wait(&mut self, source: &Source, fault: &str) {
        self.failures = self.failures.saturating_add(1);
        let since = *self.since.get_or_insert_with(Instant::now);
        let next_log = self
            .logged_at
            .map_or(since + LOG_DELAY, |at| at + LOG_INTERVAL);
        if Instant::now() >= next_log {
            self.logged_at = Some(Instant::now());
            tracing::warn!(source = source.name, fault, "cannot follow");
        }
        // 40 ms after the first failure, doubled after each further one, up to 1 s.
        let max_pause_ms = (20_u64 << self.failures.min(6)).min(1000);
        let pause_ms = rand::random_range(max_pause_ms / 2..=max_pause_ms);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}
