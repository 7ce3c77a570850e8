//! The row types: what the working set holds and the store writes.

mod carried_row;
mod evacuation;
mod worker_pool;

use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_vocabulary::AllocationId;

pub use carried_row::{CarriedKey, CarriedRow, CarriedRows, spent_key};
pub use evacuation::{EvacuatedProcess, Evacuation, Settled};
pub use worker_pool::{EVENTS_KEPT, PoolDescription, PoolRecord};

/// An allocation and what only the scheduler needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationRecord {
    pub entry: AllocationEntry,
    /// Not preemptable.
    pub fixed: bool,
    /// The gpus of its node it sits on.
    pub gpus: Vec<u64>,
    /// Of what is in a queue: the group that was chosen for it.
    pub group: Option<String>,
    /// The trial of its node that granted it.
    pub trial: Option<u64>,
    /// Of what starts nothing: where its life is told (T5). Of the rest its launch says it.
    pub within: Option<String>,
}

#[derive(Debug)]
pub struct NewPolicy {
    pub generation: u64,
    pub document: Policy,
    pub changed_by: String,
    pub changed_at_ms: i64,
    /// What it has other than the generation before.
    pub changes: Vec<String>,
}

/// An order to leave.
#[derive(Debug, Clone)]
pub struct LeaveOrder {
    pub allocation: AllocationId,
    pub reason: VacateReason,
    pub detail: String,
    /// Nothing more is awaited from its node.
    pub purge: bool,
}
