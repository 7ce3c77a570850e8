//! The decisions of the node agent, as pure functions: what to start, stop and forget
//! ([`reconcile`]), what a journal proves after a crash ([`journal`]), how long leased tasks may
//! run ([`lease`]) and how many to ask for ([`batch`]), and what a machine says of itself
//! ([`condition`]).
//!
//! Nothing here reads a clock, a file or a process. Times are milliseconds of the caller's
//! monotonic clock.

pub mod batch;
pub mod condition;
pub mod journal;
pub mod lease;
pub mod reconcile;

pub use batch::Pace;
pub use journal::{Past, Record, Story, Trace, Verdict};
pub use lease::Lease;
pub use reconcile::{Action, Actual, Goal, Phase, Picture, Wanted, reconcile};
