//! Metrics of a committer and its ledger (T6).

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_service::metrics::catalogue::{
    AUDIT_CAUSE, AUDIT_LENGTH, AUDIT_OUTCOME, AUDIT_RECORDS, AUDIT_REFUSALS, AUDIT_UNVERIFIED,
    COMMITTER_BATCH, COMMITTER_WAITING, DB_DURATION, DB_POOL, DB_RETRIES, DB_SUMMARY, DB_SYSTEM,
    DB_WAIT, EPOCH, FENCED_WRITES, LEADER_CHANGES, LEADING, RETRY, SERVICE, SINCE_COMMIT,
    TRANSACTION_AGE,
};
use hayward_service::metrics::{Reading, gauges};
use hayward_service::telemetry::{metrics_enabled, traces_enabled};
use opentelemetry::KeyValue;
use parking_lot::Mutex;

use crate::audit::{AuditOutcome, AuditRecord, Auditor};
use crate::publisher::Publisher;

/// Minimum time between two reads of the gauges.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(500);
/// The pause between two reads lasts at least this many times the duration of the last read.
const PAUSE_FACTOR: u32 = 100;
/// Names of the parts that have gauges: the committer and its ledger.
const COMMITTER: &str = "committer";
const LEDGER: &str = "ledger";

/// Causes of refusals. The catalogue has the same list.
const CAUSES: [&str; 6] = [
    "unauthenticated",
    "forbidden",
    "absent",
    "conflict",
    "too_much",
    "invalid",
];

/// Returns the cause for the status of a response. A record for many refusals has no status.
fn refusal_cause(status: Option<u16>) -> &'static str {
    match status {
        Some(401) => "unauthenticated",
        Some(403) => "forbidden",
        Some(404 | 410) => "absent",
        Some(409 | 412 | 428) => "conflict",
        None | Some(413 | 429) => "too_much",
        Some(_) => "invalid",
    }
}

/// Creates the span of a commit within the span of a request. Returns a disabled span outside a
/// request.
pub(super) fn commit_span() -> tracing::Span {
    if traces_enabled() && !tracing::Span::current().is_none() {
        tracing::info_span!("commit")
    } else {
        tracing::Span::none()
    }
}

#[derive(Default)]
struct Progress {
    /// Epoch of the term. `None` while another replica leads.
    epoch: Option<u64>,
    last_commit: Option<Instant>,
    /// Start of the transaction in progress. `None` if there is none.
    transaction_start: Option<Instant>,
    last_read: Option<Instant>,
    /// Duration of the last read of the gauges.
    read_duration: Duration,
    /// Number of the last audit record.
    last_audit_record: u64,
}

struct Shared {
    service: &'static str,
    publisher: Arc<Publisher>,
    backlog: Box<dyn Fn() -> usize + Send + Sync>,
    auditor: Arc<Auditor>,
    progress: Mutex<Progress>,
}

impl Shared {
    /// Returns the readings. The exporter calls it, so that ages grow even while the committer
    /// hangs.
    fn readings(&self) -> Vec<Reading> {
        let service_attribute = || vec![SERVICE.with(self.service)];
        let seconds = |since: Option<Instant>| since.map_or(0.0, |it| it.elapsed().as_secs_f64());
        let (epoch, since_commit, transaction_age, last_audit_record) = {
            let progress = self.progress.lock();
            (
                progress.epoch,
                seconds(progress.last_commit),
                seconds(progress.transaction_start),
                progress.last_audit_record,
            )
        };
        let Some(epoch) = epoch else {
            return vec![LEADING.count_reading(0, service_attribute())];
        };
        let waiting = u64::try_from((self.backlog)()).unwrap_or(u64::MAX);
        let mut readings = vec![
            LEADING.count_reading(1, service_attribute()),
            EPOCH.count_reading(epoch, service_attribute()),
            SINCE_COMMIT.reading(since_commit, service_attribute()),
            TRANSACTION_AGE.reading(transaction_age, service_attribute()),
            COMMITTER_WAITING.count_reading(waiting, service_attribute()),
            AUDIT_LENGTH.count_reading(last_audit_record, service_attribute()),
        ];
        // The position is unknown before the first check.
        if let Some(checked_to) = self.auditor.checked_to() {
            let behind = last_audit_record.saturating_sub(checked_to);
            readings.push(AUDIT_UNVERIFIED.count_reading(behind, service_attribute()));
        }
        readings.extend(self.publisher.readings(self.service));
        readings
    }
}

/// Metrics of one committer.
pub(super) struct CommitterMetrics(Arc<Shared>);

impl CommitterMetrics {
    pub fn new(
        service: &'static str,
        publisher: Arc<Publisher>,
        auditor: Arc<Auditor>,
        backlog: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Self {
        publisher.set_service(service);
        let shared = Arc::new(Shared {
            service,
            publisher,
            backlog: Box::new(backlog),
            auditor,
            progress: Mutex::default(),
        });
        // With a weak pointer, a dropped committer has no readings.
        let weak = Arc::downgrade(&shared);
        gauges::set_live(service, COMMITTER, move || {
            weak.upgrade()
                .map_or_else(Vec::new, |shared| shared.readings())
        });
        Self(shared)
    }

    fn service_attribute(&self) -> KeyValue {
        SERVICE.with(self.0.service)
    }

    /// Records that a term begins.
    pub fn begin_term(&self, epoch: i64) {
        LEADER_CHANGES.add(1, &[self.service_attribute()]);
        FENCED_WRITES.add(0, &[self.service_attribute()]);
        for outcome in [AuditOutcome::Committed, AuditOutcome::Refused] {
            AUDIT_RECORDS.add(
                0,
                &[
                    self.service_attribute(),
                    AUDIT_OUTCOME.with(outcome.as_str()),
                ],
            );
        }
        for cause in CAUSES {
            AUDIT_REFUSALS.add(0, &[self.service_attribute(), AUDIT_CAUSE.with(cause)]);
        }
        *self.0.progress.lock() = Progress {
            epoch: u64::try_from(epoch).ok(),
            last_commit: Some(Instant::now()),
            ..Progress::default()
        };
    }

    /// Records that a term is over.
    pub fn end_term(&self) {
        *self.0.progress.lock() = Progress::default();
        gauges::clear(self.0.service, LEDGER);
    }

    pub fn count_fenced_write(&self) {
        FENCED_WRITES.add(1, &[self.service_attribute()]);
    }

    /// Sets the number of the last audit record.
    pub fn set_last_record(&self, number: u64) {
        self.0.progress.lock().last_audit_record = number;
    }

    /// Counts committed audit records.
    pub fn count_records(&self, records: &[AuditRecord]) {
        for record in records {
            let outcome = AUDIT_OUTCOME.with(record.outcome.as_str());
            AUDIT_RECORDS.add(1, &[self.service_attribute(), outcome]);
            if record.outcome == AuditOutcome::Refused {
                let cause = AUDIT_CAUSE.with(refusal_cause(record.status));
                AUDIT_REFUSALS.add(record.requests, &[self.service_attribute(), cause]);
            }
        }
        if let Some(last) = records.last() {
            self.set_last_record(last.number);
        }
    }

    pub fn count_retry(&self, cause: &'static str) {
        DB_RETRIES.add(1, &[self.service_attribute(), RETRY.with(cause)]);
    }

    pub fn record_batch_size(&self, commands: usize) {
        let commands = u32::try_from(commands).unwrap_or(u32::MAX);
        if commands > 0 {
            COMMITTER_BATCH.record(f64::from(commands), &[self.service_attribute()]);
        }
    }

    pub fn record_connection_wait(&self, time: Duration) {
        DB_WAIT.record_duration(time, &[DB_POOL.with(self.0.service)]);
    }

    pub fn record_commit(&self) {
        self.0.progress.lock().last_commit = Some(Instant::now());
    }

    /// Measures the duration of one database operation.
    pub async fn time_operation<T>(
        &self,
        summary: &'static str,
        future: impl Future<Output = T>,
    ) -> T {
        let started = Instant::now();
        let output = future.await;
        let attributes = [DB_SYSTEM.with("postgresql"), DB_SUMMARY.with(summary)];
        DB_DURATION.record_duration(started.elapsed(), &attributes);
        output
    }

    pub async fn time_transaction<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.progress.lock().transaction_start = Some(Instant::now());
        let output = self.time_operation("commit batch", future).await;
        self.0.progress.lock().transaction_start = None;
        output
    }

    /// Reads the gauges of the ledger unless the last read was recent.
    pub fn read_ledger_gauges(&self, ledger: impl FnOnce() -> Vec<Reading>) {
        if !metrics_enabled() {
            return;
        }
        {
            let mut progress = self.0.progress.lock();
            let pause = MIN_READ_INTERVAL.max(progress.read_duration * PAUSE_FACTOR);
            if progress
                .last_read
                .is_some_and(|last_read| last_read.elapsed() < pause)
            {
                return;
            }
            progress.last_read = Some(Instant::now());
        }
        let started = Instant::now();
        gauges::set(self.0.service, LEDGER, ledger());
        self.0.progress.lock().read_duration = started.elapsed();
    }
}
