//! Batch scheduling of rigid jobs without preemption: all tasks start together and run to the end.
//!
//! Time is in whole seconds. At equal times, ends are handled before arrivals. The queue is
//! scheduled once for each second with an event.

mod backfill;
mod priority;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use backfill::Reservation;
use priority::Priorities;

use crate::{
    case::{Case, Progress},
    cluster::{Cluster, Part, occupy, release},
    measure::{Fairness, Ledger, Results},
    trace::Job,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// First come, first served: the oldest job starts when it fits, and no job overtakes it.
    Fcfs,
    /// EASY backfill: as FCFS, but a later job may start if it does not delay the oldest one.
    Easy,
    /// EASY over a queue sorted by the recent usage of each user.
    FairEasy,
}

pub fn simulate(
    case: &Case,
    discipline: Discipline,
    fairness: &Fairness,
    progress: Progress,
) -> Results {
    let mut batch = Batch::new(case, discipline, fairness);
    let mut arrivals = (0..case.jobs.len()).peekable();
    loop {
        let arrival = arrivals.peek().map(|job| case.submit_s(*job));
        let end = batch.ends.peek().map(|Reverse((at, _))| *at);
        let Some(now) = [arrival, end].into_iter().flatten().min() else {
            break;
        };
        batch.advance(now);
        while let Some(Reverse((at, job))) = batch.ends.peek().copied()
            && at == now
        {
            batch.ends.pop();
            batch.end(job);
            progress(batch.done);
        }
        while let Some(job) = arrivals.next_if(|job| case.submit_s(*job) == now) {
            batch.ledger.submitted(job);
            batch.queue.push(job);
        }
        batch.schedule();
    }
    batch.ledger.close()
}

struct Batch<'a> {
    case: &'a Case<'a>,
    discipline: Discipline,
    cluster: Cluster,
    ledger: Ledger,
    priorities: Priorities,
    now: u64,
    /// Waiting jobs, the next to start first.
    queue: Vec<usize>,
    /// Running jobs by the second at which their limit ends. A job without a limit has the largest
    /// value.
    running: BTreeMap<(u64, usize), Vec<Part>>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Free CPU on all nodes. A job that needs more is not tried.
    free_cpu: u64,
    done: usize,
    expected: Vec<u64>,
}

impl<'a> Batch<'a> {
    fn new(case: &'a Case<'a>, discipline: Discipline, fairness: &Fairness) -> Self {
        let cluster = Cluster::new(case.nodes);
        Self {
            case,
            discipline,
            ledger: Ledger::new(case.workload, &case.jobs, cluster.capacity, fairness),
            priorities: Priorities::new(case),
            now: 0,
            queue: Vec::new(),
            running: BTreeMap::new(),
            ends: BinaryHeap::new(),
            free_cpu: cluster.capacity.cpu_milli,
            cluster,
            done: 0,
            expected: vec![0; case.jobs.len()],
        }
    }

    fn job(&self, job: usize) -> &'a Job {
        self.case.jobs[job]
    }

    fn advance(&mut self, now: u64) {
        if self.discipline == Discipline::FairEasy {
            self.priorities.advance(now);
        }
        self.now = now;
        self.ledger.advance(now * 1000);
    }

    fn end(&mut self, job: usize) {
        let parts = self.running.remove(&(self.expected[job], job));
        let parts = parts.expect("what ends was running");
        let it = self.job(job);
        release(&mut self.cluster.free_space, &it.need, &parts);
        self.free_cpu += it.need.cpu_milli * it.tasks;
        self.priorities.stopped(it);
        self.ledger.gave_up(job, it.tasks);
        self.ledger.ended(job);
        self.done += 1;
    }

    fn start(&mut self, job: usize, parts: Vec<Part>) {
        let it = self.job(job);
        self.free_cpu -= it.need.cpu_milli * it.tasks;
        self.priorities.started(it);
        self.ledger.gained(job, it.tasks);
        self.expected[job] = it
            .limit_s
            .map_or(u64::MAX, |limit| self.now.saturating_add(limit));
        self.running.insert((self.expected[job], job), parts);
        let end = self.now + self.case.run_s(job);
        self.ends.push(Reverse((end, job)));
    }

    fn schedule(&mut self) {
        if self.discipline == Discipline::FairEasy {
            self.priorities.sort(&mut self.queue, self.case, self.now);
        }
        let mut started = 0;
        while let Some(job) = self.queue.get(started).copied()
            && self.start_anywhere(job)
        {
            started += 1;
        }
        self.queue.drain(..started);
        if self.discipline != Discipline::Fcfs && self.queue.len() > 1 {
            self.backfill();
        }
    }

    fn start_anywhere(&mut self, job: usize) -> bool {
        let it = self.job(job);
        if self.is_hopeless(it) {
            return false;
        }
        let free_space = &self.cluster.free_space;
        let Some(mut parts) = self.cluster.lay(it, free_space, free_space) else {
            return false;
        };
        occupy(&mut self.cluster.free_space, &it.need, &mut parts);
        self.start(job, parts);
        true
    }

    fn is_hopeless(&self, job: &Job) -> bool {
        job.need.cpu_milli.saturating_mul(job.tasks) > self.free_cpu
    }

    fn backfill(&mut self) {
        let head = self.job(self.queue[0]);
        let mut reservation = Reservation::for_head(self, head);
        let mut waiting = vec![self.queue[0]];
        for job in self.queue.split_off(1) {
            if !self.overtakes(job, &mut reservation) {
                waiting.push(job);
            }
        }
        self.queue = waiting;
    }

    /// Starts the job if that does not delay the head of the queue.
    fn overtakes(&mut self, job: usize, reservation: &mut Reservation) -> bool {
        let it = self.job(job);
        if self.is_hopeless(it) {
            return false;
        }
        let in_time = it
            .limit_s
            .is_some_and(|limit| self.now.saturating_add(limit) <= reservation.at);
        let free_space = &self.cluster.free_space;
        let allowed = if in_time {
            free_space
        } else {
            &reservation.both
        };
        let Some(mut parts) = self.cluster.lay(it, allowed, free_space) else {
            return false;
        };
        if in_time {
            occupy(&mut self.cluster.free_space, &it.need, &mut parts);
        } else {
            occupy(&mut reservation.both, &it.need, &mut parts);
            for part in &parts {
                for free_space in [&mut self.cluster.free_space, &mut reservation.left] {
                    free_space[part.node].take_these(&it.need, part.tasks, &part.gpus);
                }
            }
        }
        reservation.refresh(&self.cluster.free_space, &parts);
        self.start(job, parts);
        true
    }
}

#[cfg(test)]
mod tests;
