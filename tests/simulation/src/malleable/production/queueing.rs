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

use super::{BadPolicy, judge};
use crate::{
    case::Case,
    measure::{Moment, Refused},
    trace::Job,
};

/// Milliseconds after the end of a delay until the next attempt, if the last attempt failed.
const AGAIN_MS: Moment = 15_000;

/// Returns the queue request of a job. Returns `None` if the job is served in its class.
///
/// A job is queued if it names a queue or a pool with queues, or if its class has no pool without
/// queues. The placement rules choose the queue.
pub(super) fn queue_request(
    case: &Case,
    rules: &Rules,
    job: &Job,
    default: Option<&str>,
) -> Result<Option<Box<Queued>>, BadPolicy> {
    if rules.queues.is_empty() {
        return judge::class_of(case, rules, job).map(|_| None);
    }
    let named = job.queue.map(|at| case.workload.queues.name(at));
    let queue = named.or(default).map(str::to_owned);
    let pool = job.need.pool.clone();
    let mut pool = pool.filter(|pool| rules.queues.contains_key(pool));
    if queue.is_none() && pool.is_none() {
        match judge::class_of(case, rules, job).map(|class| top(rules, &class.pool)) {
            Ok(top) if !rules.queues.contains_key(top) => return Ok(None),
            Ok(top) => pool = Some(top.to_owned()),
            Err(_) => {}
        }
    }
    Ok(Some(Box::new(Queued {
        pool,
        queue,
        ..Queued::default()
    })))
}

fn top<'a>(rules: &'a Rules, pool: &'a str) -> &'a str {
    let above = |name: &&'a str| rules.pools.get(*name)?.parent.as_deref();
    let path = std::iter::successors(Some(pool), above);
    path.take(rules.pools.len().max(1)).last().unwrap_or(pool)
}

/// Returns the refusal if the verdict is final.
pub(super) fn refused(verdict: &Verdict) -> Option<Refused> {
    verdict.refused.then(|| why(verdict))
}

pub(super) fn why(verdict: &Verdict) -> Refused {
    Refused {
        reason: serde_json::to_value(verdict.reason)
            .ok()
            .and_then(|word| word.as_str().map(str::to_owned))
            .unwrap_or_default(),
        detail: verdict.detail.clone(),
    }
}

/// State that decides when to run a round without an event.
///
/// A delay counts from an event, so rounds are due when a delay ends after each event. A change of
/// reservations counts as an event for a limited time only. Otherwise a reservation that moves
/// between jobs that find no space would cause rounds for ever.
#[derive(Debug, Default)]
pub(super) struct Queueing {
    after: BTreeSet<Moment>,
    due: BTreeSet<Moment>,
    happened: Moment,
    /// Reservations on nodes after the last round.
    carried: BTreeMap<String, CarriedQueueState>,
}

impl Queueing {
    pub fn new(snapshot: &Snapshot) -> Self {
        let all = snapshot.queues.values().flat_map(replan_delays);
        Self {
            after: all.flat_map(|ms| [ms, ms + AGAIN_MS]).collect(),
            ..Self::default()
        }
    }

    pub fn exist(&self) -> bool {
        !self.after.is_empty()
    }

    pub fn record_round(
        &mut self,
        now: Moment,
        news: bool,
        carried: &BTreeMap<String, CarriedQueueState>,
    ) {
        let nodes = |queues: &BTreeMap<String, CarriedQueueState>| {
            let all = queues.values().flat_map(|it| it.reservations.clone());
            all.collect::<Vec<_>>()
        };
        let longest = self.after.last().copied().unwrap_or(0);
        if news {
            self.happened = now;
        }
        let reservations_moved =
            nodes(carried) != nodes(&self.carried) && now < self.happened + 2 * longest;
        if news || reservations_moved {
            self.due.extend(self.after.iter().map(|ms| now + ms));
        }
        self.carried.clone_from(carried);
        self.due = self.due.split_off(&(now + 1));
    }

    /// Returns the time of the next round while work waits that time alone can serve.
    pub fn wakes(&mut self, waits: bool) -> Option<Moment> {
        if !waits {
            self.due.clear();
        }
        self.due.first().copied()
    }
}
