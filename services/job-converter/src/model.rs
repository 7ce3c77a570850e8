//! Types shared by the working set, its commands and its rows.

use std::sync::Arc;

use hayward_vocabulary::{UserName, WorkId};
use uuid::Uuid;

/// Ended work. Its view stays published until it is forgotten.
pub struct FinalWork {
    pub id: WorkId,
    pub user: UserName,
    /// Work id in the scope of the runner's token. `None` if the work is no job.
    pub runner: Option<WorkId>,
    /// Name under which the last nodes of its processors are stored. `None` without host affinity.
    pub host_key: Option<String>,
}

/// A runner token and the number of open jobs that use it.
pub struct RunnerUse {
    pub token: Arc<str>,
    pub works: usize,
}

/// An idempotency key and its request, each as half a SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestKey {
    pub key: Uuid,
    pub request: Uuid,
}
