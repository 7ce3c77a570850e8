//! Result of a round: the plan, the sentences of verdicts, and the shares with a check that they
//! add up.

pub(crate) mod detail;
pub mod external_planner_effects;
pub mod gangs;
pub mod plan;
pub(crate) mod reason;
mod share_delta;
mod share_sums;
pub(crate) mod shares;
