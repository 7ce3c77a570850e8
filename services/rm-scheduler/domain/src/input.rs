//! Input of a decision: public types without logic.

pub(crate) mod delta;
pub mod external;
pub mod queues;
pub mod settings;
pub mod snapshot;
