//! Workloads as they were recorded, in the words of the simulator. Amounts are integers with their
//! unit in the name; what the source did not know is absent.

mod csv;
mod field;
mod open;
mod swf;

use std::collections::BTreeMap;

pub use csv::{read_arrivals, read_jobs, read_nodes};
pub use field::{Bad, Fault, TraceError};
pub use open::{open, open_jobs};
pub use swf::read_swf;

/// A piece of recorded work: equal tasks that were submitted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: String,
    /// Index into [`Workload::users`].
    pub user: usize,
    /// Index into [`Workload::classes`].
    pub class: usize,
    /// The queue it asked for: an index into [`Workload::queues`].
    pub queue: Option<usize>,
    pub submit_s: Option<u64>,
    /// Absent when it never ran.
    pub runtime_s: Option<u64>,
    pub limit_s: Option<u64>,
    pub tasks: u64,
    /// What each task takes.
    pub need: Need,
}

impl Job {
    /// Seconds that it runs when nothing disturbs it: the source system kills it at its limit.
    pub fn run_s(&self) -> Option<u64> {
        let runtime = self.runtime_s?;
        Some(self.limit_s.map_or(runtime, |limit| runtime.min(limit)))
    }
}

/// What one task takes on its node, and which nodes it accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    pub cpu_milli: u64,
    pub memory_mib: u64,
    pub gpu_count: u64,
    /// Of each of the gpus.
    pub gpu_milli: u64,
    /// Accepted gpu models; empty means any.
    pub gpu_models: Vec<String>,
    /// Required pool; absent means any.
    pub pool: Option<String>,
    /// Only on a node that is otherwise empty.
    pub exclusive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    pub pool: String,
    pub cpu_milli: u64,
    /// 0 means not known, which is treated as unlimited.
    pub memory_mib: u64,
    pub gpu_count: u64,
    pub gpu_model: String,
}

/// Names by the order in which they were met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    known: BTreeMap<String, usize>,
    list: Vec<String>,
}

impl Names {
    pub fn index(&mut self, name: &str) -> usize {
        if let Some(at) = self.known.get(name) {
            return *at;
        }
        let at = self.list.len();
        self.known.insert(name.to_owned(), at);
        self.list.push(name.to_owned());
        at
    }

    pub fn name(&self, at: usize) -> &str {
        &self.list[at]
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.known.get(name).copied()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// All jobs of a trace, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    pub jobs: Vec<Job>,
    pub users: Names,
    pub classes: Names,
    pub queues: Names,
    /// Lines that were broken and passed over; the first of them is kept for people.
    pub skipped: u64,
    pub first_skipped: Option<Fault>,
    /// Processors of the source system, where the trace says so (SWF).
    pub processors: Option<u64>,
}

impl Workload {
    pub(crate) fn skip(&mut self, fault: Fault) {
        self.skipped += 1;
        self.first_skipped.get_or_insert(fault);
    }

    /// Jobs that can be simulated (a submit time and a run time are known), by submit time; those
    /// of one second in the order of the file.
    pub fn runnable(&self) -> Vec<&Job> {
        let known = |job: &&Job| job.submit_s.is_some() && job.runtime_s.is_some();
        let mut jobs: Vec<&Job> = self.jobs.iter().filter(known).collect();
        jobs.sort_by_key(|job| job.submit_s);
        jobs
    }
}
