//! The core: the scheduler's state machine of an application. It decides whether the application
//! counts as running, and when it has ended.

pub mod application;
mod gang;
mod input_handlers;
mod lost_allocations;
mod placeholder_replacement;
mod timeouts;

pub use crate::core_state::{Event, State, next};
pub use application::{Allocation, Application, Effect, Head, Input, Step, Transition};
pub use gang::{GroupCounters, IncompleteGang};
