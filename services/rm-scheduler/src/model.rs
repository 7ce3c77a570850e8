//! Types of rows that the working set holds and the store writes.

mod evacuation;
mod planner_state;
mod worker_pool;

use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_vocabulary::AllocationId;

pub use evacuation::{EvacuatedProcess, Evacuation, MoveOutcome};
pub use planner_state::{PlannerStateKey, PlannerStateRow, PlannerStateRows, preempted_quanta_key};
pub use worker_pool::{MAX_EVENTS, PoolDescription, PoolRecord};

/// An allocation with the fields that are not published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationRecord {
    pub entry: AllocationEntry,
    /// True if the allocation is not preemptable.
    pub fixed: bool,
    /// Numbers of the GPUs on its node.
    pub gpus: Vec<u64>,
    /// User group by which the queue admitted the work. `None` outside queues.
    pub group: Option<String>,
    /// Number of the trial during which the allocation was granted. `None` if its node was not on
    /// trial.
    pub trial: Option<u64>,
    /// Trace parent of an allocation without a launch. Other allocations have the trace parent in
    /// their launch (T5).
    pub trace_parent: Option<String>,
}

/// A policy that comes into force.
#[derive(Debug)]
pub struct NewPolicy {
    pub generation: u64,
    pub document: Policy,
    pub changed_by: String,
    pub changed_at_ms: i64,
    /// Differences from the previous generation, as sentences.
    pub changes: Vec<String>,
}

/// An order to leave.
#[derive(Debug, Clone)]
pub struct LeaveOrder {
    pub allocation: AllocationId,
    pub reason: VacateReason,
    pub detail: String,
    /// True if the end of the process is not awaited, because the node cannot answer.
    pub purge: bool,
}
