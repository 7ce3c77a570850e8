//! The figures of a simulation, for people and for programs. Sums are exact. Only the last division
//! uses floating point, and its result is rounded, so equal runs print equal bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Ledger, Outcome, Refused};
use crate::share::Share;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub jobs: usize,
    /// Number of jobs that started and ended.
    pub completed: usize,
    pub wait_s: Spread,
    pub flow_s: Spread,
    pub bounded_slowdown: Spread,
    pub makespan_s: f64,
    /// Mean use of the CPU between the first and the last submission.
    pub utilisation: f64,
    pub samples: u64,
    /// Fraction of the samples at which demand exceeded the cluster.
    pub contended: f64,
    pub deviation: f64,
    pub jain: f64,
    pub waste_percent: f64,
    pub evictions_per_job: f64,
    /// Figures of each queue by its full path. Absent if there are no queues.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, QueueSummary>,
    /// Jobs that are not served, by reason. Absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, RefusedJobs>,
    /// Jobs that never ran and would wait for ever, by reason. Absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub never_ran: BTreeMap<String, RefusedJobs>,
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedJobs {
    pub jobs: usize,
    /// The detail of the first of these jobs.
    pub first: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub median: f64,
    pub p95: f64,
    pub max: f64,
}

pub(super) fn summarize(ledger: &Ledger) -> Summary {
    let done: Vec<&Outcome> = ledger
        .outcomes
        .iter()
        .filter(|o| o.ended.is_some())
        .collect();
    let first = ledger.first;
    let end = done.iter().filter_map(|o| o.ended).max().unwrap_or(first);
    let window = u128::from(ledger.last - first) * u128::from(ledger.capacity.cpu_milli);
    let work: u128 = ledger
        .outcomes
        .iter()
        .enumerate()
        .map(|(job, o)| {
            u128::from(o.run_s) * 1000 * u128::from(ledger.tasks_of[job] * ledger.cpu_of[job])
        })
        .sum();
    let lost: u128 = ledger.outcomes.iter().map(|o| o.lost).sum();
    let evictions: u64 = ledger.outcomes.iter().map(|o| o.evictions).sum();
    let fair: Share = ledger.accounts.iter().map(|account| account.fair_sum).sum();
    Summary {
        jobs: ledger.outcomes.len(),
        completed: done.len(),
        wait_s: spread(done.iter().map(|o| wait_ms(o)).map(seconds)),
        flow_s: spread(done.iter().map(|o| flow_ms(o)).map(seconds)),
        bounded_slowdown: spread(done.iter().map(|o| slowdown(o))),
        makespan_s: seconds(end - first),
        utilisation: ratio(ledger.used, window),
        samples: ledger.samples,
        contended: ratio(u128::from(ledger.contended), u128::from(ledger.samples)),
        deviation: ratio(ledger.below, fair),
        jain: jain(ledger),
        waste_percent: rounded(100.0 * real(lost) / real(work.max(1))),
        evictions_per_job: ratio(u128::from(evictions), ledger.outcomes.len() as u128),
        queues: queues(ledger),
        refused: by_reason(ledger, |outcome| outcome.refused.as_ref()),
        never_ran: by_reason(ledger, |outcome| outcome.waits.as_ref()),
    }
}

fn queues(ledger: &Ledger) -> BTreeMap<String, QueueSummary> {
    let capacity = |count: u64| ledger.whole.parts.saturating_mul(u128::from(count));
    let one = |(at, name, account): (usize, &str, &super::queues::Account)| {
        let mine = || ledger.outcomes.iter().filter(move |o| o.queue == Some(at));
        let done = || mine().filter(|o| o.ended.is_some());
        let evictions: u64 = mine().map(|o| o.evictions).sum();
        let summary = QueueSummary {
            jobs: mine().count(),
            completed: done().count(),
            share: ratio(account.held_sum, capacity(ledger.samples)),
            share_contended: ratio(account.contended_sum, capacity(ledger.contended)),
            wait_s: spread(done().map(wait_ms).map(seconds)),
            evictions_per_job: ratio(u128::from(evictions), mine().count() as u128),
        };
        (name.to_owned(), summary)
    };
    ledger.queues.accounts().map(one).collect()
}

fn by_reason(
    ledger: &Ledger,
    why: impl Fn(&Outcome) -> Option<&Refused>,
) -> BTreeMap<String, RefusedJobs> {
    let mut all: BTreeMap<String, RefusedJobs> = BTreeMap::new();
    for refused in ledger.outcomes.iter().filter_map(why) {
        let known = all
            .entry(refused.reason.clone())
            .or_insert_with(|| RefusedJobs {
                jobs: 0,
                first: refused.detail.clone(),
            });
        known.jobs += 1;
    }
    all
}

pub(crate) fn wait_ms(outcome: &Outcome) -> u64 {
    outcome.started.map_or(0, |at| at - outcome.submitted)
}

pub(crate) fn flow_ms(outcome: &Outcome) -> u64 {
    outcome.ended.map_or(0, |at| at - outcome.submitted)
}

/// Returns flow time divided by run time. Jobs shorter than ten seconds count as ten.
pub(crate) fn slowdown(outcome: &Outcome) -> f64 {
    let alone = real(u128::from(outcome.run_s.max(10)));
    (seconds(flow_ms(outcome)) / alone).max(1.0)
}

pub(crate) fn seconds(ms: u64) -> f64 {
    real(u128::from(ms)) / 1000.0
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shown to people, never decided by"
)]
pub(crate) fn real(amount: u128) -> f64 {
    amount as f64
}

/// Rounds to nine places, which removes the noise of the last bits.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1e9).round() / 1e9
}

fn ratio(amount: u128, total: u128) -> f64 {
    if total == 0 {
        0.0
    } else {
        rounded(real(amount) / real(total))
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
        mean: rounded(values.iter().sum::<f64>() / real(count as u128)),
        median: rounded(rank(50)),
        p95: rounded(rank(95)),
        max: rounded(values[count - 1]),
    }
}

/// Returns Jain's index over the ratio of held to fair share. It is 1 if all ratios are equal.
fn jain(ledger: &Ledger) -> f64 {
    let took_part = ledger
        .accounts
        .iter()
        .filter(|account| account.fair_sum > 0);
    let parts: Vec<f64> = took_part
        .map(|account| real(account.held_sum) / real(account.fair_sum))
        .collect();
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    if squares > 0.0 {
        rounded(sum * sum / (real(parts.len() as u128) * squares))
    } else {
        1.0
    }
}
