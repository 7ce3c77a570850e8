//! Queue, pool and priority of a submission, for its demand.
//!
//! rm-scheduler decides whether the queue exists and who may use it, and answers with a verdict.
//! Groups come from the token of the submission, never from the body.

use hayward_vocabulary::{Queued, WorkKind};

use crate::work::{Work, WorkSpec};

/// Returns the queue choice of work. `None` if the work is served in a class.
pub fn requested_queue(work: &Work) -> Option<Box<Queued>> {
    let (queue, pool, priority) = match &work.spec {
        WorkSpec::Job(job) => {
            let submission = &job.submission;
            (&submission.queue, &submission.pool, submission.priority)
        }
        WorkSpec::Service(submission) => (&submission.queue, &submission.pool, submission.priority),
        WorkSpec::Reservation(_) => return None,
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
