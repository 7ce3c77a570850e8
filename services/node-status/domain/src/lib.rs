//! The pure heart of node-status: from what is known of a node to how it is.
//!
//! [`judge`] sees one node and its silence; [`brake`] sees a whole pool and says when so many nodes
//! fell silent together that the fault is more likely ours than theirs (B1); [`twins`] notices two
//! agents that report as one node (F28). Nothing here reads a clock: instants are milliseconds of
//! one monotonic clock that the caller owns, so an outage of ours is never held against a node
//! (B2).

pub mod brake;
pub mod health;
pub mod twins;

pub use brake::{Brake, Pool};
pub use health::{Health, Judgement, Limits, Record, judge};
pub use twins::Twins;
