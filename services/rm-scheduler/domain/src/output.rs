//! Everything a round decides: public types without logic.

pub mod external;
pub mod gangs;
pub(crate) mod packed_share;
pub mod plan;
pub(crate) mod reason;
pub(crate) mod sentence;
mod share_delta;
mod share_sums;
pub(crate) mod shares;
