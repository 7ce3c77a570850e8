//! What a round decides: public types without logic.

pub mod external;
pub mod gangs;
pub mod plan;
mod share_delta;
mod share_sums;
mod shares;
