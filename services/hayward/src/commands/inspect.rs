//! Commands that read the decisions of the scheduler and their reasons.

pub mod allocations;
pub mod containers;
pub mod load;
pub mod plan;
pub mod planners;
pub mod queues;
pub mod replay;
pub mod rounds;
pub mod shares;
pub mod what_if;
