//! The results of a simulation: waiting times, and the share that each user held compared to the
//! fair share.
//!
//! The ledger records every submission, start, stop and end as it happens, and samples the shares
//! at fixed moments. It makes no decisions.

mod queue_holdings;
mod series;
mod summary;

use std::collections::{BTreeMap, BTreeSet};

use queue_holdings::QueueHoldings;
use series::CpuUse;
pub use series::{Bucket, Series};
pub use summary::{QueueSummary, Spread, Summary, UnservedJobs};
pub(crate) use summary::{flow_ms, slowdown, to_f64, wait_ms};

use crate::{
    cluster::Capacity,
    fair_shares::{Member, Share, ShareScale, divide_by_class_and_member},
    trace::{Job, Workload},
};

/// Milliseconds between samples of the shares.
const SAMPLE_MS: u64 = 300_000;
/// Minimum number of samples. A shorter window is sampled more often.
const MIN_SAMPLES: u64 = 300;

/// Milliseconds since the start of the trace.
pub type Moment = u64;

/// How the cluster should be divided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Fairness {
    /// Divided equally among users.
    #[default]
    Users,
    /// Divided by weight among classes, then equally among the users of a class. A class that is
    /// not listed has weight 1.
    Classes(BTreeMap<String, u64>),
}

impl Fairness {
    /// Returns the class of a job. All jobs are in one class if only users are compared.
    pub(crate) fn weighted_class(&self, workload: &Workload, job: &Job) -> WeightedClass {
        match self {
            Self::Users => WeightedClass {
                index: 0,
                weight: 1,
            },
            Self::Classes(weights) => {
                let name = workload.classes.name(job.class);
                WeightedClass {
                    index: job.class,
                    weight: weights.get(name).copied().unwrap_or(1),
                }
            }
        }
    }
}

/// A class and its weight in the division of the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WeightedClass {
    /// Index into [`Workload::classes`].
    pub index: usize,
    pub weight: u64,
}

/// The history of one job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub submitted: Moment,
    pub run_s: u64,
    pub started: Option<Moment>,
    pub ended: Option<Moment>,
    /// Number of preempted processes, or of preemptions of a whole gang.
    pub evictions: u64,
    /// Lost work in thousandths of a core × milliseconds.
    pub lost: u128,
    /// Index into [`Series::queue_names`]. `None` if the job was in no queue.
    pub queue: Option<usize>,
    pub refusal: Option<UnservedReason>,
    /// Why a job that never ran still waits at the end of the simulation. `None` for other jobs.
    pub waiting_reason: Option<UnservedReason>,
}

/// Why a job is refused or waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnservedReason {
    /// A reason from a closed list.
    pub reason: String,
    /// A sentence for people.
    pub detail: String,
}

/// A user, or a user within a class.
#[derive(Debug, Clone, Default)]
struct Account {
    /// Share that all tasks of the unfinished jobs would hold at once.
    demand: Share,
    /// Share of the running tasks.
    held: Share,
    /// Fair share, summed over the contended samples.
    fair_sum: Share,
    /// Holdings, summed over the contended samples.
    held_sum: Share,
}

/// The measurement of a running simulation.
#[derive(Debug)]
pub struct Ledger {
    scale: ShareScale,
    capacity: Capacity,
    /// Account of each job, as an index into `accounts`.
    account_by_job: Vec<usize>,
    task_share_by_job: Vec<Share>,
    task_cpu_by_job: Vec<u64>,
    tasks_by_job: Vec<u64>,
    accounts: Vec<Account>,
    /// Class of each account.
    class_by_account: Vec<WeightedClass>,
    /// Accounts with unfinished jobs.
    active: BTreeSet<usize>,
    /// Demand of all accounts.
    demand: Share,
    /// CPU in use, in thousandths of a core.
    held_cpu: u64,
    now: Moment,
    /// Time of the first submission.
    first: Moment,
    /// Time of the last submission.
    last: Moment,
    next_sample: Moment,
    sample_interval_ms: u64,
    /// Used CPU in thousandths of a core × milliseconds.
    used_cpu_ms: u128,
    samples: u64,
    /// Number of samples at which demand exceeded the cluster.
    contended_samples: u64,
    /// Sum over the contended samples of the share by which accounts were below their fair share.
    shortfall_sum: Share,
    outcomes: Vec<Outcome>,
    queues: QueueHoldings,
    series: Series,
}

impl Ledger {
    /// Creates a ledger. Its events name jobs by their index in `jobs`.
    pub fn new(
        workload: &Workload,
        jobs: &[&Job],
        capacity: Capacity,
        fairness: &Fairness,
    ) -> Self {
        let scale = ShareScale::new(capacity);
        let submits = || {
            jobs.iter()
                .filter_map(|job| job.submit_s)
                .map(|seconds| seconds * 1000)
        };
        let first = submits().min().unwrap_or(0);
        let last = submits().max().unwrap_or(0);
        let sample_interval_ms = SAMPLE_MS.min((last - first) / MIN_SAMPLES).max(1);
        let mut ledger = Self {
            account_by_job: Vec::with_capacity(jobs.len()),
            task_share_by_job: jobs
                .iter()
                .map(|job| scale.dominant_share(&job.request))
                .collect(),
            task_cpu_by_job: jobs.iter().map(|job| job.request.cpu_milli).collect(),
            tasks_by_job: jobs.iter().map(|job| job.tasks).collect(),
            scale,
            capacity,
            accounts: Vec::new(),
            class_by_account: Vec::new(),
            active: BTreeSet::new(),
            demand: 0,
            held_cpu: 0,
            now: first,
            first,
            last,
            next_sample: first,
            sample_interval_ms,
            used_cpu_ms: 0,
            samples: 0,
            contended_samples: 0,
            shortfall_sum: 0,
            outcomes: Vec::new(),
            queues: QueueHoldings::default(),
            series: Series::new(workload, first, last),
        };
        ledger.open_accounts(workload, jobs, fairness);
        ledger
    }

    fn open_accounts(&mut self, workload: &Workload, jobs: &[&Job], fairness: &Fairness) {
        let mut account_index: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for job in jobs {
            let class = fairness.weighted_class(workload, job);
            let account = *account_index
                .entry((class.index, job.user))
                .or_insert_with(|| {
                    self.accounts.push(Account::default());
                    self.class_by_account.push(class);
                    self.accounts.len() - 1
                });
            self.account_by_job.push(account);
            self.series.set_user(account, job.user);
            self.outcomes.push(Outcome {
                submitted: job.submit_s.unwrap_or(0) * 1000,
                run_s: job.run_s().unwrap_or(0),
                ..Outcome::default()
            });
        }
    }

    /// Advances the clock. The current holdings lasted until `end`. A sample at exactly that moment
    /// is taken after all events of the moment.
    pub fn advance(&mut self, end: Moment) {
        while self.next_sample < end && self.next_sample <= self.last {
            self.sample();
            self.next_sample += self.sample_interval_ms;
        }
        let (counted_from, counted_until) = (
            self.now.clamp(self.first, self.last),
            end.clamp(self.first, self.last),
        );
        self.used_cpu_ms +=
            u128::from(self.held_cpu) * u128::from(counted_until.saturating_sub(counted_from));
        self.now = self.now.max(end);
    }

    pub fn record_submission(&mut self, job: usize) {
        let demand = self.task_share_by_job[job] * Share::from(self.tasks_by_job[job]);
        let account = self.account_by_job[job];
        self.accounts[account].demand += demand;
        self.demand += demand;
        self.active.insert(account);
    }

    /// Records that tasks of the job started.
    pub fn record_start(&mut self, job: usize, tasks: u64) {
        let share = self.task_share_by_job[job] * Share::from(tasks);
        self.accounts[self.account_by_job[job]].held += share;
        self.queues.add_share(self.outcomes[job].queue, share);
        self.held_cpu += self.task_cpu_by_job[job] * tasks;
        self.outcomes[job].started.get_or_insert(self.now);
    }

    /// Records that tasks of the job stopped, at their end or before.
    pub fn record_stop(&mut self, job: usize, tasks: u64) {
        let share = self.task_share_by_job[job] * Share::from(tasks);
        self.accounts[self.account_by_job[job]].held -= share;
        self.queues.remove_share(self.outcomes[job].queue, share);
        self.held_cpu -= self.task_cpu_by_job[job] * tasks;
    }

    /// Records that processes or a whole gang were preempted. `task_ms` is the lost run time in
    /// milliseconds, summed over the stopped tasks.
    pub fn record_preemption(&mut self, job: usize, count: u64, task_ms: u64) {
        let outcome = &mut self.outcomes[job];
        outcome.evictions += count;
        outcome.lost += u128::from(task_ms) * u128::from(self.task_cpu_by_job[job]);
    }

    pub fn record_end(&mut self, job: usize) {
        self.remove_demand(job);
        self.outcomes[job].ended = Some(self.now);
    }

    pub fn record_refusal(&mut self, job: usize, refusal: UnservedReason) {
        self.remove_demand(job);
        self.outcomes[job].refusal = Some(refusal);
    }

    pub fn has_never_started(&self, job: usize) -> bool {
        self.outcomes[job].started.is_none()
    }

    pub fn record_waiting(&mut self, job: usize, reason: UnservedReason) {
        self.outcomes[job].waiting_reason = Some(reason);
    }

    /// Records the queue of a job before its first start.
    pub fn record_queue(&mut self, job: usize, queue: &str) {
        self.outcomes[job].queue = Some(self.queues.index(queue));
    }

    fn remove_demand(&mut self, job: usize) {
        let demand = self.task_share_by_job[job] * Share::from(self.tasks_by_job[job]);
        let account = self.account_by_job[job];
        self.accounts[account].demand -= demand;
        self.demand -= demand;
        if self.accounts[account].demand == 0 {
            self.active.remove(&account);
        }
    }

    /// Samples the holdings. Fairness is measured only while demand exceeds the cluster, because
    /// otherwise all users can have what they want.
    fn sample(&mut self) {
        self.samples += 1;
        let cpu = CpuUse {
            used: self.held_cpu,
            capacity: self.capacity.cpu_milli,
        };
        let held = self
            .active
            .iter()
            .map(|account| (*account, self.accounts[*account].held));
        self.series
            .sample(self.next_sample, cpu, held, self.scale.total);
        let contended = self.demand > self.scale.total;
        self.queues.sample(contended);
        let held = self.queues.held_shares();
        self.series
            .sample_queues(self.next_sample, held, self.scale.total);
        if !contended {
            return;
        }
        self.contended_samples += 1;
        for (index, fair_share) in self.fair_shares() {
            let account = &mut self.accounts[index];
            account.fair_sum += fair_share;
            account.held_sum += account.held;
            self.shortfall_sum += fair_share.saturating_sub(account.held);
        }
    }

    /// Returns the current fair share of each account with unfinished jobs.
    fn fair_shares(&self) -> Vec<(usize, Share)> {
        let member = |account: &usize| Member {
            class: self.class_by_account[*account].index,
            class_weight: self.class_by_account[*account].weight,
            demand: self.accounts[*account].demand,
        };
        let members: Vec<Member> = self.active.iter().map(member).collect();
        let shares = divide_by_class_and_member(self.scale.total, &members);
        self.active.iter().copied().zip(shares).collect()
    }

    /// Ends the measurement. Adds the samples up to the end of the window and returns the results.
    pub fn close(mut self) -> Results {
        self.advance(self.last + 1);
        self.series.queue_names = self.queues.names();
        Results {
            summary: summary::summarize(&self),
            outcomes: self.outcomes,
            series: self.series,
        }
    }
}

/// All results of a finished simulation.
#[derive(Debug)]
pub struct Results {
    pub summary: Summary,
    /// Outcomes by job, in the order of [`Workload::runnable`].
    pub outcomes: Vec<Outcome>,
    pub series: Series,
}
