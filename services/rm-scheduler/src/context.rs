//! What handlers and the working set share.

use parking_lot::RwLock;

use crate::config::Settings;
use crate::external_planners::Questions;
use crate::queries::snapshot_reads::SnapshotReads;
use crate::queries::view::SharedView;
use crate::worker_pools::PoolEventSignal;

pub struct Context {
    pub settings: Settings,
    pub view: RwLock<SharedView>,
    pub snapshot_reads: SnapshotReads,
    pub pools: PoolEventSignal,
    pub questions: Questions,
}
