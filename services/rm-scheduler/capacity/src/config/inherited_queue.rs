//! A queue with the settings it inherits.

use hayward_rm_scheduler_domain::snapshot::queues::{Amounts, Queue};

use super::JsonPointer;

pub(super) struct InheritedQueue<'a> {
    pub queue: &'a Queue,
    pub pointer: JsonPointer,
    /// Nearest maximum on the path, by type.
    pub max: Amounts,
    /// Nearest limit on running applications above the queue. `None` if there is none.
    pub max_applications: Option<u64>,
    /// Queues above this one, the nearest first. Their limits apply too.
    pub ancestors: Vec<&'a Queue>,
    pub level: usize,
}
