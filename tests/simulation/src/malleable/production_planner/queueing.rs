//! Work in queues: which jobs are queued, and when time alone can change their grants.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_capacity::replan_delays;
use hayward_rm_scheduler_domain::{
    Verdict,
    snapshot::{
        Snapshot,
        queues::{CarriedQueueState, Queued},
    },
};
use hayward_rm_scheduler_policy::Rules;

use super::{PolicyError, validate};
use crate::{
    case::Case,
    measure::{Moment, UnservedReason},
    trace::Job,
};

/// Milliseconds after the end of a delay until the next attempt, if the last attempt failed.
const RETRY_MS: Moment = 15_000;

/// Returns the queue request of a job. Returns `None` if the job is served in its class.
///
/// A job is queued if it names a queue or a pool with queues, or if its class has no pool without
/// queues. The placement rules choose the queue.
pub(super) fn queue_request(
    case: &Case,
    rules: &Rules,
    job: &Job,
    default: Option<&str>,
) -> Result<Option<Box<Queued>>, PolicyError> {
    if rules.queues.is_empty() {
        return validate::find_class(case, rules, job).map(|_| None);
    }
    let requested = job.queue.map(|queue| case.workload.queues.name(queue));
    let queue = requested.or(default).map(str::to_owned);
    let pool = job.request.pool.clone();
    let mut pool = pool.filter(|pool| rules.queues.contains_key(pool));
    if queue.is_none() && pool.is_none() {
        match validate::find_class(case, rules, job).map(|class| root_pool(rules, &class.pool)) {
            Ok(root) if !rules.queues.contains_key(root) => return Ok(None),
            Ok(root) => pool = Some(root.to_owned()),
            Err(_) => {}
        }
    }
    Ok(Some(Box::new(Queued {
        pool,
        queue,
        ..Queued::default()
    })))
}

/// Returns the root of the tree of node pools that contains the pool.
fn root_pool<'a>(rules: &'a Rules, pool: &'a str) -> &'a str {
    let parent = |name: &&'a str| rules.pools.get(*name)?.parent.as_deref();
    // The path is never longer than the number of pools, so a cycle of parents would end here.
    let pool_path = std::iter::successors(Some(pool), parent);
    pool_path
        .take(rules.pools.len().max(1))
        .last()
        .unwrap_or(pool)
}

/// Returns the refusal if the verdict is final.
pub(super) fn refusal(verdict: &Verdict) -> Option<UnservedReason> {
    verdict.refused.then(|| unserved_reason(verdict))
}

pub(super) fn unserved_reason(verdict: &Verdict) -> UnservedReason {
    UnservedReason {
        reason: serde_json::to_value(verdict.reason)
            .ok()
            .and_then(|code| code.as_str().map(str::to_owned))
            .unwrap_or_default(),
        detail: verdict.detail.clone(),
    }
}

/// State that decides when to run a round without an event.
///
/// A delay counts from an event, so a round runs at the end of each delay after an event. A change
/// of reservations counts as an event for a limited time only. Otherwise a reservation that moves
/// between jobs that find no space would cause rounds for ever.
#[derive(Debug, Default)]
pub(super) struct QueueTimer {
    delays_ms: BTreeSet<Moment>,
    wakeups: BTreeSet<Moment>,
    last_event_at: Moment,
    /// Reservations on nodes after the last round.
    carried: BTreeMap<String, CarriedQueueState>,
}

impl QueueTimer {
    pub fn new(snapshot: &Snapshot) -> Self {
        let queue_delays = snapshot.queues.values().flat_map(replan_delays);
        Self {
            delays_ms: queue_delays.flat_map(|ms| [ms, ms + RETRY_MS]).collect(),
            ..Self::default()
        }
    }

    pub fn has_queues(&self) -> bool {
        !self.delays_ms.is_empty()
    }

    pub fn record_round(
        &mut self,
        now: Moment,
        had_events: bool,
        carried: &BTreeMap<String, CarriedQueueState>,
    ) {
        let reservations = |queues: &BTreeMap<String, CarriedQueueState>| {
            let reservations = queues.values().flat_map(|it| it.reservations.clone());
            reservations.collect::<Vec<_>>()
        };
        let longest_delay_ms = self.delays_ms.last().copied().unwrap_or(0);
        if had_events {
            self.last_event_at = now;
        }
        let reservations_moved = reservations(carried) != reservations(&self.carried)
            && now < self.last_event_at + 2 * longest_delay_ms;
        if had_events || reservations_moved {
            self.wakeups
                .extend(self.delays_ms.iter().map(|ms| now + ms));
        }
        self.carried.clone_from(carried);
        self.wakeups = self.wakeups.split_off(&(now + 1));
    }

    /// Returns the time of the next round while work waits that time alone can serve.
    pub fn next_wakeup(&mut self, has_waiting_work: bool) -> Option<Moment> {
        if !has_waiting_work {
            self.wakeups.clear();
        }
        self.wakeups.first().copied()
    }
}
