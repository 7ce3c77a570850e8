//! The simulated fleet of malleable jobs: processes on nodes, and the remaining work.
//!
//! Invariants: a process is never on a node without space for it. `left` of a job is the work left
//! at `since` and changes only with the number of its processes.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use crate::{
    case::Case,
    cluster::{Cluster, FreeSpace},
    measure::{Fairness, Ledger, Moment, Refused, Results},
    share::Whole,
    trace::{Job, Need},
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

#[derive(Debug, Default)]
struct Run {
    /// Remaining work in process-milliseconds.
    left: u64,
    since: Moment,
    processes: Vec<usize>,
    /// Current version. Ends that were scheduled with an older version are ignored.
    version: u64,
}

pub struct SimulatedFleet<'a> {
    pub case: &'a Case<'a>,
    pub whole: Whole,
    cluster: Cluster,
    ledger: Ledger,
    now: Moment,
    runs: Vec<Run>,
    processes: Vec<Option<Process>>,
    vacant: Vec<usize>,
    /// Nodes ordered by free CPU.
    by_free: BTreeSet<(u64, usize)>,
    /// Jobs that are submitted and have not ended, in order of submission.
    unfinished: BTreeSet<usize>,
    ends: BinaryHeap<Reverse<(Moment, usize, u64)>>,
    submitted: usize,
    ended: Vec<usize>,
}

impl<'a> SimulatedFleet<'a> {
    pub(super) fn new(case: &'a Case<'a>, fairness: &Fairness) -> Self {
        let cluster = Cluster::new(case.nodes);
        let by_free = cluster.free_space.iter().enumerate();
        Self {
            case,
            whole: Whole::new(cluster.capacity),
            ledger: Ledger::new(case.workload, &case.jobs, cluster.capacity, fairness),
            now: case.jobs.first().map_or(0, |_| case.submit_s(0) * 1000),
            runs: case.jobs.iter().map(|_| Run::default()).collect(),
            processes: Vec::new(),
            vacant: Vec::new(),
            by_free: by_free
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

    pub fn held(&self, job: usize) -> u64 {
        self.runs[job].processes.len() as u64
    }

    pub fn process(&self, process: usize) -> &Process {
        self.processes[process]
            .as_ref()
            .expect("the process is there")
    }

    /// Returns the remaining work of a job at this moment in process-milliseconds.
    pub fn left(&self, job: usize) -> u64 {
        let run = &self.runs[job];
        let done = (self.now - run.since) * run.processes.len() as u64;
        run.left.saturating_sub(done)
    }

    /// Returns the length of one item of work in milliseconds.
    pub fn item_ms(&self, job: usize) -> u64 {
        (self.case.run_s(job) * 1000).clamp(1, ITEM_MS)
    }

    /// Returns the milliseconds of work that a preemption of the process would lose now.
    pub fn loss(&self, process: usize) -> u64 {
        let process = self.process(process);
        (self.now - process.started) % self.item_ms(process.job)
    }

    /// Returns the number of processes of this need that fit on the node.
    pub fn fitting(&self, node: usize, need: &Need) -> u64 {
        self.cluster.fitting(&self.cluster.free_space, node, need)
    }

    /// Returns whether a process would fit after these processes of the node are gone.
    pub fn would_fit(&self, node: usize, need: &Need, gone: &[usize]) -> bool {
        if !self.cluster.sites[node].accepts(need) {
            return false;
        }
        let mut space = self.cluster.free_space[node].clone();
        for process in gone {
            let process = self.process(*process);
            space.give(&self.job(process.job).need, 1, &process.gpus);
        }
        space.fitting(need) > 0
    }

    /// Returns the fullest node with space for the need.
    pub fn tightest(&self, need: &Need) -> Option<usize> {
        let able = self.by_free.range((need.cpu_milli, 0)..);
        able.map(|(_, node)| *node)
            .find(|node| self.fitting(*node, need) > 0)
    }

    /// Starts a process on the best suited GPUs of the node, and returns its number.
    pub fn start(&mut self, job: usize, node: usize) -> usize {
        let need = &self.job(job).need;
        let gpus = self.cluster.free_space[node].clone().take(need, 1);
        self.start_on(job, node, gpus)
    }

    /// Starts a process on GPUs chosen by the caller, which tracks free GPUs itself.
    pub fn start_on(&mut self, job: usize, node: usize, gpus: Vec<usize>) -> usize {
        self.settle(job);
        let need = &self.job(job).need;
        self.change_space(node, |space| space.take_these(need, 1, &gpus));
        let process = Process {
            job,
            node,
            started: self.now,
            gpus,
        };
        let at = self.vacant.pop().unwrap_or(self.processes.len());
        if at == self.processes.len() {
            self.processes.push(None);
        }
        self.processes[at] = Some(process);
        self.runs[job].processes.push(at);
        self.ledger.gained(job, 1);
        self.foretell(job);
        at
    }

    /// Preempts a process. The work since the end of its last item has to be repeated.
    pub fn evict(&mut self, process: usize) {
        let lost = self.loss(process);
        let job = self.process(process).job;
        self.settle(job);
        self.runs[job].left += lost;
        self.remove(process);
        self.ledger.evicted(job, 1, lost);
        self.foretell(job);
    }

    /// Removes a process for which there is no more work. No work is lost.
    fn remove(&mut self, process: usize) {
        let gone = self.processes[process]
            .take()
            .expect("the process is there");
        self.vacant.push(process);
        self.runs[gone.job].processes.retain(|at| *at != process);
        let need = &self.job(gone.job).need;
        self.change_space(gone.node, |space| space.give(need, 1, &gone.gpus));
        self.ledger.gave_up(gone.job, 1);
    }

    fn change_space<T>(&mut self, node: usize, change: impl FnOnce(&mut FreeSpace) -> T) -> T {
        let space = &mut self.cluster.free_space[node];
        self.by_free.remove(&(space.cpu_milli, node));
        let answer = change(space);
        self.by_free.insert((space.cpu_milli, node));
        answer
    }

    fn settle(&mut self, job: usize) {
        let left = self.left(job);
        let run = &mut self.runs[job];
        (run.left, run.since) = (left, self.now);
    }

    fn foretell(&mut self, job: usize) {
        let run = &mut self.runs[job];
        run.version += 1;
        if !run.processes.is_empty() {
            let at = self.now + run.left.div_ceil(run.processes.len() as u64);
            self.ends.push(Reverse((at, job, run.version)));
        }
    }

    pub(super) fn next_end(&mut self) -> Option<Moment> {
        while let Some(Reverse((at, job, version))) = self.ends.peek().copied() {
            if self.runs[job].version == version {
                return Some(at);
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
        self.runs[job].left = self.case.run_s(job) * 1000 * self.job(job).tasks;
        self.runs[job].since = self.now;
        self.unfinished.insert(job);
        self.submitted = job + 1;
        self.ledger.submitted(job);
    }

    /// Ends one job that has no work left. Returns false if there is none.
    pub(super) fn end_one(&mut self) -> bool {
        if self.next_end().is_none_or(|at| at > self.now) {
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
        self.ledger.ended(job);
        true
    }

    /// Records the queue that the policy chose for the job.
    pub fn enters(&mut self, job: usize, queue: &str) {
        self.ledger.enters(job, queue);
    }

    /// Records that the job will never be served. It holds nothing.
    pub fn refuse(&mut self, job: usize, refused: Refused) {
        debug_assert!(self.runs[job].processes.is_empty(), "what runs was served");
        self.unfinished.remove(&job);
        self.ledger.refused(job, refused);
    }

    /// Returns the jobs that hold nothing and never did.
    pub fn never_started(&self) -> Vec<usize> {
        let waiting = self.unfinished.iter().copied();
        let waiting = waiting.filter(|job| self.ledger.never_started(*job));
        waiting.collect()
    }

    /// Records a job that would wait for ever.
    pub fn still_waits(&mut self, job: usize, why: Refused) {
        let id = &self.case.jobs[job].id;
        let detail = format!("job {id}: {}", why.detail);
        self.ledger.still_waits(job, Refused { detail, ..why });
    }

    pub(super) fn close(self) -> Results {
        self.ledger.close()
    }
}
