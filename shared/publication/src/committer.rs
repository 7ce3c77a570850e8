//! The one place where a service's state changes (decisions D3, D4).
//!
//! One task owns the working set. It gathers the commands that arrived while the previous
//! transaction was in flight, applies them in order, lets the service take its round, writes all
//! rows and entries in one transaction, and only then lets anyone see the result: readers through
//! the [`Publisher`], each caller through its own [`Reply`]. If the commit fails or its outcome is
//! unknown, the working set is thrown away and read again from the rows, so memory never runs ahead
//! of what is durable.

mod apply;
mod batch;
mod metrics;
mod term;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hayward_service::http::origin::{self, CommandOrigin};
use hayward_service::metrics::Reading;
use hayward_service::runtime::clock::Clock;
use hayward_vocabulary::Timestamp;
use sqlx::{PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

pub use self::batch::{Batch, Reply};
use crate::audit::Auditor;
use crate::{CommitError, Publisher};

/// What a service keeps and how it changes. Everything here but `load` and `write` is pure: time
/// comes in with the [`Moment`].
pub trait Ledger: Sized + Send + 'static {
    /// Someone asked, or news came.
    type Command: Send + 'static;
    /// The rows one batch changes, gathered for multi-row statements.
    type Rows: Default + Send;
    /// What a term is given: settings, and views for readers that the ledger refreshes.
    type Context: Send + Sync + 'static;

    /// Rebuilds the working set from the service's own rows.
    fn load(
        tx: &mut PgConnection,
        moment: &Moment,
        context: &Arc<Self::Context>,
    ) -> impl Future<Output = Result<Self, sqlx::Error>> + Send;

    /// Applies one command. Each command answers through its own reply; a refused one changes
    /// nothing and harms no other.
    fn apply(&mut self, command: Self::Command, moment: &Moment, batch: &mut Batch<Self::Rows>);

    /// Whether this command repeats, under its key, one that was done (A4): then its answer is
    /// given again although the revision has moved since, because of it.
    fn repeats(&self, command: &Self::Command) -> bool {
        let _ = command;
        false
    }

    /// How a command is tried that somebody wants to be tried only (A10).
    fn dry_run(&self, command: &Self::Command) -> DryRunSupport<Self> {
        let _ = command;
        DryRunSupport::Unsupported
    }

    /// Time to decide: called after each batch of commands and whenever the wake it asked for is
    /// due.
    fn round(&mut self, moment: &Moment, batch: &mut Batch<Self::Rows>) -> Wake;

    /// What gauges say of the working set as it was committed last (T6). Asked for now and then,
    /// and only where somebody collects.
    fn readings(&self, moment: &Moment) -> Vec<Reading> {
        let _ = moment;
        Vec::new()
    }

    /// How much there is to write: with nothing, nothing is committed. A command that adds to it
    /// has an audit record of its own.
    fn weight(rows: &Self::Rows) -> usize;

    /// Writes the rows of one batch. The fence and the entries follow in the same transaction.
    fn write(
        rows: Self::Rows,
        tx: &mut PgConnection,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// When a round wants to be called again without news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    OnNews,
    After(Duration),
}

/// The time and place a batch is applied at. The only clock a ledger has.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Wall time, for people and expiries that people set.
    pub now: Timestamp,
    /// Milliseconds of this process' monotonic clock: the only thing time-outs are judged by. It
    /// starts anew with the process, so after an outage everyone has a fresh full grace (B2).
    pub monotonic_ms: u64,
    /// Revision this batch will have if it changes anything.
    pub revision: u64,
    /// The writer's term.
    pub epoch: u64,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose committer it is, for telemetry.
    pub service: &'static str,
    /// Who leads, for people: service, host and process.
    pub holder: String,
    /// How long the lease lasts without renewal.
    pub lease: Duration,
    /// Commands in one transaction at most. 1 switches grouping off (for benchmarks).
    pub max_batch: usize,
    /// Commands that may wait; more are refused (I25).
    pub max_waiting: usize,
    /// Revisions for which removals are kept to be told.
    pub keep_removals: u64,
}

impl Settings {
    pub fn new(service: &'static str, holder: impl Into<String>, lease: Duration) -> Self {
        Self {
            service,
            holder: holder.into(),
            lease,
            max_batch: 4096,
            max_waiting: 16_384,
            keep_removals: 10_000,
        }
    }
}

/// The answer to a command, and the revision at which it is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed<T> {
    pub value: T,
    pub revision: u64,
}

/// A command, and the request behind it.
struct Sent<C> {
    command: C,
    origin: Option<CommandOrigin>,
    conditions: Option<Conditions>,
    /// It changes nothing, so it is answered also when nothing may be changed (R9).
    reads: bool,
}

/// On which terms a command may be applied (A10), and who is told when it may not.
struct Conditions {
    /// Only at this revision.
    if_revision: Option<u64>,
    /// Only while an entry is what its reader saw.
    if_generation: Option<Generation>,
    dry_run: bool,
    refused: oneshot::Sender<CommitError>,
}

/// An entry as somebody saw it: its generation is the revision of its last change.
#[derive(Debug, Clone)]
pub struct Generation {
    pub publication: &'static str,
    pub key: String,
    pub generation: u64,
}

/// How a command is tried (A10).
pub enum DryRunSupport<L> {
    /// Not at all.
    Unsupported,
    /// On the working set itself: the command sees that it is tried, and changes nothing of it.
    InPlace,
    /// On a copy of the working set, which is thrown away. It must share nothing with the original
    /// that the command changes.
    OnCopy(Box<L>),
}

/// Sends commands to the committer. Cheap to clone.
pub struct Handle<C> {
    queue: mpsc::Sender<Sent<C>>,
    publisher: Arc<Publisher>,
    auditor: Arc<Auditor>,
}

impl<C> Clone for Handle<C> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            publisher: self.publisher.clone(),
            auditor: self.auditor.clone(),
        }
    }
}

impl<C: Send + 'static> Handle<C> {
    /// Sends a command and waits until it is durable and visible, or refused.
    ///
    /// # Errors
    /// When this replica does not lead, too much waits, or the commit failed.
    pub async fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<Committed<T>, CommitError> {
        self.ask_if(None, command).await
    }

    /// The same, if this entry is still of this generation (A5, I9).
    ///
    /// # Errors
    /// As [`Self::ask`]; `Changed` when it is not.
    pub async fn ask_if<T: Send + 'static>(
        &self,
        if_generation: Option<Generation>,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<Committed<T>, CommitError> {
        self.publisher.leading()?;
        self.send(if_generation, false, command).await
    }

    /// Asks what only the working set knows. After the database went back in time that is what this
    /// process committed last (R9), where it has led that history until then.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn read<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<Committed<T>, CommitError> {
        self.publisher.readable()?;
        let answer = self.send(None, true, command).await;
        // Nobody was there to answer, where nothing is left of what was committed.
        answer.map_err(|error| match (error, self.publisher.leading()) {
            (CommitError::Unavailable, Err(why)) => why,
            (error, _) => error,
        })
    }

    async fn send<T: Send + 'static>(
        &self,
        if_generation: Option<Generation>,
        reads: bool,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<Committed<T>, CommitError> {
        let (reply, answer) = oneshot::channel();
        let command_origin = origin::current();
        let origin = command_origin.as_ref().map(|it| Arc::clone(&it.origin));
        let (conditions, refusal) =
            Conditions::for_request(command_origin.as_ref(), if_generation)?.unzip();
        let sent = Sent {
            command: command(Reply::new(reply)),
            origin: command_origin,
            conditions,
            reads,
        };
        self.queue.try_send(sent).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => CommitError::Busy,
            mpsc::error::TrySendError::Closed(_) => CommitError::Standby,
        })?;
        let answer = answer.instrument(metrics::commit_span());
        if let Ok(answer) = answer.await {
            if let (Ok(done), Some(origin)) = (&answer, origin) {
                origin.record_revision(done.revision);
            }
            return answer;
        }
        let refused = match refusal {
            Some(refusal) => refusal.await.ok(),
            None => None,
        };
        Err(refused.unwrap_or(CommitError::Unavailable))
    }

    pub fn publisher(&self) -> &Arc<Publisher> {
        &self.publisher
    }

    /// The audit records: who is told of refusals, and what reads them.
    pub fn auditor(&self) -> &Arc<Auditor> {
        &self.auditor
    }

    /// Commands that wait, and how many may before more are refused (I25).
    pub fn backlog(&self) -> (usize, usize) {
        let most = self.queue.max_capacity();
        (most - self.queue.capacity(), most)
    }
}

/// The task that commits; it ends when told to, after giving the lease back.
pub struct Committer {
    task: tokio::task::JoinHandle<()>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl Committer {
    /// Starts to stand for leadership with the given database and clock.
    pub fn start<L: Ledger>(
        settings: Settings,
        pool: PgPool,
        publications: &'static [&'static str],
        clock: Arc<dyn Clock>,
        context: Arc<L::Context>,
    ) -> (Self, Handle<L::Command>) {
        let publisher = Publisher::new();
        let (queue, commands) = mpsc::channel(settings.max_waiting);
        let backlog = queue.downgrade();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let auditor = Auditor::new(pool.clone(), clock.clone());
        let handle = Handle {
            queue,
            publisher: publisher.clone(),
            auditor: auditor.clone(),
        };
        let committer_metrics = metrics::CommitterMetrics::new(
            settings.service,
            (publisher.clone(), auditor.clone()),
            move || {
                let queue = backlog.upgrade();
                queue.map_or(0, |queue| queue.max_capacity() - queue.capacity())
            },
        );
        let term_context = term::TermContext {
            metrics: committer_metrics,
            settings,
            pool,
            publications,
            clock,
            publisher,
            auditor,
            context,
        };
        let task = tokio::spawn(term::run::<L>(term_context, commands, stopped));
        (Self { task, stop }, handle)
    }

    /// Ends after the commit in flight and gives the lease back.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the committer did not end in order");
        }
    }

    /// Ends at once, as a crash would: what is not committed is gone, and the lease runs out.
    pub fn kill(self) {
        self.task.abort();
    }
}
