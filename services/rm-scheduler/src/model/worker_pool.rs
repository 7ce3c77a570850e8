//! Worker pools, as stored in tables `pool`, `pool_worker` and `pool_event`.

use std::collections::{BTreeSet, VecDeque};

use hayward_rm_scheduler_api::worker_pools::{PoolEvent, WorkerSpec};
use hayward_rm_scheduler_worker_pools::Pool;
use hayward_service::http::idempotency::RequestDigest;
use hayward_vocabulary::{Timestamp, UserName, WorkId};

/// Maximum number of stored events of a pool. An owner that has not read an event before it is
/// dropped must connect again.
pub const MAX_EVENTS: usize = 1_000;

/// The properties of a worker pool that its creation fixes, and the time at which it stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDescription {
    pub id: WorkId,
    pub job_id: String,
    pub user: UserName,
    pub class: Option<String>,
    /// How workers are started. `None` in standalone mode.
    pub spec: Option<WorkerSpec>,
    pub created_at: Timestamp,
    pub stopped_at: Option<Timestamp>,
    /// Digest of the caller and `Idempotency-Key` of the request that created the pool.
    pub key_digest: RequestDigest,
    /// Digest of that request itself.
    pub request_digest: RequestDigest,
}

#[derive(Debug)]
pub struct PoolRecord {
    pub description: PoolDescription,
    pub pool: Pool,
    /// The newest events. The newest is last.
    pub events: VecDeque<PoolEvent>,
    /// Numbers of the requested workers whose work is in the snapshot.
    pub numbers_in_snapshot: BTreeSet<u64>,
    /// Monotonic time of the next change that time alone causes. `None` if there is none.
    pub next_tick_ms: Option<u64>,
}

impl PoolRecord {
    pub fn new(description: PoolDescription, pool: Pool, events: VecDeque<PoolEvent>) -> Self {
        Self {
            description,
            pool,
            events,
            numbers_in_snapshot: BTreeSet::new(),
            next_tick_ms: None,
        }
    }
}
