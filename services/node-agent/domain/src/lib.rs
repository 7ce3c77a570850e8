//! The decisions of the node agent as pure functions:
//!
//! - [`reconcile`]: what to start, stop and forget.
//! - [`journal`]: what a journal proves after a crash.
//! - [`lease`]: how long leased work may run.
//! - [`batch`]: how many tasks to request.
//! - [`fault_attribution`]: whether the user or the node caused a failed start.
//! - [`condition`]: what a node offers.
//!
//! The functions read no clock, file or process. Times are milliseconds of a monotonic clock.

pub mod batch;
pub mod condition;
pub mod fault_attribution;
pub mod journal;
pub mod lease;
pub mod reconcile;

pub use batch::BatchSizer;
pub use fault_attribution::{NodeFault, Stage, exit_for_failed_start};
pub use journal::{ContainerHistory, Doubt, Evidence, JournalState, Record, Verdict};
pub use lease::{Lease, LeaseAction, Tenure};
pub use reconcile::{Action, ActualContainer, DesiredContainer, Goal, Phase, State, reconcile};
