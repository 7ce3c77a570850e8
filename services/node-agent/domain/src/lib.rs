//! The decisions of the node agent as pure functions: what to start, stop and forget
//! ([`reconcile`]), what a journal proves after a crash ([`journal`]), how long leased work may run
//! ([`lease`]), how many tasks to request ([`batch`]), whether the user or the node caused a failed
//! start ([`fault_attribution`]), and what a node offers ([`condition`]).
//!
//! Nothing here reads a clock, a file or a process. Times are milliseconds of a monotonic clock.

pub mod batch;
pub mod condition;
pub mod fault_attribution;
pub mod journal;
pub mod lease;
pub mod reconcile;

pub use batch::Pace;
pub use fault_attribution::{NodeFault, Stage, refusal};
pub use journal::{ContainerHistory, Doubt, Evidence, JournalState, Record, Verdict};
pub use lease::{Lease, Step, Tenure};
pub use reconcile::{Action, Actual, Goal, Phase, State, Wanted, reconcile};
