//! Input of a round: the snapshot with its parts, and the delta between two snapshots.

pub(crate) mod delta;
pub mod external_planners;
pub mod queues;
pub mod settings;
pub mod snapshot;
