//! Batch scheduling of rigid jobs without preemption: all tasks start together and run to the end.
//!
//! Time is in whole seconds. At equal times, ends are handled before arrivals. The queue is
//! scheduled once for each second with an event. A job is named by its index in [`Case::jobs`].

mod priority;
mod reservation;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use priority::Priorities;
use reservation::Reservation;

use crate::{
    case::{Case, Progress},
    cluster::{Cluster, Placement, occupy, release},
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
        let end = batch.ends.peek().map(|Reverse((end_s, _))| *end_s);
        let Some(now) = [arrival, end].into_iter().flatten().min() else {
            break;
        };
        batch.advance(now);
        while let Some(Reverse((end_s, job))) = batch.ends.peek().copied()
            && end_s == now
        {
            batch.ends.pop();
            batch.end(job);
            progress(batch.finished);
        }
        while let Some(job) = arrivals.next_if(|job| case.submit_s(*job) == now) {
            batch.ledger.record_submission(job);
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
    running: BTreeMap<(u64, usize), Vec<Placement>>,
    /// Ends of the running jobs, each with its second.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Free CPU on all nodes. A job that needs more is not tried.
    free_cpu: u64,
    finished: usize,
    /// Second at which the limit of each started job ends.
    expected_end_s: Vec<u64>,
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
            finished: 0,
            expected_end_s: vec![0; case.jobs.len()],
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
        let placements = self.running.remove(&(self.expected_end_s[job], job));
        let placements = placements.expect("a job that ends was running");
        let spec = self.job(job);
        release(&mut self.cluster.free_space, &spec.request, &placements);
        self.free_cpu += spec.request.cpu_milli * spec.tasks;
        self.priorities.record_stop(spec);
        self.ledger.record_stop(job, spec.tasks);
        self.ledger.record_end(job);
        self.finished += 1;
    }

    fn start(&mut self, job: usize, placements: Vec<Placement>) {
        let spec = self.job(job);
        self.free_cpu -= spec.request.cpu_milli * spec.tasks;
        self.priorities.record_start(spec);
        self.ledger.record_start(job, spec.tasks);
        self.expected_end_s[job] = spec
            .limit_s
            .map_or(u64::MAX, |limit| self.now.saturating_add(limit));
        self.running
            .insert((self.expected_end_s[job], job), placements);
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

    /// Starts the job if it fits on any nodes now.
    fn start_anywhere(&mut self, job: usize) -> bool {
        let spec = self.job(job);
        if self.exceeds_free_cpu(spec) {
            return false;
        }
        let free_space = &self.cluster.free_space;
        let Some(mut placements) = self.cluster.find_placements(spec, free_space, free_space)
        else {
            return false;
        };
        occupy(&mut self.cluster.free_space, &spec.request, &mut placements);
        self.start(job, placements);
        true
    }

    fn exceeds_free_cpu(&self, job: &Job) -> bool {
        job.request.cpu_milli.saturating_mul(job.tasks) > self.free_cpu
    }

    /// Starts all waiting jobs that do not delay the head of the queue, which has a reservation.
    fn backfill(&mut self) {
        let head = self.job(self.queue[0]);
        let mut reservation = Reservation::for_head(self, head);
        let mut waiting = vec![self.queue[0]];
        for job in self.queue.split_off(1) {
            if !self.try_backfill(job, &mut reservation) {
                waiting.push(job);
            }
        }
        self.queue = waiting;
    }

    /// Starts the job if that does not delay the head of the queue.
    fn try_backfill(&mut self, job: usize, reservation: &mut Reservation) -> bool {
        let spec = self.job(job);
        if self.exceeds_free_cpu(spec) {
            return false;
        }
        let ends_before_reservation = spec
            .limit_s
            .is_some_and(|limit| self.now.saturating_add(limit) <= reservation.start_s);
        // A job that ends before the start of the reservation may use any free space. Any other job
        // may use only space that the head of the queue does not need.
        let free_space = &self.cluster.free_space;
        let allowed = if ends_before_reservation {
            free_space
        } else {
            &reservation.free_throughout
        };
        let Some(mut placements) = self.cluster.find_placements(spec, allowed, free_space) else {
            return false;
        };
        if ends_before_reservation {
            occupy(&mut self.cluster.free_space, &spec.request, &mut placements);
        } else {
            occupy(
                &mut reservation.free_throughout,
                &spec.request,
                &mut placements,
            );
            for placement in &placements {
                for free_space in [
                    &mut self.cluster.free_space,
                    &mut reservation.free_after_start,
                ] {
                    free_space[placement.node].allocate_on(
                        &spec.request,
                        placement.tasks,
                        &placement.gpus,
                    );
                }
            }
        }
        reservation.refresh(&self.cluster.free_space, &placements);
        self.start(job, placements);
        true
    }
}

#[cfg(test)]
mod tests;
