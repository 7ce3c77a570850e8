//! Queue, pool and priority of a submission, for its demand.
//!
//! rm-scheduler decides whether the queue exists and who may use it, and answers with a verdict.
//! Groups come from the token of the submission, never from the body.

use hayward_vocabulary::{Queued, WorkKind};

use crate::work::{What, Work};

/// Returns the queue choice of work. `None` if the work is served in a class.
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
    // All instances of a service are one application of the queue.
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
