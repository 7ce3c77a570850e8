//! Metrics that all five services have: leadership, the database, publications and invariants.

use super::super::{Attribute, Group, Metric};
use super::{ALL_SERVICES, SERVICE};

pub static PUBLICATION: Attribute =
    Attribute::bounded("hayward.publication", "names of publications");
/// Reason why a reader with a cursor received a full update. Either the missed changes are no
/// longer stored, or the cursor belongs to another history.
pub static FULL_UPDATE_CAUSE: Attribute =
    Attribute::listed("hayward.publication.cut", &["forgotten", "other_history"]);
pub static RETRY: Attribute = Attribute::listed(
    "hayward.database.retry.cause",
    &["failed", "panic", "lease_unknown"],
);
pub static AUDIT_OUTCOME: Attribute =
    Attribute::listed("hayward.audit.outcome", &["committed", "refused"]);
/// Reason why a request with an audit record was refused, derived from the response.
pub static AUDIT_CAUSE: Attribute = Attribute::listed(
    "hayward.audit.cause",
    &[
        "unauthenticated",
        "forbidden",
        "absent",
        "conflict",
        "too_much",
        "invalid",
    ],
);
pub static INVARIANT: Attribute = Attribute::bounded(
    "hayward.invariant.id",
    "numbers of invariants, `I1` to `I26`",
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

pub static SUBSCRIBERS: Metric = Metric::gauge(
    "hayward.publication.subscribers",
    "{reader}",
    Group::Stream,
    "readers that wait for changes of a publication",
)
.with_attributes(&[&SERVICE, &PUBLICATION])
.reported_by(ALL_SERVICES);
pub static FOLLOWER_LAG: Metric = Metric::gauge(
    "hayward.follower.lag",
    "s",
    Group::Stream,
    "time for which a neighbour's answer is overdue; 0 when it is in time",
)
.with_attributes(&[&SERVICE, &PUBLICATION])
.reported_by(ALL_SERVICES);
pub static FULL_UPDATES: Metric = Metric::counter(
    "hayward.publication.cut_readers",
    "{reader}",
    Group::Stream,
    "answers with the whole publication to a reader with a position",
)
.with_attributes(&[&SERVICE, &PUBLICATION, &FULL_UPDATE_CAUSE])
.reported_by(ALL_SERVICES)
.rare();

pub static INVARIANT_HOLDS: Metric = Metric::gauge(
    "hayward.invariant.holds",
    "1",
    Group::Invariants,
    "one when the invariant holds, zero when it is broken; absent when it is not evaluated",
)
.with_attributes(&[&SERVICE, &INVARIANT])
.reported_by(ALL_SERVICES);
pub static INVARIANT_VIOLATIONS: Metric = Metric::gauge(
    "hayward.invariant.violations",
    "{violation}",
    Group::Invariants,
    "number of violations of the invariant",
)
.with_attributes(&[&SERVICE, &INVARIANT])
.reported_by(ALL_SERVICES);
pub static INVARIANT_SINCE_GOOD: Metric = Metric::gauge(
    "hayward.invariant.since_good",
    "s",
    Group::Invariants,
    "time since the invariant last held",
)
.with_attributes(&[&SERVICE, &INVARIANT])
.reported_by(ALL_SERVICES);

pub static AUDIT_RECORDS: Metric = Metric::counter(
    "hayward.audit.records",
    "{record}",
    Group::Audit,
    "audit records of changes and refusals, written by the leader (S24)",
)
.with_attributes(&[&SERVICE, &AUDIT_OUTCOME])
.reported_by(ALL_SERVICES);
pub static AUDIT_REFUSALS: Metric = Metric::counter(
    "hayward.audit.refusals",
    "{request}",
    Group::Audit,
    "refused requests in the audit records; one record may count several",
)
.with_attributes(&[&SERVICE, &AUDIT_CAUSE])
.reported_by(ALL_SERVICES);
pub static AUDIT_LENGTH: Metric = Metric::gauge(
    "hayward.audit.length",
    "{record}",
    Group::Audit,
    "number of the last audit record: the length of the chain with its removed part",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES);
pub static AUDIT_UNVERIFIED: Metric = Metric::gauge(
    "hayward.audit.unverified",
    "{record}",
    Group::Audit,
    "audit records that are not verified yet; `hayward.invariant.holds` of `I19` has the result \
     for the others",
)
.with_attributes(&[&SERVICE])
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
    &SUBSCRIBERS,
    &FOLLOWER_LAG,
    &FULL_UPDATES,
    &INVARIANT_HOLDS,
    &INVARIANT_VIOLATIONS,
    &INVARIANT_SINCE_GOOD,
    &AUDIT_RECORDS,
    &AUDIT_REFUSALS,
    &AUDIT_LENGTH,
    &AUDIT_UNVERIFIED,
];
