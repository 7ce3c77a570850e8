//! The reservation of the job at the head of the queue: when it can start by the limits of what
//! runs, and what it leaves free beside it then.

use super::Batch;
use crate::{
    cluster::{Emptying, Part, Room, occupy},
    trace::Job,
};

pub(super) struct Reservation {
    /// Seconds.
    pub at: u64,
    /// Free at that time beside the head.
    pub left: Vec<Room>,
    /// Free now, and then beside the head.
    pub both: Vec<Room>,
}

impl Reservation {
    pub fn of(batch: &Batch, head: &Job) -> Self {
        let cluster = &batch.cluster;
        let mut then = Emptying::new(cluster, &head.need);
        let mut at = batch.now;
        for (&(expected, job), parts) in &batch.running {
            // All with the same expected end go together.
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

    /// After something started on these nodes.
    pub fn refresh(&mut self, rooms: &[Room], parts: &[Part]) {
        for Part { node, .. } in parts {
            self.both[*node] = rooms[*node].both(&self.left[*node]);
        }
    }
}
