//! The simulated fleet of malleable jobs: processes on nodes, and the remaining work.
//!
//! Invariants: a process is never on a node without space for it. The remaining work of a job is
//! stored as of `updated_at` and changes only with the number of its processes.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use crate::{
    case::Case,
    cluster::{Cluster, FreeSpace},
    fair_shares::ShareScale,
    measure::{Fairness, Ledger, Moment, Results, UnservedReason},
    trace::{Job, TaskRequest},
};

/// The longest item of work in milliseconds. A preempted process loses at most this much.
const ITEM_MS: u64 = 300_000;

#[derive(Debug)]
pub struct Process {
    pub job: usize,
    pub node: usize,
    pub started: Moment,
    gpus: Vec<usize>,
}

/// Progress of one job.
#[derive(Debug, Default)]
struct Run {
    /// Remaining work in process-milliseconds.
    remaining_work: u64,
    updated_at: Moment,
    processes: Vec<usize>,
    /// Current version. Ends that were scheduled with an older version are ignored.
    version: u64,
}

pub struct SimulatedFleet<'a> {
    pub case: &'a Case<'a>,
    pub scale: ShareScale,
    cluster: Cluster,
    ledger: Ledger,
    now: Moment,
    runs: Vec<Run>,
    /// Processes by number. `None` for a number that is free.
    processes: Vec<Option<Process>>,
    free_indices: Vec<usize>,
    /// Nodes ordered by free CPU.
    nodes_by_free_cpu: BTreeSet<(u64, usize)>,
    /// Jobs that are submitted and have not ended, in order of submission.
    unfinished: BTreeSet<usize>,
    /// Scheduled ends: time, job, and version of its run.
    ends: BinaryHeap<Reverse<(Moment, usize, u64)>>,
    /// Number of submitted jobs.
    submitted: usize,
    /// Jobs that ended since the last call of `drain_ended`.
    ended: Vec<usize>,
}

impl<'a> SimulatedFleet<'a> {
    pub(super) fn new(case: &'a Case<'a>, fairness: &Fairness) -> Self {
        let cluster = Cluster::new(case.nodes);
        let nodes_by_free_cpu = cluster.free_space.iter().enumerate();
        Self {
            case,
            scale: ShareScale::new(cluster.capacity),
            ledger: Ledger::new(case.workload, &case.jobs, cluster.capacity, fairness),
            now: case.jobs.first().map_or(0, |_| case.submit_s(0) * 1000),
            runs: case.jobs.iter().map(|_| Run::default()).collect(),
            processes: Vec::new(),
            free_indices: Vec::new(),
            nodes_by_free_cpu: nodes_by_free_cpu
                .map(|(node, space)| (space.cpu_milli, node))
                .collect(),
            unfinished: BTreeSet::new(),
            ends: BinaryHeap::new(),
            submitted: 0,
            ended: Vec::new(),
            cluster,
        }
    }

    pub fn now(&self) -> Moment {
        self.now
    }

    pub fn job(&self, job: usize) -> &'a Job {
        self.case.jobs[job]
    }

    pub fn unfinished(&self) -> impl Iterator<Item = usize> {
        self.unfinished.iter().copied()
    }

    pub fn is_unfinished(&self, job: usize) -> bool {
        self.unfinished.contains(&job)
    }

    /// Returns the number of submitted jobs. Jobs with a lower index have been submitted.
    pub fn submitted(&self) -> usize {
        self.submitted
    }

    /// Returns the jobs that ended since the last call.
    pub fn drain_ended(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ended)
    }

    /// Returns the process numbers of a job, in no particular order.
    pub fn running(&self, job: usize) -> &[usize] {
        &self.runs[job].processes
    }

    pub fn process_count(&self, job: usize) -> u64 {
        self.runs[job].processes.len() as u64
    }

    pub fn process(&self, process: usize) -> &Process {
        self.processes[process]
            .as_ref()
            .expect("the process is there")
    }

    /// Returns the remaining work of a job at this moment in process-milliseconds.
    pub fn remaining_work(&self, job: usize) -> u64 {
        let run = &self.runs[job];
        let done = (self.now - run.updated_at) * run.processes.len() as u64;
        run.remaining_work.saturating_sub(done)
    }

    /// Returns the length of one item of work in milliseconds.
    pub fn item_ms(&self, job: usize) -> u64 {
        (self.case.run_s(job) * 1000).clamp(1, ITEM_MS)
    }

    /// Returns the milliseconds of work that a preemption of the process would lose now.
    pub fn lost_ms_if_preempted(&self, process: usize) -> u64 {
        let process = self.process(process);
        (self.now - process.started) % self.item_ms(process.job)
    }

    /// Returns the number of processes of this request that fit on the node.
    pub fn count_fitting(&self, node: usize, request: &TaskRequest) -> u64 {
        self.cluster
            .count_fitting(&self.cluster.free_space, node, request)
    }

    /// Returns whether a process would fit after these processes of the node are gone.
    pub fn would_fit(&self, node: usize, request: &TaskRequest, removed: &[usize]) -> bool {
        if !self.cluster.properties[node].accepts(request) {
            return false;
        }
        let mut space = self.cluster.free_space[node].clone();
        for process in removed {
            let process = self.process(*process);
            space.release(&self.job(process.job).request, 1, &process.gpus);
        }
        space.count_fitting(request) > 0
    }

    /// Returns the fullest node with space for the request.
    pub fn find_tightest_node(&self, request: &TaskRequest) -> Option<usize> {
        let candidates = self.nodes_by_free_cpu.range((request.cpu_milli, 0)..);
        candidates
            .map(|(_, node)| *node)
            .find(|node| self.count_fitting(*node, request) > 0)
    }

    /// Starts a process on the best suited GPUs of the node, and returns its number.
    pub fn start(&mut self, job: usize, node: usize) -> usize {
        let request = &self.job(job).request;
        let gpus = self.cluster.free_space[node].clone().allocate(request, 1);
        self.start_on_gpus(job, node, gpus)
    }

    /// Starts a process on GPUs chosen by the caller, which tracks free GPUs itself.
    pub fn start_on_gpus(&mut self, job: usize, node: usize, gpus: Vec<usize>) -> usize {
        self.update_remaining_work(job);
        let request = &self.job(job).request;
        self.change_space(node, |space| space.allocate_on(request, 1, &gpus));
        let process = Process {
            job,
            node,
            started: self.now,
            gpus,
        };
        let index = self.free_indices.pop().unwrap_or(self.processes.len());
        if index == self.processes.len() {
            self.processes.push(None);
        }
        self.processes[index] = Some(process);
        self.runs[job].processes.push(index);
        self.ledger.record_start(job, 1);
        self.schedule_end(job);
        index
    }

    /// Preempts a process. The work since the end of its last item has to be repeated.
    pub fn preempt(&mut self, process: usize) {
        let lost = self.lost_ms_if_preempted(process);
        let job = self.process(process).job;
        self.update_remaining_work(job);
        self.runs[job].remaining_work += lost;
        self.remove(process);
        self.ledger.record_preemption(job, 1, lost);
        self.schedule_end(job);
    }

    /// Removes a process for which there is no more work. No work is lost.
    fn remove(&mut self, process: usize) {
        let removed = self.processes[process]
            .take()
            .expect("the process is there");
        self.free_indices.push(process);
        self.runs[removed.job]
            .processes
            .retain(|index| *index != process);
        let request = &self.job(removed.job).request;
        self.change_space(removed.node, |space| {
            space.release(request, 1, &removed.gpus);
        });
        self.ledger.record_stop(removed.job, 1);
    }

    fn change_space<T>(&mut self, node: usize, change: impl FnOnce(&mut FreeSpace) -> T) -> T {
        let space = &mut self.cluster.free_space[node];
        self.nodes_by_free_cpu.remove(&(space.cpu_milli, node));
        let result = change(space);
        self.nodes_by_free_cpu.insert((space.cpu_milli, node));
        result
    }

    fn update_remaining_work(&mut self, job: usize) {
        let remaining_work = self.remaining_work(job);
        let run = &mut self.runs[job];
        (run.remaining_work, run.updated_at) = (remaining_work, self.now);
    }

    fn schedule_end(&mut self, job: usize) {
        let run = &mut self.runs[job];
        run.version += 1;
        if !run.processes.is_empty() {
            let end = self.now + run.remaining_work.div_ceil(run.processes.len() as u64);
            self.ends.push(Reverse((end, job, run.version)));
        }
    }

    pub(super) fn next_end(&mut self) -> Option<Moment> {
        while let Some(Reverse((end, job, version))) = self.ends.peek().copied() {
            if self.runs[job].version == version {
                return Some(end);
            }
            self.ends.pop();
        }
        None
    }

    pub(super) fn advance(&mut self, now: Moment) {
        self.now = now;
        self.ledger.advance(now);
    }

    pub(super) fn submit(&mut self, job: usize) {
        debug_assert!(self.submitted <= job, "jobs arrive in their order");
        self.runs[job].remaining_work = self.case.run_s(job) * 1000 * self.job(job).tasks;
        self.runs[job].updated_at = self.now;
        self.unfinished.insert(job);
        self.submitted = job + 1;
        self.ledger.record_submission(job);
    }

    /// Ends one job that has no work left. Returns false if there is none.
    pub(super) fn end_one(&mut self) -> bool {
        if self.next_end().is_none_or(|end| end > self.now) {
            return false;
        }
        let Some(Reverse((_, job, _))) = self.ends.pop() else {
            return false;
        };
        self.runs[job].version += 1;
        for process in self.runs[job].processes.clone() {
            self.remove(process);
        }
        self.unfinished.remove(&job);
        self.ended.push(job);
        self.ledger.record_end(job);
        true
    }

    /// Records the queue that the policy chose for the job.
    pub fn record_queue(&mut self, job: usize, queue: &str) {
        self.ledger.record_queue(job, queue);
    }

    /// Records that the job will never be served. The job must have no process.
    pub fn refuse(&mut self, job: usize, reason: UnservedReason) {
        debug_assert!(
            self.runs[job].processes.is_empty(),
            "a job that runs is not refused"
        );
        self.unfinished.remove(&job);
        self.ledger.record_refusal(job, reason);
    }

    /// Returns the unfinished jobs that never had a process.
    pub fn never_started(&self) -> Vec<usize> {
        let waiting = self.unfinished.iter().copied();
        let waiting = waiting.filter(|job| self.ledger.has_never_started(*job));
        waiting.collect()
    }

    /// Records why a job would wait for ever.
    pub fn record_waiting(&mut self, job: usize, reason: UnservedReason) {
        let id = &self.case.jobs[job].id;
        let detail = format!("job {id}: {}", reason.detail);
        self.ledger
            .record_waiting(job, UnservedReason { detail, ..reason });
    }

    pub(super) fn close(self) -> Results {
        self.ledger.close()
    }
}
