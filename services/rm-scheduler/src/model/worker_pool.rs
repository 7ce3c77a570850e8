//! Rows of tables `pool`, `pool_worker` and `pool_event`.

use std::collections::{BTreeSet, VecDeque};

use hayward_rm_scheduler_api::pools::{PoolEvent, WorkerSpec};
use hayward_rm_scheduler_worker_pools::Pool;
use hayward_service::http::idempotency::RequestDigest;
use hayward_vocabulary::{Timestamp, UserName, WorkId};

/// Events kept of each pool. An owner that is further behind connects again.
pub const EVENTS_KEPT: usize = 1_000;

/// What a pool is, apart from its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDescription {
    pub id: WorkId,
    pub job_id: String,
    pub user: UserName,
    pub class: Option<String>,
    /// Absent in standalone.
    pub spec: Option<WorkerSpec>,
    pub created_at: Timestamp,
    pub stopped_at: Option<Timestamp>,
    /// Who made it under which key, and from what (A4).
    pub made_by: RequestDigest,
    pub made_from: RequestDigest,
}

#[derive(Debug)]
pub struct PoolRecord {
    pub about: PoolDescription,
    pub pool: Pool,
    /// Newest last.
    pub events: VecDeque<PoolEvent>,
    /// Numbers of the works that are in the snapshot in its name.
    pub put: BTreeSet<u64>,
    /// When time next changes it.
    pub next_tick_ms: Option<u64>,
}

impl PoolRecord {
    pub fn new(about: PoolDescription, pool: Pool, events: VecDeque<PoolEvent>) -> Self {
        Self {
            about,
            pool,
            events,
            put: BTreeSet::new(),
            next_tick_ms: None,
        }
    }
}
