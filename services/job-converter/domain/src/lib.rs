//! Pure logic of job-converter. [`tasks`] has leases and outcomes of tasks. [`demand`],
//! [`backoff`], and for services [`service_processors`] compute the demand of work.
//! [`orchestrator_maps`] compares the maps of orchestrators. [`status`] computes the state that a
//! user sees.
//!
//! The crate reads no clock, row or request. Instants are milliseconds, facts are arguments, and
//! equal calls in equal order give equal states. A restart that replays the rows therefore restores
//! the state.

pub mod backoff;
pub mod demand;
pub mod orchestrator_maps;
pub mod ranges;
pub mod service_processors;
pub mod status;
pub mod tasks;

pub use backoff::{Backoff, BackoffPolicy};
pub use demand::{DemandFields, compute_demand};
pub use ranges::Ranges;
pub use status::{Facts, State, status};
pub use tasks::{Ending, Leased, Recorded, TaskTable};
