//! The results of a simulation: waiting times, and what each user had compared to the fair share.
//!
//! The ledger records every submission, start, stop and end as it happens, and samples the shares
//! at fixed moments. It makes no decisions.

mod queues;
mod series;
mod summary;

use std::collections::{BTreeMap, BTreeSet};

use queues::Queues;
use series::CpuUse;
pub use series::{Bucket, Series};
pub use summary::{QueueSummary, RefusedJobs, Spread, Summary};
pub(crate) use summary::{flow_ms, real, slowdown, wait_ms};

use crate::{
    cluster::Capacity,
    share::{Member, Share, Whole, two_levels},
    trace::{Job, Workload},
};

/// Milliseconds between samples of the shares.
const SAMPLE_MS: u64 = 300_000;
/// Minimum number of samples. A shorter window is sampled more often.
const LEAST_SAMPLES: u64 = 300;

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
    /// Returns the class of a job, with its weight.
    pub(crate) fn class_of(&self, workload: &Workload, job: &Job) -> (usize, u64) {
        match self {
            Self::Users => (0, 1),
            Self::Classes(weights) => {
                let name = workload.classes.name(job.class);
                (job.class, weights.get(name).copied().unwrap_or(1))
            }
        }
    }
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
    pub refused: Option<Refused>,
    /// Why a job that never ran still waits at the end of the simulation. `None` for other jobs.
    pub waits: Option<Refused>,
}

/// Why a job is refused or waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// A reason from a closed list.
    pub reason: String,
    pub detail: String,
}

/// A user, or a user within a class.
#[derive(Debug, Clone, Default)]
struct Account {
    demand: Share,
    held: Share,
    fair_sum: Share,
    held_sum: Share,
}

#[derive(Debug)]
pub struct Ledger {
    whole: Whole,
    capacity: Capacity,
    /// Account of each job, as an index.
    account_of: Vec<usize>,
    weight_of: Vec<Share>,
    cpu_of: Vec<u64>,
    tasks_of: Vec<u64>,
    accounts: Vec<Account>,
    /// Class of each account, with the weight of the class.
    class_of: Vec<(usize, u64)>,
    /// Accounts with unfinished jobs.
    active: BTreeSet<usize>,
    demand: Share,
    held_cpu: u64,
    now: Moment,
    first: Moment,
    last: Moment,
    next_sample: Moment,
    every: u64,
    used: u128,
    samples: u64,
    contended: u64,
    below: Share,
    outcomes: Vec<Outcome>,
    queues: Queues,
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
        let whole = Whole::new(capacity);
        let submits = || jobs.iter().filter_map(|job| job.submit_s).map(|s| s * 1000);
        let first = submits().min().unwrap_or(0);
        let last = submits().max().unwrap_or(0);
        let every = SAMPLE_MS.min((last - first) / LEAST_SAMPLES).max(1);
        let mut ledger = Self {
            account_of: Vec::with_capacity(jobs.len()),
            weight_of: jobs.iter().map(|job| whole.weight(&job.need)).collect(),
            cpu_of: jobs.iter().map(|job| job.need.cpu_milli).collect(),
            tasks_of: jobs.iter().map(|job| job.tasks).collect(),
            whole,
            capacity,
            accounts: Vec::new(),
            class_of: Vec::new(),
            active: BTreeSet::new(),
            demand: 0,
            held_cpu: 0,
            now: first,
            first,
            last,
            next_sample: first,
            every,
            used: 0,
            samples: 0,
            contended: 0,
            below: 0,
            outcomes: Vec::new(),
            queues: Queues::default(),
            series: Series::new(workload, first, last),
        };
        ledger.open_accounts(workload, jobs, fairness);
        ledger
    }

    fn open_accounts(&mut self, workload: &Workload, jobs: &[&Job], fairness: &Fairness) {
        let mut known: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for job in jobs {
            let (class, weight) = fairness.class_of(workload, job);
            let at = *known.entry((class, job.user)).or_insert_with(|| {
                self.accounts.push(Account::default());
                self.class_of.push((class, weight));
                self.accounts.len() - 1
            });
            self.account_of.push(at);
            self.series.belongs(at, job.user);
            self.outcomes.push(Outcome {
                submitted: job.submit_s.unwrap_or(0) * 1000,
                run_s: job.run_s().unwrap_or(0),
                ..Outcome::default()
            });
        }
    }

    /// Advances the clock. The current holdings lasted until `to`. A sample at exactly that moment
    /// is taken after all events of the moment.
    pub fn advance(&mut self, to: Moment) {
        while self.next_sample < to && self.next_sample <= self.last {
            self.sample();
            self.next_sample += self.every;
        }
        let (from, until) = (
            self.now.clamp(self.first, self.last),
            to.clamp(self.first, self.last),
        );
        self.used += u128::from(self.held_cpu) * u128::from(until.saturating_sub(from));
        self.now = self.now.max(to);
    }

    pub fn submitted(&mut self, job: usize) {
        let demand = self.weight_of[job] * Share::from(self.tasks_of[job]);
        let account = self.account_of[job];
        self.accounts[account].demand += demand;
        self.demand += demand;
        self.active.insert(account);
    }

    /// Records that tasks of the job started.
    pub fn gained(&mut self, job: usize, tasks: u64) {
        let share = self.weight_of[job] * Share::from(tasks);
        self.accounts[self.account_of[job]].held += share;
        self.queues.gained(self.outcomes[job].queue, share);
        self.held_cpu += self.cpu_of[job] * tasks;
        self.outcomes[job].started.get_or_insert(self.now);
    }

    /// Records that tasks of the job stopped, at their end or before.
    pub fn gave_up(&mut self, job: usize, tasks: u64) {
        let share = self.weight_of[job] * Share::from(tasks);
        self.accounts[self.account_of[job]].held -= share;
        self.queues.gave_up(self.outcomes[job].queue, share);
        self.held_cpu -= self.cpu_of[job] * tasks;
    }

    /// Records that processes or a whole gang were preempted. Each core lost this many milliseconds
    /// of work.
    pub fn evicted(&mut self, job: usize, count: u64, task_ms: u64) {
        let outcome = &mut self.outcomes[job];
        outcome.evictions += count;
        outcome.lost += u128::from(task_ms) * u128::from(self.cpu_of[job]);
    }

    pub fn ended(&mut self, job: usize) {
        self.leaves(job);
        self.outcomes[job].ended = Some(self.now);
    }

    pub fn refused(&mut self, job: usize, refused: Refused) {
        self.leaves(job);
        self.outcomes[job].refused = Some(refused);
    }

    pub fn never_started(&self, job: usize) -> bool {
        self.outcomes[job].started.is_none()
    }

    pub fn still_waits(&mut self, job: usize, why: Refused) {
        self.outcomes[job].waits = Some(why);
    }

    /// Records the queue of a job before its first start.
    pub fn enters(&mut self, job: usize, queue: &str) {
        self.outcomes[job].queue = Some(self.queues.index(queue));
    }

    fn leaves(&mut self, job: usize) {
        let demand = self.weight_of[job] * Share::from(self.tasks_of[job]);
        let account = self.account_of[job];
        self.accounts[account].demand -= demand;
        self.demand -= demand;
        if self.accounts[account].demand == 0 {
            self.active.remove(&account);
        }
    }

    fn sample(&mut self) {
        self.samples += 1;
        let cpu = CpuUse {
            used: self.held_cpu,
            capacity: self.capacity.cpu_milli,
        };
        let held = self.active.iter().map(|at| (*at, self.accounts[*at].held));
        self.series
            .sample(self.next_sample, cpu, held, self.whole.parts);
        let contended = self.demand > self.whole.parts;
        self.queues.sample(contended);
        let held = self.queues.held();
        self.series
            .sample_queues(self.next_sample, held, self.whole.parts);
        if !contended {
            return;
        }
        self.contended += 1;
        for (at, fair) in self.fair() {
            let account = &mut self.accounts[at];
            account.fair_sum += fair;
            account.held_sum += account.held;
            self.below += fair.saturating_sub(account.held);
        }
    }

    /// Returns the current fair share of each account.
    fn fair(&self) -> Vec<(usize, Share)> {
        let member = |at: &usize| Member {
            class: self.class_of[*at].0,
            class_weight: self.class_of[*at].1,
            demand: self.accounts[*at].demand,
        };
        let members: Vec<Member> = self.active.iter().map(member).collect();
        let parts = two_levels(self.whole.parts, &members);
        self.active.iter().copied().zip(parts).collect()
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
