//! Metrics of rm-scheduler. Events are counted as they happen. Gauges are computed from the working
//! set at intervals (T6).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_job_converter_api::DemandEntry;
use hayward_publication::{Batch, Followed, Moment};
use hayward_rm_scheduler_api::VacateReason;
use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_domain::budget::HOUR_MS;
use hayward_rm_scheduler_domain::check::Violation;
use hayward_rm_scheduler_domain::snapshot::Snapshot;
use hayward_rm_scheduler_domain::{Verdict, plan};
use hayward_rm_scheduler_policy::wait_target;
use hayward_service::metrics::Reading;
use hayward_service::metrics::catalogue;
use hayward_service::trace::{self, SpanBuilder};
use hayward_vocabulary::{
    AllocationId, Exit, ExitCause, NodeName, Receipt, Timestamp, UserName, WorkId,
};
use serde::Serialize;

use crate::NAME;
use crate::context::shared_view::NewestRound;
use crate::model::AllocationRecord;
use crate::node_space::NodeSpace;
use crate::round_trace;
use crate::store::Rows;

/// Maximum number of users with a metric series of their own. All other users share one series
/// (T3).
const MAX_USERS: usize = 50;
/// Name of the series of all other users.
const OTHER_USERS: &str = "other";
/// Attribute value for an unknown class or pool.
const UNKNOWN: &str = "unknown";

/// Returns the name of an enum variant in JSON, without the fields of the variant.
fn wire_name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Object(fields)) => {
            let first = fields.into_iter().next();
            first.map_or_else(|| UNKNOWN.to_owned(), |(word, _)| word)
        }
        _ => UNKNOWN.to_owned(),
    }
}

fn pool_of(snapshot: &Snapshot, node: &NodeName) -> String {
    let node = snapshot.nodes.get(node);
    node.map_or_else(|| UNKNOWN.to_owned(), |node| node.pool.clone())
}

pub(crate) fn count_refusal(violation: &Violation) {
    let cause = wire_name(&violation.fault);
    catalogue::ROUND_REFUSALS.add(1, &[catalogue::REFUSAL.with(cause)]);
}

pub(crate) fn count_grant(snapshot: &Snapshot, grant: &plan::Grant) {
    let attributes = [
        catalogue::CLASS.with(grant.class.to_string()),
        catalogue::POOL.with(pool_of(snapshot, &grant.node)),
    ];
    catalogue::ROUND_PLACEMENTS.add(1, &attributes);
}

/// Returns the trace span of an allocation.
pub(crate) fn allocation_span(
    id: &AllocationId,
    work: &WorkId,
    grant: &plan::Grant,
) -> SpanBuilder {
    SpanBuilder::new(NAME, "allocation")
        .with_attribute("hayward.allocation.id", id.to_string())
        .with_attribute("hayward.work.id", work.to_string())
        .with_attribute("hayward.user", grant.user.to_string())
        .with_attribute("hayward.class", grant.class.to_string())
        .with_attribute("hayward.node.name", grant.node.to_string())
}

pub(crate) fn count_vacate(reason: VacateReason) {
    catalogue::PREEMPTION_ALLOCATIONS.add(1, &[catalogue::VACATE_CAUSE.with(wire_name(&reason))]);
}

/// Recent preemptions, as pairs of preempted work and beneficiary. A later preemption of the
/// beneficiary for the preempted work reveals work that preempts back and forth.
#[derive(Debug, Default)]
pub(crate) struct PreemptionPairs {
    /// Oldest first.
    recent: VecDeque<PreemptionPair>,
}

#[derive(Debug)]
struct PreemptionPair {
    at_unix_ms: i64,
    preempted: WorkId,
    beneficiary: WorkId,
}

impl PreemptionPairs {
    /// Maximum number of remembered pairs.
    const MAX_PAIRS: usize = 4_096;

    pub fn new<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> Self {
        catalogue::PREEMPTION_PING_PONG.add(0, &[]);
        catalogue::PREEMPTION_LOST.add(0, &[]);
        let mut pairs = Self::default();
        for receipt in receipts {
            pairs.remember(receipt);
        }
        pairs
    }

    fn remember(&mut self, receipt: &Receipt) {
        if let Some(beneficiary) = &receipt.beneficiary {
            self.recent.push_back(PreemptionPair {
                at_unix_ms: receipt.at.unix_ms(),
                preempted: receipt.work.clone(),
                beneficiary: beneficiary.clone(),
            });
        }
        while self.recent.len() > Self::MAX_PAIRS {
            self.recent.pop_front();
        }
    }

    /// Counts the quantum-seconds of work that a preemption lost. Counts the preemption as a
    /// reversal if the beneficiary was preempted for the same work within the last hour.
    pub fn count(&mut self, receipt: &Receipt) {
        let lost = receipt.order.saturating_mul(receipt.lost_ms) / 1_000;
        catalogue::PREEMPTION_LOST.add(lost, &[]);
        if self.is_reversal(receipt) {
            catalogue::PREEMPTION_PING_PONG.add(1, &[]);
        }
        self.remember(receipt);
    }

    fn is_reversal(&self, receipt: &Receipt) -> bool {
        let since = receipt.at.unix_ms().saturating_sub(HOUR_MS);
        let mut newest_first = self.recent.iter().rev();
        newest_first.any(|pair| {
            pair.at_unix_ms >= since
                && pair.beneficiary == receipt.work
                && Some(&pair.preempted) == receipt.beneficiary.as_ref()
        })
    }
}

/// Counts a process when its node reports that it runs.
pub(crate) fn count_start(
    snapshot: &Snapshot,
    demand: Option<&DemandEntry>,
    record: &AllocationRecord,
    moment: &Moment,
) {
    let entry = &record.entry;
    if entry.running_since != Some(moment.now) {
        return;
    }
    let pool = catalogue::POOL.with(pool_of(snapshot, &entry.node));
    let class = catalogue::CLASS.with(entry.class.clone());
    let launched = [pool.clone(), catalogue::LAUNCH_OUTCOME.with("started")];
    catalogue::LAUNCH_COUNT.add(1, &launched);
    let seconds = |since| seconds(moment.now.ms_since(since));
    let attributes = [class.clone(), pool];
    catalogue::ALLOCATION_TIME_TO_START.record(seconds(entry.granted_at), &attributes);
    if let Some(demand) = demand.filter(|_| entry.incarnation == 1) {
        let attributes = [catalogue::KIND.with(wire_name(&entry.kind)), class];
        catalogue::WORK_TIME_TO_START.record(seconds(demand.submitted_at), &attributes);
    }
}

/// Counts a process that has ended, and ends its trace.
pub(crate) fn count_end(
    snapshot: &Snapshot,
    record: &AllocationRecord,
    exit: Option<&Exit>,
    batch: &mut Batch<Rows>,
) {
    let entry = &record.entry;
    if let (Some(exit), None) = (exit, entry.running_since) {
        let outcome = match exit.cause {
            ExitCause::LaunchFailed | ExitCause::LaunchUnknown | ExitCause::Node => "failed",
            // The process ended before its start was reported.
            _ => "started",
        };
        let pool = catalogue::POOL.with(pool_of(snapshot, &entry.node));
        catalogue::LAUNCH_COUNT.add(1, &[pool, catalogue::LAUNCH_OUTCOME.with(outcome)]);
    }
    let cause = exit.map_or(ExitCause::Unknown, |exit| exit.cause);
    end_trace_of(record, cause, batch);
}

/// Ends the trace of an allocation when the batch is committed (T5).
pub(crate) fn end_trace_of(record: &AllocationRecord, cause: ExitCause, batch: &mut Batch<Rows>) {
    let Some(trace_parent) = round_trace::allocation_trace_parent(record) else {
        return;
    };
    let entry = &record.entry;
    let part = |name| {
        let part = SpanBuilder::new(NAME, name).with_parent(&trace_parent);
        part.with_attribute("hayward.allocation.id", entry.id.to_string())
    };
    if entry.launch.is_none() {
        // Without a launch, no other service traces the allocation.
        part("held")
            .starting_at(trace::to_system_time(entry.granted_at))
            .end_at(trace::now());
    }
    let release = part("release").with_attribute("hayward.exit.cause", wire_name(&cause));
    let release = release.start();
    batch.once_committed(move |_| drop(release));
}

#[expect(clippy::cast_precision_loss, reason = "nothing waits for 2^53 ms")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

/// Inputs of the gauges.
pub(crate) struct GaugeInputs<'a> {
    pub snapshot: &'a Snapshot,
    pub demand: &'a Followed<DemandEntry>,
    pub policy: &'a Policy,
    /// Shares and verdicts of the newest round. `None` before the first round.
    pub newest: Option<&'a NewestRound>,
    /// Milliseconds of the longest silence among all neighbours. `None` before the first update.
    pub silence_ms: Option<u64>,
    pub now: Timestamp,
}

/// Returns the readings of all gauges.
pub(crate) fn readings(inputs: &GaugeInputs<'_>) -> Vec<Reading> {
    let mut readings = pool_readings(inputs.snapshot);
    let silence = inputs.silence_ms.map(seconds);
    readings.extend(silence.map(|age| catalogue::ROUND_SNAPSHOT_AGE.reading(age, Vec::new())));
    if let Some(newest) = inputs.newest {
        add_waiting(inputs, newest, &mut readings);
        add_fairness(newest, &mut readings);
        add_budgets(newest, &mut readings);
    }
    readings
}

/// Quanta of the nodes of a pool that take work.
#[derive(Default)]
struct PoolSum {
    usable: u64,
    free: u64,
    /// Largest number of free quanta on one node.
    largest_free: u64,
}

fn pool_readings(snapshot: &Snapshot) -> Vec<Reading> {
    let mut spaces: BTreeMap<&NodeName, NodeSpace> = BTreeMap::new();
    for (name, node) in &snapshot.nodes {
        if node.is_schedulable() {
            spaces.insert(name, NodeSpace::new(snapshot, Some(node)));
        }
    }
    for allocation in snapshot.allocations.values() {
        if let Some(space) = spaces.get_mut(&allocation.node) {
            space.add(allocation);
        }
    }
    let mut sums: BTreeMap<&str, PoolSum> = BTreeMap::new();
    for name in snapshot.pools.keys() {
        sums.insert(name, PoolSum::default());
    }
    for (name, space) in spaces {
        let pool = snapshot.nodes.get(name).map(|node| node.pool.as_str());
        let sum = sums.entry(pool.unwrap_or(UNKNOWN)).or_default();
        sum.usable += space.capacity;
        sum.free += space.free();
        sum.largest_free = sum.largest_free.max(space.free());
    }
    let mut readings = Vec::new();
    for (pool, sum) in sums {
        let pool = || vec![catalogue::POOL.with(pool.to_owned())];
        readings.push(catalogue::POOL_USABLE.count_reading(sum.usable, pool()));
        readings.push(catalogue::POOL_FREE.count_reading(sum.free, pool()));
        readings.push(catalogue::POOL_LARGEST_HOLE.count_reading(sum.largest_free, pool()));
        let fragmentation = if sum.free == 0 {
            0.0
        } else {
            // `seconds` only converts to floating point here: the factor cancels out.
            seconds(sum.free - sum.largest_free) / seconds(sum.free)
        };
        readings.push(catalogue::POOL_FRAGMENTATION.reading(fragmentation, pool()));
    }
    readings
}

type ClassAndPool = (String, String);

/// Returns the class and the pool in which a piece of work waits.
fn class_and_pool(snapshot: &Snapshot, work: &WorkId, verdict: &Verdict) -> ClassAndPool {
    let class = verdict.class.as_deref().unwrap_or(UNKNOWN);
    let queued = snapshot.demand.get(work).and_then(|it| it.queued.as_ref());
    let pool = match queued {
        Some(queued) => queued.pool.as_ref().or(snapshot.queues.keys().next()),
        None => snapshot.classes.get(class).map(|class| &class.pool),
    };
    let pool = pool.map_or(UNKNOWN, String::as_str);
    (class.to_owned(), pool.to_owned())
}

fn add_waiting(inputs: &GaugeInputs<'_>, newest: &NewestRound, readings: &mut Vec<Reading>) {
    let snapshot = inputs.snapshot;
    // Missing processes and their quanta, by reason, class and pool.
    let mut waiting_work: BTreeMap<(String, ClassAndPool), (u64, u64)> = BTreeMap::new();
    // Milliseconds that the oldest work without any process has waited.
    let mut oldest: BTreeMap<ClassAndPool, u64> = BTreeMap::new();
    for (name, class) in &snapshot.classes {
        oldest.insert((name.clone(), class.pool.clone()), 0);
    }
    for (work, verdict) in &newest.verdicts {
        let numbers = &verdict.numbers;
        let missing = numbers
            .wanted_processes
            .saturating_sub(numbers.current_processes);
        if missing == 0 {
            continue;
        }
        let class_and_pool = class_and_pool(snapshot, work, verdict);
        let demand = inputs.demand.get(work.as_str());
        if let (0, false, Some(demand)) = (numbers.current_processes, verdict.refused, demand) {
            let age = inputs.now.ms_since(demand.submitted_at);
            let oldest = oldest.entry(class_and_pool.clone()).or_default();
            *oldest = (*oldest).max(age);
        }
        let reason = wire_name(&verdict.reason);
        let (processes, quanta) = waiting_work.entry((reason, class_and_pool)).or_default();
        *processes += missing;
        *quanta += missing.saturating_mul(numbers.quanta);
    }
    let attributes_of = |(class, pool): ClassAndPool| {
        vec![catalogue::CLASS.with(class), catalogue::POOL.with(pool)]
    };
    for ((reason, class_and_pool), (processes, quanta)) in waiting_work {
        let mut attributes = vec![catalogue::REASON.with(reason)];
        attributes.extend(attributes_of(class_and_pool));
        readings.push(catalogue::WAITING_SLOTS.count_reading(processes, attributes.clone()));
        readings.push(catalogue::WAITING_QUANTA.count_reading(quanta, attributes));
    }
    let classes: BTreeSet<String> = oldest.keys().map(|(class, _)| class.clone()).collect();
    for class in classes {
        let target_s = wait_target(inputs.policy, &class);
        readings.push(
            catalogue::WAITING_TARGET.count_reading(target_s, vec![catalogue::CLASS.with(class)]),
        );
    }
    for (class_and_pool, age) in oldest {
        readings
            .push(catalogue::WAITING_OLDEST.reading(seconds(age), attributes_of(class_and_pool)));
    }
}

/// Quanta of one user in one class.
#[derive(Default, Clone, Copy)]
struct FairnessSum {
    entitled: u64,
    wanted: u64,
    received: u64,
}

fn add_fairness(newest: &NewestRound, readings: &mut Vec<Reading>) {
    let mut wanted: BTreeMap<&UserName, u64> = BTreeMap::new();
    let wanted_quanta = |user: &plan::UserShare| -> u64 {
        let work = user.work.values();
        work.map(|work| work.wanted.saturating_mul(work.quanta))
            .sum()
    };
    for class in newest.shares.classes.values() {
        for (user, share) in &class.users {
            *wanted.entry(user).or_default() += wanted_quanta(share);
        }
    }
    let mut users: Vec<(&UserName, u64)> = wanted.into_iter().collect();
    users.sort_by_key(|(user, wanted)| (std::cmp::Reverse(*wanted), *user));
    let listed_users: BTreeSet<&UserName> = users
        .iter()
        .take(MAX_USERS)
        .map(|(user, _)| *user)
        .collect();
    let mut sums: BTreeMap<(&str, &str), FairnessSum> = BTreeMap::new();
    for (class, share) in &newest.shares.classes {
        for (user, share) in &share.users {
            let name = listed_users
                .get(user)
                .map_or(OTHER_USERS, |user| user.as_str());
            let sum = sums.entry((name, class)).or_default();
            sum.entitled += share.tally.due;
            sum.wanted += wanted_quanta(share);
            sum.received += share.tally.held;
        }
    }
    for ((user, class), sum) in sums {
        let attributes = || {
            vec![
                catalogue::USER.with(user.to_owned()),
                catalogue::CLASS.with(class.to_owned()),
            ]
        };
        readings.push(catalogue::FAIRNESS_ENTITLED.count_reading(sum.entitled, attributes()));
        readings.push(catalogue::FAIRNESS_WANTED.count_reading(sum.wanted, attributes()));
        readings.push(catalogue::FAIRNESS_RECEIVED.count_reading(sum.received, attributes()));
        let received = catalogue::FAIRNESS_ERROR.count_reading(sum.received, attributes());
        let entitled = catalogue::FAIRNESS_ERROR.count_reading(sum.entitled, attributes());
        readings
            .push(catalogue::FAIRNESS_ERROR.reading(received.value - entitled.value, attributes()));
    }
}

fn add_budgets(newest: &NewestRound, readings: &mut Vec<Reading>) {
    for budget in &newest.budgets.pools {
        let Some(allowed) = budget.allowed else {
            continue;
        };
        let pool = || vec![catalogue::POOL.with(budget.pool.clone())];
        let remaining = allowed.saturating_sub(budget.spent);
        readings.push(catalogue::PREEMPTION_BUDGET_LEFT.count_reading(remaining, pool()));
        readings.push(catalogue::PREEMPTION_BUDGET_ALLOWED.count_reading(allowed, pool()));
    }
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::WaitReason;
    use hayward_rm_scheduler_domain::check::Fault;
    use hayward_vocabulary::Outcome;

    use super::*;

    fn receipt(work: &str, beneficiary: &str, at_ms: i64) -> Receipt {
        Receipt {
            round: 1,
            at: Timestamp::from_unix_ms(at_ms),
            allocation: "alc_1".parse().unwrap(),
            work: work.parse().unwrap(),
            user: "ann".parse().unwrap(),
            node: "n1".parse().unwrap(),
            order: 2,
            lost_ms: 500,
            beneficiary: Some(beneficiary.parse().unwrap()),
            for_user: None,
            outcome: Outcome::Open,
        }
    }

    #[test]
    fn a_preemption_in_the_opposite_direction_is_a_reversal() {
        let mut pairs = PreemptionPairs::default();
        pairs.count(&receipt("job_a", "job_b", 0));
        assert!(!pairs.is_reversal(&receipt("job_a", "job_b", 1)));
        assert!(!pairs.is_reversal(&receipt("job_b", "job_c", 1)));
        assert!(pairs.is_reversal(&receipt("job_b", "job_a", 1)));
        assert!(!pairs.is_reversal(&receipt("job_b", "job_a", HOUR_MS + 1)));
    }

    /// Attribute values of metrics come from closed lists (T3).
    #[test]
    fn wire_names_are_those_of_the_metric_catalogue() {
        for reason in [
            WaitReason::ZeroShare,
            WaitReason::AntiAffinity,
            WaitReason::NotAuthorised,
            WaitReason::ExternalPlanner,
            WaitReason::Satisfied,
        ] {
            assert!(catalogue::REASON.allows(&wire_name(&reason)), "{reason:?}");
        }
        let faults = [
            Fault::UnknownWork("job_1".parse().unwrap()),
            Fault::WrongSize {
                granted: 1,
                needed: 2,
            },
        ];
        for fault in faults {
            assert!(catalogue::REFUSAL.allows(&wire_name(&fault)), "{fault:?}");
        }
        for reason in [VacateReason::Preempted, VacateReason::WorkGone] {
            assert!(
                catalogue::VACATE_CAUSE.allows(&wire_name(&reason)),
                "{reason:?}"
            );
        }
    }
}
