//! Metrics of publications, invariants and audit records. All five services have them.

use super::super::{Attribute, Group, Metric};
use super::{ALL_SERVICES, SERVICE};

pub static PUBLICATION: Attribute =
    Attribute::bounded("hayward.publication", "names of publications");
/// Reason why a reader with a cursor received a full update. Either the missed changes are no
/// longer stored, or the cursor belongs to another history.
pub static FULL_UPDATE_CAUSE: Attribute =
    Attribute::listed("hayward.publication.cut", &["forgotten", "other_history"]);
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
