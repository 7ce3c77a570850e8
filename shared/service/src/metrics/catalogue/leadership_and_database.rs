//! Metrics of leadership and of the database. All five services have them.

use super::super::{Attribute, Group, Metric};
use super::{ALL_SERVICES, SERVICE};

/// Reason of a retry: a failed transaction, a panic in a command, or an unknown outcome of a
/// request for the lease.
pub static RETRY: Attribute = Attribute::listed(
    "hayward.database.retry.cause",
    &["failed", "panic", "lease_unknown"],
);
/// Name of the connection pool.
pub static DB_POOL: Attribute = Attribute::listed("db.client.connection.pool.name", ALL_SERVICES);
pub static DB_SYSTEM: Attribute = Attribute::listed("db.system.name", &["postgresql"]);
pub static DB_SUMMARY: Attribute = Attribute::bounded(
    "db.query.summary",
    "`commit batch`, `load working set`, `acquire lease`, `renew lease`, and the first \
     words of single statements, without parameters",
);

/// Bucket boundaries for counts.
const COUNTS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0,
];

pub static LEADING: Metric = Metric::gauge(
    "hayward.leader.leading",
    "1",
    Group::Leadership,
    "one while this replica leads, zero while it is on standby",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES);
pub static EPOCH: Metric = Metric::gauge(
    "hayward.leader.epoch",
    "{term}",
    Group::Leadership,
    "number of the leader's term; reported by the leader",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES);
pub static LEADER_CHANGES: Metric = Metric::counter(
    "hayward.leader.changes",
    "{term}",
    Group::Leadership,
    "terms of leadership that this replica began",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES);
pub static FENCED_WRITES: Metric = Metric::counter(
    "hayward.leader.fenced_writes",
    "{write}",
    Group::Leadership,
    "commits that were rolled back because another replica had taken over (I7)",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES);
pub static SINCE_COMMIT: Metric = Metric::gauge(
    "hayward.leader.since_commit",
    "s",
    Group::Leadership,
    "time since the leader's last commit or the begin of its term; grows while nothing changes",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES);

pub static DB_DURATION: Metric = Metric::histogram(
    "db.client.operation.duration",
    "s",
    Group::Database,
    "duration of transactions of the committer and of single statements",
)
.with_attributes(&[&DB_SYSTEM, &DB_SUMMARY])
.reported_by(ALL_SERVICES);
pub static DB_WAIT: Metric = Metric::histogram(
    "db.client.connection.wait_time",
    "s",
    Group::Database,
    "time that the committer waits for a connection and the begin of its transaction",
)
.with_attributes(&[&DB_POOL])
.reported_by(ALL_SERVICES);
pub static DB_RETRIES: Metric = Metric::counter(
    "hayward.database.retries",
    "{retry}",
    Group::Database,
    "reloads of a leader's working set, and failed requests for the lease",
)
.with_attributes(&[&SERVICE, &RETRY])
.reported_by(ALL_SERVICES)
.rare();
pub static TRANSACTION_AGE: Metric = Metric::gauge(
    "hayward.database.transaction_age",
    "s",
    Group::Database,
    "age of the transaction in flight; 0 when there is none",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES);
pub static COMMITTER_WAITING: Metric = Metric::gauge(
    "hayward.committer.waiting",
    "{command}",
    Group::Database,
    "commands that wait for a commit (I25)",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES);
pub static COMMITTER_BATCH: Metric = Metric::histogram(
    "hayward.committer.batch",
    "{command}",
    Group::Database,
    "commands in one commit",
)
.with_attributes(&[&SERVICE])
.with_boundaries(COUNTS)
.reported_by(ALL_SERVICES);

pub(super) static ALL: &[&Metric] = &[
    &LEADING,
    &EPOCH,
    &LEADER_CHANGES,
    &FENCED_WRITES,
    &SINCE_COMMIT,
    &DB_DURATION,
    &DB_WAIT,
    &DB_RETRIES,
    &TRANSACTION_AGE,
    &COMMITTER_WAITING,
    &COMMITTER_BATCH,
];
