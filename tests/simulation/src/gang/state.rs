//! The state of the simulation: waiting jobs, running jobs with their nodes, and the remaining
//! work.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use super::Preemption;
use crate::{
    case::Case,
    cluster::{Cluster, Part, occupy, release},
    measure::{Fairness, Ledger, Moment, Results},
    share::{Share, Whole},
    trace::Job,
};

pub(super) struct Running {
    pub parts: Vec<Part>,
    started: Moment,
}

/// A user, or a user within a class.
#[derive(Default)]
pub(super) struct Account {
    pub class: (usize, u64),
    pub demand: Share,
    pub held: Share,
    /// Waiting jobs in order of submission.
    pub pending: BTreeSet<usize>,
}

pub(super) struct State<'a> {
    pub case: &'a Case<'a>,
    pub cluster: Cluster,
    pub whole: Whole,
    pub accounts: Vec<Account>,
    pub account_of: Vec<usize>,
    pub running: BTreeMap<usize, Running>,
    pub ends: BinaryHeap<Reverse<(Moment, usize, u64)>>,
    pub free_cpu: u64,
    ledger: Ledger,
    now: Moment,
    preemption: Preemption,
    /// Milliseconds left to run, by job.
    left: Vec<u64>,
    starts: Vec<u64>,
}

impl<'a> State<'a> {
    pub fn new(case: &'a Case<'a>, preemption: Preemption, fairness: &Fairness) -> Self {
        let cluster = Cluster::new(case.nodes);
        let mut known: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut accounts: Vec<Account> = Vec::new();
        let account = |job: &&Job| {
            let class = fairness.class_of(case.workload, job);
            *known.entry((class.0, job.user)).or_insert_with(|| {
                accounts.push(Account {
                    class,
                    ..Account::default()
                });
                accounts.len() - 1
            })
        };
        Self {
            account_of: case.jobs.iter().map(account).collect(),
            accounts,
            whole: Whole::new(cluster.capacity),
            ledger: Ledger::new(case.workload, &case.jobs, cluster.capacity, fairness),
            running: BTreeMap::new(),
            ends: BinaryHeap::new(),
            free_cpu: cluster.capacity.cpu_milli,
            cluster,
            now: 0,
            preemption,
            left: (0..case.jobs.len())
                .map(|job| case.run_s(job) * 1000)
                .collect(),
            starts: vec![0; case.jobs.len()],
            case,
        }
    }

    pub fn job(&self, job: usize) -> &'a Job {
        self.case.jobs[job]
    }

    pub fn weight(&self, job: usize) -> Share {
        let it = self.job(job);
        self.whole.weight(&it.need) * Share::from(it.tasks)
    }

    pub fn advance(&mut self, now: Moment) {
        self.now = now;
        self.ledger.advance(now);
    }

    /// Returns the time of the next end. Ends that were scheduled before a preemption are ignored.
    pub fn next_end(&mut self) -> Option<Moment> {
        while let Some(Reverse((at, job, start))) = self.ends.peek().copied() {
            if self.running.contains_key(&job) && self.starts[job] == start {
                return Some(at);
            }
            self.ends.pop();
        }
        None
    }

    pub fn submit(&mut self, job: usize) {
        let weight = self.weight(job);
        let account = &mut self.accounts[self.account_of[job]];
        account.demand += weight;
        account.pending.insert(job);
        self.ledger.submitted(job);
    }

    /// Starts a job. Returns false if it does not fit now.
    pub fn start(&mut self, job: usize) -> bool {
        let it = self.job(job);
        if it.need.cpu_milli.saturating_mul(it.tasks) > self.free_cpu {
            return false;
        }
        let free_space = &self.cluster.free_space;
        let Some(mut parts) = self.cluster.lay(it, free_space, free_space) else {
            return false;
        };
        occupy(&mut self.cluster.free_space, &it.need, &mut parts);
        self.free_cpu -= it.need.cpu_milli * it.tasks;
        let weight = self.weight(job);
        let account = &mut self.accounts[self.account_of[job]];
        account.held += weight;
        account.pending.remove(&job);
        self.starts[job] += 1;
        let end = self.now + self.left[job];
        self.ends.push(Reverse((end, job, self.starts[job])));
        let started = self.now;
        self.running.insert(job, Running { parts, started });
        self.ledger.gained(job, it.tasks);
        true
    }

    fn stop(&mut self, job: usize) -> Moment {
        let running = self.running.remove(&job).expect("what stops was running");
        let it = self.job(job);
        release(&mut self.cluster.free_space, &it.need, &running.parts);
        self.free_cpu += it.need.cpu_milli * it.tasks;
        let weight = self.weight(job);
        self.accounts[self.account_of[job]].held -= weight;
        self.ledger.gave_up(job, it.tasks);
        running.started
    }

    pub fn end(&mut self, job: usize) {
        self.stop(job);
        let weight = self.weight(job);
        self.accounts[self.account_of[job]].demand -= weight;
        self.ledger.ended(job);
    }

    /// Returns the milliseconds of run time that a running job would repeat after a preemption.
    fn vain_ms(&self, job: usize) -> u64 {
        let ran = self.ran_ms(job);
        let saves = self.preemption.checkpoint_s;
        saves.map_or(ran, |every| ran % (every.max(1) * 1000))
    }

    fn ran_ms(&self, job: usize) -> u64 {
        self.now - self.running[&job].started
    }

    pub fn is_protected(&self, job: usize) -> bool {
        let long = self.preemption.protected_s;
        long.is_some_and(|seconds| self.ran_ms(job) > seconds * 1000)
    }

    /// Returns the work that a preemption would lose, in thousandths of a core × milliseconds.
    pub fn loss(&self, job: usize) -> u128 {
        let it = self.job(job);
        u128::from(self.vain_ms(job)) * u128::from(it.tasks * it.need.cpu_milli)
    }

    pub fn preempt(&mut self, job: usize) {
        let vain = self.vain_ms(job);
        let started = self.stop(job);
        self.left[job] -= self.now - started - vain;
        self.accounts[self.account_of[job]].pending.insert(job);
        self.ledger.evicted(job, 1, vain * self.job(job).tasks);
    }

    pub fn close(self) -> Results {
        self.ledger.close()
    }
}
