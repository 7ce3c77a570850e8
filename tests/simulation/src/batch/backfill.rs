//! The reservation of the job at the head of the queue: the time at which it can start by the
//! limits of the running jobs, and what is then free besides it.

use super::Batch;
use crate::{
    cluster::{Emptying, Part, Room, occupy},
    trace::Job,
};

pub(super) struct Reservation {
    /// Start of the head job in seconds.
    pub at: u64,
    /// Free at that time, besides the head job.
    pub left: Vec<Room>,
    /// Free both now and at that time besides the head job.
    pub both: Vec<Room>,
}

impl Reservation {
    pub fn of(batch: &Batch, head: &Job) -> Self {
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
        let mut rooms = then.rooms;
        let mut parts = cluster
            .lay(head, &rooms, &cluster.rooms)
            .expect("an empty cluster holds every job that is simulated");
        occupy(&mut rooms, &head.need, &mut parts);
        let pairs = cluster.rooms.iter().zip(&rooms);
        Self {
            at,
            both: pairs.map(|(now, then)| now.both(then)).collect(),
            left: rooms,
        }
    }

    /// Updates the reservation after a job started on these nodes.
    pub fn refresh(&mut self, rooms: &[Room], parts: &[Part]) {
        for Part { node, .. } in parts {
            self.both[*node] = rooms[*node].both(&self.left[*node]);
        }
    }
}
