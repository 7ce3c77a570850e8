//! A queue with the settings that it inherits, for the validation of the configuration.

use hayward_rm_scheduler_domain::snapshot::queues::{Amounts, Queue};

use super::JsonPointer;

pub(super) struct InheritedQueue<'a> {
    pub queue: &'a Queue,
    pub pointer: JsonPointer,
    /// Maximum that the queues above impose, by resource type. The nearest one applies.
    pub max: Amounts,
    /// Nearest limit on running applications above the queue. `None` if there is none.
    pub max_applications: Option<u64>,
    /// Queues above this one, the nearest first. Their limits apply too.
    pub ancestors: Vec<&'a Queue>,
    /// Level in the tree. The root has level 1.
    pub level: usize,
}
