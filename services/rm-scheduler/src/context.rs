//! What handlers and the working set share.

use parking_lot::RwLock;

use crate::config::Settings;
use crate::external_planners::Questions;
use crate::queries::snapshot_reads::Looks;
use crate::queries::view::View;
use crate::worker_pools::Bell;

pub struct Context {
    pub settings: Settings,
    pub view: RwLock<View>,
    pub looks: Looks,
    pub pools: Bell,
    pub questions: Questions,
}
