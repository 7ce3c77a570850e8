//! The decisions of the node agent as pure functions:
//!
//! - [`account_choice`]: the account that a program runs as.
//! - [`reconcile`]: what to start, stop and forget.
//! - [`journal_recovery`]: what a journal proves after a crash.
//! - [`lease`]: how long leased work may run.
//! - [`run_signals`]: when a run of a task is warned, asked to end and killed.
//! - [`task_reserve`]: how many tasks to request.
//! - [`fault_attribution`]: whether the user or the node caused a failed start.
//! - [`node_offer`]: what a node offers.
//!
//! The functions read no clock, file or process. Times are milliseconds of a monotonic clock.

pub mod account_choice;
pub mod fault_attribution;
pub mod journal_recovery;
pub mod lease;
pub mod node_offer;
pub mod reconcile;
pub mod run_signals;
pub mod task_reserve;

pub use fault_attribution::{NodeFault, Stage, exit_for_failed_start};
pub use journal_recovery::{
    ContainerHistory, Doubt, Evidence, JournalState, Record, RecoveredState,
};
pub use lease::{Lease, LeaseAction, Tenure};
pub use reconcile::{Action, ActualContainer, DesiredContainer, Goal, Phase, State, reconcile};
pub use run_signals::{RunSignals, RunTimes, SignalStep, StopReason, StopRequest};
pub use task_reserve::{RESERVE_HORIZON_MS, ReserveSizer};
