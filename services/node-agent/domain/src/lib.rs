//! The decisions of the node agent, as pure functions: what to start, stop and forget
//! ([`reconcile`]), what a journal proves after a crash ([`journal`]), how long leased work may
//! run ([`lease`]), how many tasks to ask for ([`batch`]), whose fault a refusal of the machine is
//! ([`fault_attribution`]), and what a machine says of itself ([`condition`]).
//!
//! Nothing here reads a clock, a file or a process. Times are milliseconds of the caller's
//! monotonic clock.

pub mod batch;
pub mod condition;
pub mod fault_attribution;
pub mod journal;
pub mod lease;
pub mod reconcile;

pub use batch::Pace;
pub use fault_attribution::{Stage, Trouble, refusal};
pub use journal::{Doubt, Past, Record, Story, Trace, Verdict};
pub use lease::{Lease, Step, Tenure};
pub use reconcile::{Action, Actual, Goal, Phase, Picture, Wanted, reconcile};
