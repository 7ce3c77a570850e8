//! Rows of tables `pool`, `pool_worker` and `pool_event`.

use std::collections::{BTreeSet, VecDeque};

use hayward_rm_scheduler_api::pools::{PoolEvent, WorkerSpec};
use hayward_rm_scheduler_worker_pools::Pool;
use hayward_service::http::idempotency::RequestDigest;
use hayward_vocabulary::{Timestamp, UserName, WorkId};

/// Events kept for each pool. An owner that is further behind has to connect again.
pub const MAX_EVENTS: usize = 1_000;

/// A pool apart from its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDescription {
    pub id: WorkId,
    pub job_id: String,
    pub user: UserName,
    pub class: Option<String>,
    /// None in standalone mode.
    pub spec: Option<WorkerSpec>,
    pub created_at: Timestamp,
    pub stopped_at: Option<Timestamp>,
    /// Digest of caller and `Idempotency-Key`, and digest of the request.
    pub made_by: RequestDigest,
    pub made_from: RequestDigest,
}

#[derive(Debug)]
pub struct PoolRecord {
    pub about: PoolDescription,
    pub pool: Pool,
    /// Newest last.
    pub events: VecDeque<PoolEvent>,
    /// Numbers of the works of this pool that are in the snapshot.
    pub put: BTreeSet<u64>,
    /// Monotonic time of the next change that comes with time alone.
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
