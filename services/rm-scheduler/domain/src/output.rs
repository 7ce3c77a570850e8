//! Result of a round: public types without logic.

pub(crate) mod detail;
pub mod external;
pub mod gangs;
pub mod plan;
pub(crate) mod reason;
mod share_delta;
mod share_sums;
pub(crate) mod shares;
