//! A simulation case: the jobs of a workload that can be simulated, and the nodes.

use crate::{
    cluster::Cluster,
    trace::{Job, Node, Workload},
};

/// The input of a simulation. Schedulers name a job by its index in `jobs`.
#[derive(Debug)]
pub struct Case<'a> {
    pub workload: &'a Workload,
    pub nodes: &'a [Node],
    /// Jobs by submit time.
    pub jobs: Vec<&'a Job>,
    /// Number of jobs without a submit time or a run time.
    pub unknown: usize,
    /// Number of jobs that do not fit on the empty cluster. No policy could start them.
    pub too_large: usize,
}

impl<'a> Case<'a> {
    /// Selects jobs for a simulation in which all tasks of a job run at once.
    pub fn rigid(workload: &'a Workload, nodes: &'a [Node]) -> Self {
        Self::new(workload, nodes, |job| job.tasks)
    }

    /// Selects jobs for a simulation in which the tasks of a job may run one after the other.
    pub fn malleable(workload: &'a Workload, nodes: &'a [Node]) -> Self {
        Self::new(workload, nodes, |_| 1)
    }

    fn new(
        workload: &'a Workload,
        nodes: &'a [Node],
        concurrent_tasks: impl Fn(&Job) -> u64,
    ) -> Self {
        let cluster = Cluster::new(nodes);
        let mut jobs = workload.runnable();
        let with_known_times = jobs.len();
        jobs.retain(|job| cluster.count_fitting_when_empty(&job.request) >= concurrent_tasks(job));
        Self {
            workload,
            nodes,
            unknown: workload.jobs.len() - with_known_times,
            too_large: with_known_times - jobs.len(),
            jobs,
        }
    }

    pub(crate) fn submit_s(&self, job: usize) -> u64 {
        self.jobs[job].submit_s.unwrap_or(0)
    }

    pub(crate) fn run_s(&self, job: usize) -> u64 {
        self.jobs[job].run_s().unwrap_or(0)
    }
}

/// Callback that receives the number of jobs that have ended, from time to time.
pub type Progress<'a> = &'a mut dyn FnMut(usize);
