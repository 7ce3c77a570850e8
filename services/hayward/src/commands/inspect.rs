//! Commands that read what the scheduler decided, and why.

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
