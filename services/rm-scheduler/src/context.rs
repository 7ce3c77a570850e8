//! State shared by handlers, the committer and background tasks.

mod planner_requests;
mod pool_events;
pub mod snapshot_reads;
pub mod view;

use parking_lot::RwLock;

use crate::config::Settings;

pub use planner_requests::{OutgoingRequest, PlannerRequestSender};
pub use pool_events::PoolEventSignal;
use snapshot_reads::SnapshotReads;
use view::SharedView;

pub struct Context {
    pub settings: Settings,
    pub view: RwLock<SharedView>,
    pub snapshot_reads: SnapshotReads,
    pub pool_events: PoolEventSignal,
    pub planner_requests: PlannerRequestSender,
}
