//! Pure logic of job-converter. [`tasks`] has leases and outcomes of tasks. [`demand`], [`brake`],
//! and for services [`processors`] compute the demand of work. [`status`] computes the state that a
//! user sees.
//!
//! It reads no clock, row or request. Instants are milliseconds, facts are arguments, and equal
//! calls in equal order give equal states. A restart that replays the rows therefore restores the
//! state.

pub mod brake;
pub mod demand;
pub mod orchestrated;
pub mod processors;
pub mod ranges;
pub mod status;
pub mod tasks;

pub use brake::{Brake, Pace};
pub use demand::{DemandFields, compute_demand};
pub use ranges::Ranges;
pub use status::{Facts, State, status};
pub use tasks::{Ending, Leased, Recorded, TaskTable};
