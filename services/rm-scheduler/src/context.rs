//! State shared by handlers, the committer and background tasks.

mod planner_requests;
pub mod snapshot_reads;
pub mod view;
mod worker_pool_events;

use parking_lot::RwLock;

use crate::config::Settings;

pub use planner_requests::{OutgoingRequest, PlannerRequestSender};
use snapshot_reads::SnapshotReads;
use view::SharedView;
pub use worker_pool_events::PoolEventSignal;

pub struct Context {
    pub settings: Settings,
    pub view: RwLock<SharedView>,
    pub snapshot_reads: SnapshotReads,
    pub pool_events: PoolEventSignal,
    pub planner_requests: PlannerRequestSender,
}
