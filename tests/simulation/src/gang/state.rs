//! The state of the simulation: waiting jobs, running jobs with their nodes, and the remaining
//! work. A job is named by its index in [`Case::jobs`].

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use super::Preemption;
use crate::{
    case::Case,
    cluster::{Cluster, Placement, occupy, release},
    fair_shares::{Share, ShareScale},
    measure::{Fairness, Ledger, Moment, Results, WeightedClass},
    trace::Job,
};

pub(super) struct Running {
    pub placements: Vec<Placement>,
    started: Moment,
}

/// A user, or a user within a class.
#[derive(Default)]
pub(super) struct Account {
    pub class: WeightedClass,
    /// Share that all unfinished jobs would hold at once.
    pub demand: Share,
    /// Share of the running jobs.
    pub held: Share,
    /// Waiting jobs in order of submission.
    pub pending: BTreeSet<usize>,
}

pub(super) struct State<'a> {
    pub case: &'a Case<'a>,
    pub cluster: Cluster,
    pub scale: ShareScale,
    pub accounts: Vec<Account>,
    pub account_by_job: Vec<usize>,
    pub running: BTreeMap<usize, Running>,
    /// Scheduled ends: time, job, and the number of starts of the job when the end was scheduled.
    pub ends: BinaryHeap<Reverse<(Moment, usize, u64)>>,
    /// Free CPU on all nodes. A job that needs more is not tried.
    pub free_cpu: u64,
    ledger: Ledger,
    now: Moment,
    preemption: Preemption,
    /// Milliseconds left to run, by job.
    remaining_ms: Vec<u64>,
    /// Number of starts, by job.
    start_counts: Vec<u64>,
}

impl<'a> State<'a> {
    pub fn new(case: &'a Case<'a>, preemption: Preemption, fairness: &Fairness) -> Self {
        let cluster = Cluster::new(case.nodes);
        let mut account_index: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut accounts: Vec<Account> = Vec::new();
        let account = |job: &&Job| {
            let class = fairness.weighted_class(case.workload, job);
            *account_index
                .entry((class.index, job.user))
                .or_insert_with(|| {
                    accounts.push(Account {
                        class,
                        ..Account::default()
                    });
                    accounts.len() - 1
                })
        };
        Self {
            account_by_job: case.jobs.iter().map(account).collect(),
            accounts,
            scale: ShareScale::new(cluster.capacity),
            ledger: Ledger::new(case.workload, &case.jobs, cluster.capacity, fairness),
            running: BTreeMap::new(),
            ends: BinaryHeap::new(),
            free_cpu: cluster.capacity.cpu_milli,
            cluster,
            now: 0,
            preemption,
            remaining_ms: (0..case.jobs.len())
                .map(|job| case.run_s(job) * 1000)
                .collect(),
            start_counts: vec![0; case.jobs.len()],
            case,
        }
    }

    pub fn job(&self, job: usize) -> &'a Job {
        self.case.jobs[job]
    }

    pub fn dominant_share(&self, job: usize) -> Share {
        let spec = self.job(job);
        self.scale.dominant_share(&spec.request) * Share::from(spec.tasks)
    }

    pub fn advance(&mut self, now: Moment) {
        self.now = now;
        self.ledger.advance(now);
    }

    /// Returns the time of the next end. Ends that were scheduled before a preemption are ignored.
    pub fn next_end(&mut self) -> Option<Moment> {
        while let Some(Reverse((end_ms, job, start))) = self.ends.peek().copied() {
            if self.running.contains_key(&job) && self.start_counts[job] == start {
                return Some(end_ms);
            }
            self.ends.pop();
        }
        None
    }

    pub fn submit(&mut self, job: usize) {
        let share = self.dominant_share(job);
        let account = &mut self.accounts[self.account_by_job[job]];
        account.demand += share;
        account.pending.insert(job);
        self.ledger.record_submission(job);
    }

    /// Starts a job. Returns false if it does not fit now.
    pub fn start(&mut self, job: usize) -> bool {
        let spec = self.job(job);
        if spec.request.cpu_milli.saturating_mul(spec.tasks) > self.free_cpu {
            return false;
        }
        let free_space = &self.cluster.free_space;
        let Some(mut placements) = self.cluster.find_placements(spec, free_space, free_space)
        else {
            return false;
        };
        occupy(&mut self.cluster.free_space, &spec.request, &mut placements);
        self.free_cpu -= spec.request.cpu_milli * spec.tasks;
        let share = self.dominant_share(job);
        let account = &mut self.accounts[self.account_by_job[job]];
        account.held += share;
        account.pending.remove(&job);
        self.start_counts[job] += 1;
        let end = self.now + self.remaining_ms[job];
        self.ends.push(Reverse((end, job, self.start_counts[job])));
        let started = self.now;
        self.running.insert(
            job,
            Running {
                placements,
                started,
            },
        );
        self.ledger.record_start(job, spec.tasks);
        true
    }

    /// Stops a running job. Returns the time of its last start.
    fn stop(&mut self, job: usize) -> Moment {
        let running = self
            .running
            .remove(&job)
            .expect("a job that stops was running");
        let spec = self.job(job);
        release(
            &mut self.cluster.free_space,
            &spec.request,
            &running.placements,
        );
        self.free_cpu += spec.request.cpu_milli * spec.tasks;
        let share = self.dominant_share(job);
        self.accounts[self.account_by_job[job]].held -= share;
        self.ledger.record_stop(job, spec.tasks);
        running.started
    }

    pub fn end(&mut self, job: usize) {
        self.stop(job);
        let share = self.dominant_share(job);
        self.accounts[self.account_by_job[job]].demand -= share;
        self.ledger.record_end(job);
    }

    /// Returns the milliseconds of run time that a running job would repeat after a preemption.
    fn lost_run_ms(&self, job: usize) -> u64 {
        let run_ms = self.ran_ms(job);
        let checkpoint_s = self.preemption.checkpoint_s;
        checkpoint_s.map_or(run_ms, |interval_s| run_ms % (interval_s.max(1) * 1000))
    }

    fn ran_ms(&self, job: usize) -> u64 {
        self.now - self.running[&job].started
    }

    pub fn is_protected(&self, job: usize) -> bool {
        let protected_s = self.preemption.protected_s;
        protected_s.is_some_and(|seconds| self.ran_ms(job) > seconds * 1000)
    }

    /// Returns the work that a preemption would lose, in thousandths of a core × milliseconds.
    pub fn preemption_loss(&self, job: usize) -> u128 {
        let spec = self.job(job);
        u128::from(self.lost_run_ms(job)) * u128::from(spec.tasks * spec.request.cpu_milli)
    }

    pub fn preempt(&mut self, job: usize) {
        let lost_ms = self.lost_run_ms(job);
        let started = self.stop(job);
        self.remaining_ms[job] -= self.now - started - lost_ms;
        self.accounts[self.account_by_job[job]].pending.insert(job);
        self.ledger
            .record_preemption(job, 1, lost_ms * self.job(job).tasks);
    }

    pub fn close(self) -> Results {
        self.ledger.close()
    }
}
