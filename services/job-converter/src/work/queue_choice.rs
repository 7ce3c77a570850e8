//! The place in a queue that a submission asks for (application protocol, 7.5).
//!
//! Whether there is such a queue, and who may use it, is the scheduler's to say: it answers with a
//! verdict. The groups are those of the token it was submitted with, never of the body.

use hayward_vocabulary::{Queued, WorkKind};

use crate::work::{What, Work};

/// Absent: it is served in a class.
pub fn queued(work: &Work) -> Option<Box<Queued>> {
    let (queue, pool, priority) = match &work.what {
        What::Job(job) => {
            let it = &job.submission;
            (&it.queue, &it.pool, it.priority)
        }
        What::Service(it) => (&it.queue, &it.pool, it.priority),
        What::Reservation(_) => return None,
    };
    if queue.is_none() && pool.is_none() {
        return None;
    }
    // The instances of a service are one application.
    let application = (work.kind() == WorkKind::Service).then(|| work.id.to_string());
    Some(Box::new(Queued {
        pool: pool.clone(),
        queue: queue.clone(),
        application,
        groups: work.groups.names().to_vec(),
        priority: priority.unwrap_or_default(),
        ..Queued::default()
    }))
}
