//! Recorded workloads as types of the simulation. Amounts are integers with their unit in the name.
//! A value that the source did not record is absent.

mod csv;
mod open;
mod record;
mod swf;

use std::collections::BTreeMap;

pub use csv::{read_arrivals, read_jobs, read_nodes};
pub use open::{open, open_jobs};
pub use record::{Fault, InvalidLines, TraceError};
pub use swf::read_swf;

/// One recorded piece of work: equal tasks that were submitted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: String,
    /// Index into [`Workload::users`].
    pub user: usize,
    /// Index into [`Workload::classes`].
    pub class: usize,
    /// The requested queue, as an index into [`Workload::queues`]. `None` if the job named none.
    pub queue: Option<usize>,
    pub submit_s: Option<u64>,
    /// Run time in seconds. `None` if the job never ran.
    pub runtime_s: Option<u64>,
    pub limit_s: Option<u64>,
    pub tasks: u64,
    /// Resources of each task.
    pub request: TaskRequest,
}

impl Job {
    /// Returns the run time in seconds, at most the limit. The source system kills a job at its
    /// limit.
    pub fn run_s(&self) -> Option<u64> {
        let runtime = self.runtime_s?;
        Some(self.limit_s.map_or(runtime, |limit| runtime.min(limit)))
    }
}

/// Resources of one task on its node, and the nodes that it accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskRequest {
    pub cpu_milli: u64,
    pub memory_mib: u64,
    pub gpu_count: u64,
    /// Thousandths of each of its GPUs.
    pub gpu_milli: u64,
    /// Accepted GPU models. An empty list accepts any.
    pub gpu_models: Vec<String>,
    /// Required pool. `None` accepts any.
    pub pool: Option<String>,
    /// Whether the task needs a node on which no other task runs.
    pub exclusive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    pub pool: String,
    pub cpu_milli: u64,
    /// Memory in MiB. 0 means not known and is treated as unlimited.
    pub memory_mib: u64,
    pub gpu_count: u64,
    pub gpu_model: String,
}

/// Names in the order of first use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    index_by_name: BTreeMap<String, usize>,
    list: Vec<String>,
}

impl Names {
    pub fn index(&mut self, name: &str) -> usize {
        if let Some(index) = self.index_by_name.get(name) {
            return *index;
        }
        let index = self.list.len();
        self.index_by_name.insert(name.to_owned(), index);
        self.list.push(name.to_owned());
        index
    }

    pub fn name(&self, index: usize) -> &str {
        &self.list[index]
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.index_by_name.get(name).copied()
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
    /// Number of invalid lines that were skipped. The report names the first one.
    pub skipped: u64,
    pub first_skipped: Option<Fault>,
    /// Number of processors of the source system. `None` unless the trace is an SWF trace that
    /// records it.
    pub processors: Option<u64>,
}

impl Workload {
    pub(crate) fn skip(&mut self, fault: Fault) {
        self.skipped += 1;
        self.first_skipped.get_or_insert(fault);
    }

    /// Returns the jobs with a known submit time and run time, ordered by submit time. Jobs of the
    /// same second keep the order of the file.
    pub fn runnable(&self) -> Vec<&Job> {
        let has_times = |job: &&Job| job.submit_s.is_some() && job.runtime_s.is_some();
        let mut jobs: Vec<&Job> = self.jobs.iter().filter(has_times).collect();
        jobs.sort_by_key(|job| job.submit_s);
        jobs
    }
}
