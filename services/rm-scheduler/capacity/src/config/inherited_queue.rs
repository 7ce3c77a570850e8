//! A queue with the settings it inherits.

use hayward_rm_scheduler_domain::snapshot::queues::{Amounts, Queue};

use super::At;

/// A queue with its inherited settings.
pub(super) struct InheritedQueue<'a> {
    pub queue: &'a Queue,
    pub at: At,
    /// Nearest maximum on the path, by type.
    pub max: Amounts,
    pub applications: Option<u64>,
    /// Queues above it, the nearest first.
    pub limits: Vec<&'a Queue>,
    pub level: usize,
}
