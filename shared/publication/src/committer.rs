//! The only place where the state of a service changes.
//!
//! One task owns the working set. It takes the commands that arrived during the last transaction
//! and applies them in order. It runs the round of the service, and writes all rows and entries in
//! one transaction. Then the result becomes visible: to readers through the [`Publisher`], to each
//! caller through its [`Reply`]. If a commit fails or its outcome is unknown, the task loads the
//! working set again from the rows. Memory is never ahead of the database.

mod apply;
mod batch;
mod metrics;
mod term;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hayward_service::http::request_origin::{self, CommandOrigin};
use hayward_service::metrics::Reading;
use hayward_service::runtime::clock::Clock;
use hayward_vocabulary::Timestamp;
use sqlx::{PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

pub use self::batch::{Batch, Reply};
use crate::audit::Auditor;
use crate::{CommitError, Publisher};

/// The working set of a service and its changes. All methods except `load` and `write` are pure.
/// The time is a parameter of type [`Moment`].
pub trait Ledger: Sized + Send + 'static {
    /// A request, or an update of a neighbour.
    type Command: Send + 'static;
    /// Row changes of one batch, collected for multi-row statements.
    type Rows: Default + Send;
    /// Settings, and views for readers that the ledger refreshes.
    type Context: Send + Sync + 'static;

    /// Loads the working set from the rows of the service.
    fn load(
        tx: &mut PgConnection,
        moment: &Moment,
        context: &Arc<Self::Context>,
    ) -> impl Future<Output = Result<Self, sqlx::Error>> + Send;

    /// Applies one command and sends the response through its reply. A refused command changes
    /// nothing.
    fn apply(&mut self, command: Self::Command, moment: &Moment, batch: &mut Batch<Self::Rows>);

    /// Returns whether this command repeats a finished one with the same idempotency key. Its
    /// response is then repeated at any revision (A4).
    fn is_repeat(&self, command: &Self::Command) -> bool {
        let _ = command;
        false
    }

    /// Returns how this command supports a dry run (A10).
    fn dry_run(&self, command: &Self::Command) -> DryRunSupport<Self> {
        let _ = command;
        DryRunSupport::Unsupported
    }

    /// Makes the decisions of one round. It is called after each batch of commands, and when the
    /// requested wake is due.
    fn round(&mut self, moment: &Moment, batch: &mut Batch<Self::Rows>) -> Wake;

    /// Returns gauges of the working set after the last commit. It is called only if metrics are
    /// enabled (T6).
    fn readings(&self, moment: &Moment) -> Vec<Reading> {
        let _ = moment;
        Vec::new()
    }

    /// Returns the number of row changes. Without row changes and changed entries, no commit takes
    /// place. A command that adds row changes gets its own audit record.
    fn count_changes(rows: &Self::Rows) -> usize;

    /// Writes the rows of one batch. The committer writes entries and fence in the same
    /// transaction.
    fn write(
        rows: Self::Rows,
        tx: &mut PgConnection,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// When the next round runs without new commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    OnCommand,
    After(Duration),
}

/// Time, revision and epoch of a batch. A ledger uses no other clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Wall time, for people and for expiries that people set.
    pub now: Timestamp,
    /// Milliseconds of the monotonic clock of this process, for timeouts. It restarts with the
    /// process, so after an outage every timeout starts again.
    pub monotonic_ms: u64,
    /// Revision of this batch if it changes the state.
    pub revision: u64,
    /// Epoch of the writer's lease.
    pub epoch: u64,
}

/// Settings of a committer.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the service, for telemetry.
    pub service: &'static str,
    /// Name of this replica, for people: service, address and process.
    pub holder: String,
    /// Time after which the lease ends without a renewal.
    pub lease: Duration,
    /// Maximum number of commands in one transaction. 1 switches grouping off (for benchmarks).
    pub max_batch: usize,
    /// Maximum number of commands in the queue. Further commands are refused (I25).
    pub max_waiting: usize,
    /// Number of revisions for which removals are stored for readers.
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

/// The response to a command, with the revision at which the change is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed<T> {
    pub value: T,
    pub revision: u64,
}

/// A command in the queue.
struct QueuedCommand<C> {
    command: C,
    origin: Option<CommandOrigin>,
    conditions: Option<Conditions>,
    /// True for a read. Reads are answered even while the service is read-only (R9).
    is_read: bool,
}

/// Conditions for applying a command (A10).
struct Conditions {
    /// The only revision at which the command is applied. `None` allows any revision.
    if_revision: Option<u64>,
    /// The only generation of the entry for which the command is applied. `None` allows any
    /// generation.
    if_generation: Option<Generation>,
    dry_run: bool,
    refusal_sender: oneshot::Sender<CommitError>,
}

/// Version of an entry: the revision of its last change.
#[derive(Debug, Clone)]
pub struct Generation {
    pub publication: &'static str,
    pub key: String,
    pub generation: u64,
}

/// How a command supports dry runs (A10).
pub enum DryRunSupport<L> {
    /// The command has no dry run.
    Unsupported,
    /// The command runs on the working set. It checks [`Batch::is_dry_run`] and changes nothing.
    InPlace,
    /// The command runs on a copy of the working set. The copy must not share state that the
    /// command changes.
    OnCopy(Box<L>),
}

/// Sender of commands to the committer. It is cheap to clone.
pub struct Handle<C> {
    queue: mpsc::Sender<QueuedCommand<C>>,
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
    /// Sends a command. Returns when it is durable and visible, or refused.
    ///
    /// # Errors
    /// If this replica does not lead, the queue is full, or the commit failed.
    pub async fn execute<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<Committed<T>, CommitError> {
        self.execute_if(None, command).await
    }

    /// Sends a command like [`Self::execute`] if the entry still has this generation (A5).
    ///
    /// # Errors
    /// Same as [`Self::execute`]. `Changed` if the entry has another generation.
    pub async fn execute_if<T: Send + 'static>(
        &self,
        if_generation: Option<Generation>,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<Committed<T>, CommitError> {
        self.publisher.leading()?;
        self.send(if_generation, false, command).await
    }

    /// Reads from the working set. After the database went back in time, this reads the last commit
    /// of this process (R9).
    ///
    /// # Errors
    /// Same as [`Self::execute`].
    pub async fn read<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<Committed<T>, CommitError> {
        self.publisher.readable()?;
        let response = self.send(None, true, command).await;
        // Without a reply, this process has no committed state left.
        response.map_err(|error| match (error, self.publisher.leading()) {
            (CommitError::Unavailable, Err(cause)) => cause,
            (error, _) => error,
        })
    }

    /// Puts a command into the queue and waits for its response.
    async fn send<T: Send + 'static>(
        &self,
        if_generation: Option<Generation>,
        is_read: bool,
        command: impl FnOnce(Reply<T>) -> C,
    ) -> Result<Committed<T>, CommitError> {
        let (reply, response) = oneshot::channel();
        let command_origin = request_origin::current();
        let request = command_origin.as_ref().map(|it| Arc::clone(&it.request));
        let (conditions, refusal) =
            Conditions::for_request(command_origin.as_ref(), if_generation)?.unzip();
        let queued = QueuedCommand {
            command: command(Reply::new(reply)),
            origin: command_origin,
            conditions,
            is_read,
        };
        self.queue
            .try_send(queued)
            .map_err(|refused| match refused {
                mpsc::error::TrySendError::Full(_) => CommitError::Busy,
                mpsc::error::TrySendError::Closed(_) => CommitError::Standby,
            })?;
        let response = response.instrument(metrics::commit_span());
        if let Ok(result) = response.await {
            if let (Ok(done), Some(request)) = (&result, request) {
                request.record_revision(done.revision);
            }
            return result;
        }
        // A refused command drops its reply. The reason comes through the channel of its
        // conditions.
        let refused = match refusal {
            Some(refusal) => refusal.await.ok(),
            None => None,
        };
        Err(refused.unwrap_or(CommitError::Unavailable))
    }

    pub fn publisher(&self) -> &Arc<Publisher> {
        &self.publisher
    }

    /// Returns the audit records.
    pub fn auditor(&self) -> &Arc<Auditor> {
        &self.auditor
    }

    /// Returns the number of commands in the queue, and its capacity (I25).
    pub fn backlog(&self) -> (usize, usize) {
        let capacity = self.queue.max_capacity();
        (capacity - self.queue.capacity(), capacity)
    }
}

/// The task that commits.
pub struct Committer {
    task: tokio::task::JoinHandle<()>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl Committer {
    /// Starts the task, which tries to acquire the lease.
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
            publisher.clone(),
            auditor.clone(),
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

    /// Stops the task after the commit in progress and releases the lease.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the committer did not end in order");
        }
    }

    /// Stops the task at once, as a crash would. Uncommitted changes are lost, and the lease
    /// expires.
    pub fn kill(self) {
        self.task.abort();
    }
}
