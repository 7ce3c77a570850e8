//! The reservation for the job at the head of the queue (EASY backfill): the earliest time at which
//! the job can start if all running jobs run until their limits, and the space that it leaves free.

use super::Batch;
use crate::{
    cluster::{FreeSpace, Placement, ReleasePreview, occupy},
    trace::Job,
};

pub(super) struct Reservation {
    /// Start of the head job in seconds.
    pub start_s: u64,
    /// Free space at that time that the head job does not use, by node.
    pub free_after_start: Vec<FreeSpace>,
    /// Space that is free now and that the head job does not use at that time, by node.
    pub free_throughout: Vec<FreeSpace>,
}

impl Reservation {
    pub fn for_head(batch: &Batch, head: &Job) -> Self {
        let cluster = &batch.cluster;
        let mut preview = ReleasePreview::new(cluster, &head.request);
        let mut start_s = batch.now;
        for (&(expected_end_s, job), placements) in &batch.running {
            // All jobs with the same expected end are released together.
            if expected_end_s != start_s && preview.fits(head.tasks) {
                break;
            }
            start_s = expected_end_s;
            preview.release(&batch.job(job).request, placements);
        }
        let mut free_space = preview.free_space;
        let mut placements = cluster
            .find_placements(head, &free_space, &cluster.free_space)
            .expect("every simulated job fits on the empty cluster");
        occupy(&mut free_space, &head.request, &mut placements);
        let pairs = cluster.free_space.iter().zip(&free_space);
        Self {
            start_s,
            free_throughout: pairs.map(|(now, later)| now.intersection(later)).collect(),
            free_after_start: free_space,
        }
    }

    /// Updates the reservation after a job started on these nodes.
    pub fn refresh(&mut self, free_space: &[FreeSpace], placements: &[Placement]) {
        for Placement { node, .. } in placements {
            self.free_throughout[*node] =
                free_space[*node].intersection(&self.free_after_start[*node]);
        }
    }
}
