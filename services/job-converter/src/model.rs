//! Types that the working set, its commands and its rows share.

use std::sync::Arc;

use hayward_vocabulary::{UserName, WorkId};
use uuid::Uuid;

/// Work that is over. Its view stays published until it is forgotten.
pub struct Final {
    pub id: WorkId,
    pub user: UserName,
    pub runner: Option<WorkId>,
    /// The name under which hosts of its processors are remembered.
    pub home: Option<String>,
}

/// A runner token and how much open work uses it.
pub struct Shared {
    pub token: Arc<str>,
    pub works: usize,
}

/// A key and the request it was used for, each as half a SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Once {
    pub key: Uuid,
    pub request: Uuid,
}
