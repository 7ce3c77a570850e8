//! State shared by handlers, the committer and background tasks.

mod planner_requests;
pub mod shared_view;
pub mod snapshot_reads;
mod worker_pool_events;

use parking_lot::RwLock;

use crate::config::Settings;

pub use planner_requests::{OutgoingRequest, PlannerRequestSender};
use shared_view::SharedView;
use snapshot_reads::SnapshotReads;
pub use worker_pool_events::PoolEventSignal;

pub struct Context {
    pub settings: Settings,
    /// Committed state for handlers.
    pub view: RwLock<SharedView>,
    /// Copies of the snapshot for handlers.
    pub snapshot_reads: SnapshotReads,
    /// Wakes the owners of worker pools that wait for events.
    pub pool_events: PoolEventSignal,
    /// Requests from rounds to external planners.
    pub planner_requests: PlannerRequestSender,
}
