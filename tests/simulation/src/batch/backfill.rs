//! The reservation of the job at the head of the queue. It holds the time at which the job can
//! start, by the limits of the running jobs, and the space that stays free then.

use super::Batch;
use crate::{
    cluster::{Emptying, FreeSpace, Part, occupy},
    trace::Job,
};

pub(super) struct Reservation {
    /// Start of the head job in seconds.
    pub at: u64,
    /// Free space at that time that the head job does not use, by node.
    pub left: Vec<FreeSpace>,
    /// Space that is free now and that the head job does not use at that time, by node.
    pub both: Vec<FreeSpace>,
}

impl Reservation {
    pub fn for_head(batch: &Batch, head: &Job) -> Self {
        let cluster = &batch.cluster;
        let mut then = Emptying::new(cluster, &head.need);
        let mut at = batch.now;
        for (&(expected, job), parts) in &batch.running {
            // All jobs with the same expected end are released together.
            if expected != at && then.fits(head.tasks) {
                break;
            }
            at = expected;
            then.remove(&batch.job(job).need, parts);
        }
        let mut free_space = then.free_space;
        let mut parts = cluster
            .lay(head, &free_space, &cluster.free_space)
            .expect("an empty cluster holds every job that is simulated");
        occupy(&mut free_space, &head.need, &mut parts);
        let pairs = cluster.free_space.iter().zip(&free_space);
        Self {
            at,
            both: pairs.map(|(now, then)| now.both(then)).collect(),
            left: free_space,
        }
    }

    /// Updates the reservation after a job started on these nodes.
    pub fn refresh(&mut self, free_space: &[FreeSpace], parts: &[Part]) {
        for Part { node, .. } in parts {
            self.both[*node] = free_space[*node].both(&self.left[*node]);
        }
    }
}
