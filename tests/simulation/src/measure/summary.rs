//! The figures of a simulation, for people and for programs. Sums are exact. Only the last division
//! uses floating point, and its result is rounded, so equal runs print equal bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Ledger, Outcome, UnservedReason, queue_holdings::HeldByQueue};
use crate::fair_shares::Share;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub jobs: usize,
    /// Number of jobs that started and ended.
    pub completed: usize,
    /// Seconds from the submission to the first start of a job.
    pub wait_s: Spread,
    /// Seconds from the submission to the end of a job.
    pub flow_s: Spread,
    /// Flow time divided by run time. Run times below ten seconds count as ten.
    pub bounded_slowdown: Spread,
    /// Seconds from the first submission to the last end.
    pub makespan_s: f64,
    /// Mean use of the CPU between the first and the last submission.
    pub utilisation: f64,
    /// Number of samples of the shares.
    pub samples: u64,
    /// Fraction of the samples at which demand exceeded the cluster.
    pub contended: f64,
    /// Amount by which accounts were below their fair shares, as a fraction of these shares.
    pub deviation: f64,
    /// Jain's index over the ratio of held to fair share. It is 1 if all ratios are equal.
    pub jain: f64,
    /// Work lost by preemption, in percent of the work of all jobs.
    pub waste_percent: f64,
    pub evictions_per_job: f64,
    /// Figures of each queue by its full path. Absent if there are no queues.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, QueueSummary>,
    /// Jobs that were refused, by reason. Absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, UnservedJobs>,
    /// Jobs that never ran and would wait for ever, by reason. Absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub never_ran: BTreeMap<String, UnservedJobs>,
}

/// Figures of one queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueSummary {
    pub jobs: usize,
    pub completed: usize,
    /// Mean part of the cluster that the queue held, in the largest dimension of each job.
    pub share: f64,
    /// Mean part of the cluster at the samples at which demand exceeded it.
    pub share_contended: f64,
    pub wait_s: Spread,
    pub evictions_per_job: f64,
}

/// Jobs that were not served for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnservedJobs {
    pub jobs: usize,
    /// The detail of the first of these jobs.
    pub first: String,
}

/// Distribution of a figure over jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub median: f64,
    pub p95: f64,
    pub max: f64,
}

pub(super) fn summarize(ledger: &Ledger) -> Summary {
    let ended: Vec<&Outcome> = ledger
        .outcomes
        .iter()
        .filter(|outcome| outcome.ended.is_some())
        .collect();
    let first = ledger.first;
    let end = ended
        .iter()
        .filter_map(|outcome| outcome.ended)
        .max()
        .unwrap_or(first);
    // The CPU that the cluster could provide between the first and the last submission.
    let available_cpu_ms = u128::from(ledger.last - first) * u128::from(ledger.capacity.cpu_milli);
    let work: u128 = ledger
        .outcomes
        .iter()
        .enumerate()
        .map(|(job, outcome)| {
            u128::from(outcome.run_s)
                * 1000
                * u128::from(ledger.tasks_by_job[job] * ledger.task_cpu_by_job[job])
        })
        .sum();
    let lost: u128 = ledger.outcomes.iter().map(|outcome| outcome.lost).sum();
    let evictions: u64 = ledger
        .outcomes
        .iter()
        .map(|outcome| outcome.evictions)
        .sum();
    let fair_shares: Share = ledger.accounts.iter().map(|account| account.fair_sum).sum();
    Summary {
        jobs: ledger.outcomes.len(),
        completed: ended.len(),
        wait_s: spread(ended.iter().map(|outcome| wait_ms(outcome)).map(seconds)),
        flow_s: spread(ended.iter().map(|outcome| flow_ms(outcome)).map(seconds)),
        bounded_slowdown: spread(ended.iter().map(|outcome| slowdown(outcome))),
        makespan_s: seconds(end - first),
        utilisation: ratio(ledger.used_cpu_ms, available_cpu_ms),
        samples: ledger.samples,
        contended: ratio(
            u128::from(ledger.contended_samples),
            u128::from(ledger.samples),
        ),
        deviation: ratio(ledger.shortfall_sum, fair_shares),
        jain: jain_index(ledger),
        waste_percent: round_to_9_places(100.0 * to_f64(lost) / to_f64(work.max(1))),
        evictions_per_job: ratio(u128::from(evictions), ledger.outcomes.len() as u128),
        queues: summarize_queues(ledger),
        refused: count_by_reason(ledger, |outcome| outcome.refusal.as_ref()),
        never_ran: count_by_reason(ledger, |outcome| outcome.waiting_reason.as_ref()),
    }
}

fn summarize_queues(ledger: &Ledger) -> BTreeMap<String, QueueSummary> {
    let capacity = |samples: u64| ledger.scale.total.saturating_mul(u128::from(samples));
    let summarize_queue = |(queue, name, holding): (usize, &str, &HeldByQueue)| {
        let queue_outcomes = || {
            ledger
                .outcomes
                .iter()
                .filter(move |outcome| outcome.queue == Some(queue))
        };
        let completed = || queue_outcomes().filter(|outcome| outcome.ended.is_some());
        let evictions: u64 = queue_outcomes().map(|outcome| outcome.evictions).sum();
        let summary = QueueSummary {
            jobs: queue_outcomes().count(),
            completed: completed().count(),
            share: ratio(holding.held_sum, capacity(ledger.samples)),
            share_contended: ratio(holding.contended_sum, capacity(ledger.contended_samples)),
            wait_s: spread(completed().map(wait_ms).map(seconds)),
            evictions_per_job: ratio(u128::from(evictions), queue_outcomes().count() as u128),
        };
        (name.to_owned(), summary)
    };
    ledger.queues.holdings().map(summarize_queue).collect()
}

fn count_by_reason(
    ledger: &Ledger,
    get_reason: impl Fn(&Outcome) -> Option<&UnservedReason>,
) -> BTreeMap<String, UnservedJobs> {
    let mut by_reason: BTreeMap<String, UnservedJobs> = BTreeMap::new();
    for unserved in ledger.outcomes.iter().filter_map(get_reason) {
        let group = by_reason
            .entry(unserved.reason.clone())
            .or_insert_with(|| UnservedJobs {
                jobs: 0,
                first: unserved.detail.clone(),
            });
        group.jobs += 1;
    }
    by_reason
}

pub(crate) fn wait_ms(outcome: &Outcome) -> u64 {
    outcome
        .started
        .map_or(0, |moment| moment - outcome.submitted)
}

pub(crate) fn flow_ms(outcome: &Outcome) -> u64 {
    outcome.ended.map_or(0, |moment| moment - outcome.submitted)
}

/// Returns flow time divided by run time. Jobs shorter than ten seconds count as ten.
pub(crate) fn slowdown(outcome: &Outcome) -> f64 {
    let run_s = to_f64(u128::from(outcome.run_s.max(10)));
    (seconds(flow_ms(outcome)) / run_s).max(1.0)
}

pub(crate) fn seconds(ms: u64) -> f64 {
    to_f64(u128::from(ms)) / 1000.0
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shown to people, and no decision uses it"
)]
pub(crate) fn to_f64(amount: u128) -> f64 {
    amount as f64
}

/// Rounds to nine places, which removes the noise of the last bits.
pub(crate) fn round_to_9_places(number: f64) -> f64 {
    (number * 1e9).round() / 1e9
}

fn ratio(amount: u128, total: u128) -> f64 {
    if total == 0 {
        0.0
    } else {
        round_to_9_places(to_f64(amount) / to_f64(total))
    }
}

fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let mut values: Vec<f64> = values.collect();
    if values.is_empty() {
        return Spread::default();
    }
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // Percentile by nearest rank.
    let rank = |percent: usize| values[(count * percent).div_ceil(100).clamp(1, count) - 1];
    Spread {
        mean: round_to_9_places(values.iter().sum::<f64>() / to_f64(count as u128)),
        median: round_to_9_places(rank(50)),
        p95: round_to_9_places(rank(95)),
        max: round_to_9_places(values[count - 1]),
    }
}

/// Returns Jain's index over the ratio of held to fair share. It is 1 if all ratios are equal.
fn jain_index(ledger: &Ledger) -> f64 {
    let with_fair_share = ledger
        .accounts
        .iter()
        .filter(|account| account.fair_sum > 0);
    let ratios: Vec<f64> = with_fair_share
        .map(|account| to_f64(account.held_sum) / to_f64(account.fair_sum))
        .collect();
    let sum: f64 = ratios.iter().sum();
    let squares: f64 = ratios.iter().map(|ratio| ratio * ratio).sum();
    if squares > 0.0 {
        round_to_9_places(sum * sum / (to_f64(ratios.len() as u128) * squares))
    } else {
        1.0
    }
}
