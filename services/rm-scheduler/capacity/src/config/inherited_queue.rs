//! A queue with the settings it inherits.

use hayward_rm_scheduler_domain::snapshot::queues::{Amounts, Queue};

use super::At;

pub(super) struct InheritedQueue<'a> {
    pub queue: &'a Queue,
    pub at: At,
    /// Nearest maximum on the path, by type.
    pub max: Amounts,
    pub applications: Option<u64>,
    /// Queues above this one, the nearest first. Their limits apply too.
    pub limits: Vec<&'a Queue>,
    pub level: usize,
}
