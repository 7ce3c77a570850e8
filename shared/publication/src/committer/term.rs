//! A term of leadership: acquire the lease, load, commit batches, release.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_service::runtime::clock::Clock;
use hayward_vocabulary::Timestamp;
use serde_json::value::RawValue;
use sqlx::PgPool;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::apply::{self, LastState, answer_reads};
use super::batch::PendingReplies;
use super::metrics::CommitterMetrics;
use super::{Batch, Ledger, Moment, QueuedCommand, Settings, Wake};
use crate::audit::{AuditRecord, Auditor, Link, queries as audit_queries};
use crate::lease::{self, Term};
use crate::publisher::{Entry, EntryKey, Publisher, PublisherRole};
use crate::{CommitError, Cursor, WentBack, queries};

/// Pause between two prunings of old audit records. The pause is shorter while more records are
/// due.
const PRUNE_INTERVAL: Duration = Duration::from_hours(1);
const SHORT_PRUNE_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that a term needs besides the ledger.
pub(super) struct TermContext<L: Ledger> {
    pub metrics: CommitterMetrics,
    pub settings: Settings,
    pub pool: PgPool,
    pub publications: &'static [&'static str],
    pub clock: Arc<dyn Clock>,
    pub publisher: Arc<Publisher>,
    pub auditor: Arc<Auditor>,
    pub context: Arc<L::Context>,
}

/// Why a term ended.
enum TermEnd {
    Stopped,
    /// Another replica has taken the lease.
    Deposed,
    /// The database went back in time (R9).
    WentBack,
    /// The database failed. The working set must be loaded again.
    DatabaseFailed(sqlx::Error),
}

/// Runs terms until the committer is stopped.
pub(super) async fn run<L: Ledger>(
    context: TermContext<L>,
    mut commands: mpsc::Receiver<QueuedCommand<L::Command>>,
    mut stop: watch::Receiver<bool>,
) {
    let pause = (context.settings.lease / 4).min(Duration::from_millis(500));
    let metrics = &context.metrics;
    let mut last_term = None;
    // The last committed working set, for reads after the database went back in time (R9).
    let mut last_state: Option<LastState<L>> = None;
    loop {
        let outcome = try_lead(&context, &mut last_term).await;
        if !matches!(context.publisher.role(), PublisherRole::WentBack(_)) {
            last_state = None;
        }
        match outcome {
            Ok(Some(term)) => {
                metrics.begin_term(term.epoch);
                info!(
                    holder = context.settings.holder,
                    epoch = term.epoch,
                    "leading"
                );
                let end = serve(&context, term, &mut commands, &mut stop, &mut last_state).await;
                context.publisher.step_down();
                metrics.end_term();
                // Drops commands that this term cannot answer.
                while commands.try_recv().is_ok() {}
                let released = lease::release(&context.pool, term.epoch).await;
                match end {
                    TermEnd::Stopped => return,
                    TermEnd::WentBack => continue,
                    TermEnd::Deposed => {
                        metrics.count_fenced_write();
                        warn!(epoch = term.epoch, "deposed");
                    }
                    TermEnd::DatabaseFailed(error) => {
                        metrics.count_retry(if matches!(error, sqlx::Error::Protocol(_)) {
                            "panic"
                        } else {
                            "failed"
                        });
                        warn!(%error, ?released, "the database failed; reading everything again");
                    }
                }
            }
            Ok(None) => {}
            Err(error) => {
                metrics.count_retry("lease_unknown");
                warn!(%error, "cannot ask for the lease");
            }
        }
        tokio::select! {
            () = answer_reads(&mut commands, &mut last_state) => return,
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Tries to acquire the lease unless the database went back in time (R9).
async fn try_lead<L: Ledger>(
    context: &TermContext<L>,
    last_term: &mut Option<Term>,
) -> Result<Option<Term>, sqlx::Error> {
    if let PublisherRole::WentBack(found) = context.publisher.role() {
        let history = lease::read_history(&context.pool).await?;
        if history.lineage != found.lineage {
            context.publisher.accept_new_history();
        } else if history.went_back.is_none() {
            lease::stop_history(&context.pool, found.lineage, &found.evidence).await?;
        }
        return Ok(None);
    }
    let settings = &context.settings;
    let acquisition = lease::acquire(&context.pool, &settings.holder, settings.lease);
    let Some(term) = context
        .metrics
        .time_operation("acquire lease", acquisition)
        .await?
    else {
        let history = lease::read_history(&context.pool).await?;
        if let Some(evidence) = history.went_back {
            let lineage = history.lineage;
            context
                .publisher
                .stop_writing(WentBack { lineage, evidence });
        }
        return Ok(None);
    };
    let seen_revision = i64::try_from(context.publisher.revision()).unwrap_or(i64::MAX);
    if let Some(found) = lease::detect_older_rows(&term, last_term.as_ref(), seen_revision) {
        context.publisher.stop_writing(found);
        return Ok(None);
    }
    *last_term = Some(term);
    Ok(Some(term))
}

/// Leads for one term: loads the working set, and commits batches until the term ends.
async fn serve<L: Ledger>(
    context: &TermContext<L>,
    term: Term,
    commands: &mut mpsc::Receiver<QueuedCommand<L::Command>>,
    stop: &mut watch::Receiver<bool>,
    last_state: &mut Option<LastState<L>>,
) -> TermEnd {
    let mut writer = Writer::new(context, term);
    let loading = context
        .metrics
        .time_operation("load working set", writer.load());
    let mut ledger = match loading.await {
        Ok(ledger) => ledger,
        Err(error) => return TermEnd::DatabaseFailed(error),
    };
    context
        .publisher
        .set_lease(u64::try_from(term.epoch).unwrap_or(0), term.until);
    let mut queued = Vec::new();
    let mut wake = Wake::After(Duration::ZERO);
    loop {
        let limit = context.settings.max_batch;
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return TermEnd::Stopped,
            count = commands.recv_many(&mut queued, limit) => {
                if count == 0 {
                    return TermEnd::Stopped;
                }
            }
            () = tokio::time::sleep(writer.pause(wake)) => {}
        }
        let moment = writer.moment();
        if matches!(context.publisher.role(), PublisherRole::WentBack(_)) {
            *last_state = Some(LastState { ledger, moment });
            return TermEnd::WentBack;
        }
        let mut batch = Batch::default();
        context.metrics.record_batch_size(queued.len());
        let publisher = &context.publisher;
        match apply::apply_all(&mut ledger, &mut queued, publisher, &moment, &mut batch) {
            Ok(next) => wake = next,
            // A panic fails only this batch: the working set is loaded again (F4).
            Err(panicked) => return TermEnd::DatabaseFailed(panicked),
        }
        let changed = L::count_changes(&batch.rows) > 0 || !batch.is_unchanged();
        match writer.commit(batch, moment.now).await {
            Ok(true) => {}
            Ok(false) => {
                // After a change, the working set is ahead of the rows and cannot be used.
                *last_state = (!changed).then_some(LastState { ledger, moment });
                return TermEnd::Deposed;
            }
            Err(error) => return TermEnd::DatabaseFailed(error),
        }
        context
            .metrics
            .read_ledger_gauges(|| ledger.readings(&moment));
    }
}

/// Writer of batches under one term.
struct Writer<'a, L: Ledger> {
    context: &'a TermContext<L>,
    term: Term,
    started: Instant,
    /// Revision of the last commit.
    revision: i64,
    /// The last audit record.
    chain_end: Link,
    /// Time of the next pruning of old audit records.
    prune_at: Instant,
}

impl<'a, L: Ledger> Writer<'a, L> {
    fn new(context: &'a TermContext<L>, term: Term) -> Self {
        let started = Instant::now();
        Self {
            context,
            term,
            started,
            revision: term.revision,
            chain_end: Link::default(),
            prune_at: started + PRUNE_INTERVAL,
        }
    }

    /// Returns the pause before the next batch without commands.
    fn pause(&self, wake: Wake) -> Duration {
        let lease = self.context.settings.lease;
        match wake {
            // The lease has expired during a commit. It is renewed at once if it is free.
            _ if self.term.until <= Instant::now() => Duration::ZERO,
            Wake::After(pause) => pause.min(lease / 3),
            Wake::OnCommand => lease / 3,
        }
    }

    /// Returns the time, revision and epoch of the next batch.
    fn moment(&self) -> Moment {
        Moment {
            now: self.context.clock.now(),
            monotonic_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            revision: u64::try_from(self.revision + 1).unwrap_or(0),
            epoch: u64::try_from(self.term.epoch).unwrap_or(0),
        }
    }

    /// Loads the working set and the published entries from one snapshot.
    async fn load(&mut self) -> Result<L, sqlx::Error> {
        let mut tx = self.context.pool.begin().await?;
        sqlx::query!("set transaction isolation level repeatable read")
            .execute(&mut *tx)
            .await?;
        let ledger = L::load(&mut tx, &self.moment(), &self.context.context).await?;
        let stored = queries::load_entries(&mut tx).await?;
        let positions = queries::load_followed(&mut tx).await?;
        self.chain_end = audit_queries::head(&mut tx).await?;
        self.context.metrics.set_last_record(self.chain_end.number);
        tx.commit().await?;
        self.context.publisher.set_positions(positions);
        let revision = u64::try_from(self.revision).unwrap_or(0);
        let entries = stored.into_iter().filter_map(|row| {
            // Entries of an unknown publication stay in the table but are ignored.
            let name = self
                .context
                .publications
                .iter()
                .find(|name| **name == row.publication)?;
            let body = row
                .body
                .and_then(|body| RawValue::from_string(body).ok())
                .map(Into::into);
            let revision = u64::try_from(row.revision).unwrap_or(0);
            let key = EntryKey {
                publication: name,
                scope: row.scope,
                key: row.key,
            };
            Some((revision, Entry { key, body }))
        });
        self.context.publisher.replace(
            Cursor {
                lineage: self.term.lineage,
                revision,
            },
            entries,
            revision.saturating_sub(self.context.settings.keep_removals),
        );
        Ok(ledger)
    }

    /// Commits a batch. Returns false if the lease is lost.
    async fn commit(
        &mut self,
        mut batch: Batch<L::Rows>,
        now: Timestamp,
    ) -> Result<bool, sqlx::Error> {
        self.prune_when_due().await?;
        let changed = batch.changed_entries(&self.context.publisher);
        let attribution = batch.take_attribution();
        let (rows, positions, replies) = batch.into_parts();
        let refusals = self.context.auditor.take_refusals();
        if changed.is_empty() && L::count_changes(&rows) == 0 {
            replies.send(&Ok(u64::try_from(self.revision).unwrap_or(0)));
            return self.commit_refusals(refusals).await;
        }
        let revision = u64::try_from(self.revision + 1).unwrap_or(0);
        let attribution = attribution.into_records(&self.context.settings.holder, revision, now);
        let (records, chain_end) = self.chain_records(&refusals, attribution);
        let metrics = &self.context.metrics;
        let writing = self.write(rows, &changed, &records, &positions);
        let done = metrics.time_transaction(writing).await;
        if !matches!(done, Ok(true)) {
            self.context.auditor.restore(refusals);
        }
        match done {
            Ok(true) => {}
            Ok(false) => {
                replies.send(&Err(CommitError::Standby));
                return Ok(false);
            }
            Err(error) => {
                replies.send(&Err(CommitError::Unavailable));
                return Err(error);
            }
        }
        self.chain_end = chain_end;
        self.context.metrics.count_records(&records);
        self.make_visible(changed, replies);
        Ok(true)
    }

    /// Appends records to the chain, refusals first. Returns them with the new end of the chain.
    fn chain_records(
        &self,
        refusals: &[AuditRecord],
        attribution: Vec<AuditRecord>,
    ) -> (Vec<AuditRecord>, Link) {
        let mut chain_end = self.chain_end;
        let revision = u64::try_from(self.revision).unwrap_or(0);
        let refusals = refusals.iter().cloned();
        let refusals = refusals.map(|record| AuditRecord { revision, ..record });
        let records = refusals
            .chain(attribution)
            .map(|record| chain_end.append(record));
        (records.collect(), chain_end)
    }

    async fn prune_when_due(&mut self) -> Result<(), sqlx::Error> {
        if Instant::now() >= self.prune_at {
            let mut connection = self.context.pool.acquire().await?;
            let pruned = audit_queries::prune(&mut connection).await?;
            // The next pruning follows soon while more records are due.
            self.prune_at = Instant::now()
                + if pruned > 0 {
                    SHORT_PRUNE_INTERVAL
                } else {
                    PRUNE_INTERVAL
                };
        }
        Ok(())
    }

    /// Renews the lease. Writes refusals in a transaction that raises no revision.
    async fn commit_refusals(&mut self, refusals: Vec<AuditRecord>) -> Result<bool, sqlx::Error> {
        if refusals.is_empty() {
            return self.renew_when_due().await;
        }
        let (records, chain_end) = self.chain_records(&refusals, Vec::new());
        let done = self.append(&records).await;
        match done {
            Ok(true) => {
                self.chain_end = chain_end;
                self.context.metrics.count_records(&records);
            }
            _ => self.context.auditor.restore(refusals),
        }
        done
    }

    /// Writes audit records alone. Returns false if the lease is lost.
    async fn append(&mut self, records: &[AuditRecord]) -> Result<bool, sqlx::Error> {
        let (started, lease) = (Instant::now(), self.context.settings.lease);
        let mut tx = self.context.pool.begin().await?;
        audit_queries::append(&mut tx, records).await?;
        if !lease::renew(&mut *tx, self.term.epoch, self.revision, lease).await? {
            tx.rollback().await?;
            return Ok(false);
        }
        tx.commit().await?;
        self.extend_lease(started);
        Ok(true)
    }

    /// Writes everything that belongs to one commit, in one transaction. Returns false if the lease
    /// is lost.
    async fn write(
        &mut self,
        rows: L::Rows,
        changed: &[Entry],
        records: &[AuditRecord],
        positions: &BTreeMap<&'static str, Cursor>,
    ) -> Result<bool, sqlx::Error> {
        let started = Instant::now();
        let mut tx = self.context.pool.begin().await?;
        self.context
            .metrics
            .record_connection_wait(started.elapsed());
        L::write(rows, &mut tx).await?;
        if !changed.is_empty() {
            queries::write_entries(&mut tx, self.revision + 1, changed).await?;
        }
        queries::write_followed(&mut tx, positions).await?;
        audit_queries::append(&mut tx, records).await?;
        if let Some(revision) = self.removals_to_prune() {
            queries::prune_removals(&mut tx, i64::try_from(revision).unwrap_or(0)).await?;
        }
        let lease = self.context.settings.lease;
        if !lease::fence(&mut tx, self.term.epoch, self.revision + 1, lease).await? {
            tx.rollback().await?;
            return Ok(false);
        }
        tx.commit().await?;
        self.context.metrics.record_commit();
        self.extend_lease(started);
        Ok(true)
    }

    /// Publishes a commit and answers its callers.
    fn make_visible(&mut self, changed: Vec<Entry>, replies: PendingReplies) {
        let prune_to = self.removals_to_prune();
        self.revision += 1;
        let revision = u64::try_from(self.revision).unwrap_or(0);
        self.context.publisher.advance(revision, changed, prune_to);
        replies.send(&Ok(revision));
    }

    /// Returns the revision up to which removals are now deleted from rows and memory. Returns
    /// `None` in most commits.
    fn removals_to_prune(&self) -> Option<u64> {
        // Removals are pruned in steps of a quarter of the retained revisions.
        let retained = self.context.settings.keep_removals.max(1);
        let next = u64::try_from(self.revision + 1).unwrap_or(0);
        (next > retained && next.is_multiple_of(retained / 4 + 1)).then(|| next - retained)
    }

    async fn renew_when_due(&mut self) -> Result<bool, sqlx::Error> {
        let lease = self.context.settings.lease;
        let started = Instant::now();
        if self.term.until.saturating_duration_since(started) > lease * 2 / 3 {
            return Ok(true);
        }
        let renewal = lease::renew(&self.context.pool, self.term.epoch, self.revision, lease);
        let renewed = self
            .context
            .metrics
            .time_operation("renew lease", renewal)
            .await?;
        if renewed {
            self.extend_lease(started);
        }
        Ok(renewed)
    }

    fn extend_lease(&mut self, requested_at: Instant) {
        self.term.until = requested_at + self.context.settings.lease;
        let epoch = u64::try_from(self.term.epoch).unwrap_or(0);
        self.context.publisher.set_lease(epoch, self.term.until);
    }
}
